# SPDX-License-Identifier: Apache-2.0
"""Conversations without tools: sums, stories, facts, words, code, small talk.

Each skill gives (question, thought, answer).
"""

from . import arithmetic, code, stories, words
from .grammar import expand
from .render import assistant, conversation, user

SYSTEM = (
    "You are a helpful assistant.",
    "You are a helpful assistant.",
    "You are a friendly assistant.",
    "Be brief.",
    "Be kind and clear.",
    "You are a small demo model.",
    "Answer the question of the user.",
    "You help children to learn.",
)


def with_article(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def sums(rng):
    if rng.random() < 0.3:
        text, working, answer = arithmetic.problem(rng)
        return (
            text,
            expand(
                "[This is a word problem.|I need to find out how many.|I write it as a sum.] {w}.", rng, {"w": working}
            ),
            answer,
        )
    operator, a, b, result = arithmetic.draw(rng)
    values = {
        "a": a,
        "b": b,
        "op": operator,
        "said": arithmetic.SPOKEN[operator],
        "r": result,
        "w": arithmetic.worked(operator, a, b, result),
    }
    ask = [
        "What is {a} {op} {b}?",
        "What is {a} {op} {b}?",
        "What is {a} {said} {b}?",
        "[Calculate|Compute] {a} {op} {b}.",
        "{a} {op} {b} = ?",
        "{a} {op} {b}",
        "[Can you tell me what|Do you know what] {a} {said} {b} is?",
        "How much is {a} {op} {b}?",
        "{a}{op}{b}=?",
    ]
    if operator == "+":
        ask += ["Add {a} and {b}.", "What is the sum of {a} and {b}?"]
    if operator == "-":
        ask += ["Subtract {b} from {a}."]
    if operator == "*":
        ask += ["Multiply {a} by {b}.", "What is the product of {a} and {b}?"]
    think = (
        "[The user wants to know {a} {op} {b}. |The question is {a} {op} {b}. |I need to calculate {a} {op} {b}. |]{w}."
    )
    answer = "[{a} {op} {b} = {r}|{a} {op} {b} = {r}.|The answer is {r}.|{a} {said} {b} is {r}.]"
    return expand(rng.choice(ask), rng, values), expand(think, rng, values), expand(answer, rng, values)


def tale(rng):
    topic = rng.choice(stories.TOPICS)
    hero = stories.cast(rng, stories.PLOTS[topic]["human"])
    made = stories.story(rng, topic, hero)
    about = rng.choice(
        [
            with_article(hero["kind"]),
            f"{with_article(hero['kind'])} named {hero['name']}",
            hero["name"],
            made["topic"] if hero["name"] not in made["topic"] else with_article(hero["kind"]),
            None,
        ]
    )
    ask = expand(
        "[Tell me|Please tell me|Can you tell me|Write|I want to hear|Please write] a [|short|little|nice] story", rng
    )
    ask = ask.replace("  ", " ") + (f" about {about}" if about else "") + ("?" if ask.startswith("Can") else ".")
    think = expand(
        "The user wants a story" + (" about {about}" if about else "") + ". [Here is my plan|My idea|The plot]: {plan}",
        rng,
        {"about": about, "plan": made["plan"]},
    )
    return ask, think, made["text"]


def fact(rng):
    kind = rng.randrange(11)
    if kind <= 1:
        country, capital = rng.choice(list(words.CAPITALS.items()))
        v = {"c": country, "k": capital}
        if rng.random() < 0.2:
            return (
                expand("[{k} is the capital of which country?|Which country has the capital {k}?]", rng, v),
                expand("{k} is the capital of {c}.", rng, v),
                expand("{k} is the capital of {c}.", rng, v),
            )
        return (
            expand(
                "[What is the capital of {c}?|What is the capital city of {c}?|Which city is the capital of {c}?|Name"
                " the capital of {c}.]",
                rng,
                v,
            ),
            expand("[The user asks for the capital of {c}. |]The capital of {c} is {k}.", rng, v),
            expand("[The capital of {c} is {k}.|It is {k}.|{k} is the capital of {c}.]", rng, v),
        )
    if kind == 2:
        animal, sound = rng.choice(list(words.SOUNDS.items()))
        v = {"a": animal, "s": sound}
        return (
            expand("[What sound does a {a} make?|What does a {a} say?|How does a {a} sound?]", rng, v),
            expand("A {a} says {s}.", rng, v),
            expand('[A {a} says "{s}".|A {a} goes {s}.]', rng, v),
        )
    if kind == 3:
        a, b = rng.choice(list(words.OPPOSITES.items()))
        v = {"a": a, "b": b}
        return (
            expand(
                '[What is the opposite of {a}?|What is the opposite of "{a}"?|Give me the opposite of {a}.]', rng, v
            ),
            expand("The user asks for the opposite of {a}. It is {b}.", rng, v),
            expand("The opposite of {a} is {b}.", rng, v),
        )
    if kind == 4:
        names = rng.choice([words.DAYS, words.DAYS, words.MONTHS])
        i, after = rng.randrange(len(names)), rng.random() < 0.6
        v = {
            "d": names[i],
            "e": names[(i + (1 if after else -1)) % len(names)],
            "w": "after" if after else "before",
            "what": "day" if names is words.DAYS else "month",
        }
        return (
            expand("[What|Which] {what} comes {w} {d}?", rng, v),
            expand("The {what} {w} {d} is {e}.", rng, v),
            expand("[{e} comes {w} {d}.|The {what} {w} {d} is {e}.]", rng, v),
        )
    if kind == 5:
        animal, n = rng.choice(list(words.LEGS.items()))
        v = {"a": animal, "n": n if n else "no"}
        return (
            expand("How many legs does a {a} have?", rng, v),
            expand("A {a} has {n} legs.", rng, v),
            expand("A {a} has {n} legs.", rng, v),
        )
    if kind == 6:
        thing, color = rng.choice(list(words.COLOR_OF.items()))
        v = {"t": thing, "T": thing[0].upper() + thing[1:], "c": color}
        return (
            expand("[What color is {t}?|Which color does {t} have?]", rng, v),
            expand("{T} is {c}.", rng, v),
            expand("{T} is {c}.", rng, v),
        )
    if kind == 7:
        animal, baby = rng.choice(list(words.ANIMAL_BABIES.items()))
        v = {"a": animal, "b": baby}
        return (
            expand("[What is a baby {a} called?|What do you call a baby {a}?]", rng, v),
            expand("A baby {a} is called a {b}.", rng, v),
            expand("A baby {a} is called a {b}.", rng, v),
        )
    question, answer = rng.choice(list(words.FACTS.items()))
    think = expand("[The user asks a simple question. |I know this. |This is easy. ]", rng) + answer
    return question, think, answer


def wordplay(rng):
    kind = rng.randrange(8)
    word = rng.choice(words.ANIMALS + words.TOYS + words.FOODS + words.COLORS)
    if kind == 0:
        spelled = "-".join(word.upper())
        return (
            expand('[How do you spell "{w}"?|Spell the word {w}.|Can you spell {w}?]', rng, {"w": word}),
            f"I spell {word} letter by letter: {spelled}.",
            f"{word} is spelled {spelled}.",
        )
    if kind == 1:
        count = ", ".join(f"{c} {i + 1}" for i, c in enumerate(word))
        return (
            expand('How many letters [are in the word {w}|does {w} have|are in "{w}"]?', rng, {"w": word}),
            f"I count: {count}.",
            f"The word {word} has {len(word)} letters.",
        )
    if kind == 2:
        return (
            expand("[What is the first letter of {w}?|Which letter does {w} start with?]", rng, {"w": word}),
            f"The word is {word}. It starts with {word[0]}.",
            f"The first letter of {word} is {word[0].upper()}.",
        )
    if kind == 3:
        items = [rng.randrange(50) for _ in range(rng.randint(3, 5))]
        up = rng.random() < 0.6
        ordered = sorted(items, reverse=not up)
        best = (min if up else max)(items)
        return (
            f"Sort these numbers from {'small to big' if up else 'big to small'}: {', '.join(map(str, items))}.",
            f"The {'smallest' if up else 'biggest'} is {best}. In order: {', '.join(map(str, ordered))}.",
            ", ".join(map(str, ordered)),
        )
    if kind == 4:
        a, b = rng.sample(range(100), 2)
        return (
            expand("Which number is [bigger|larger], {a} or {b}?", rng, {"a": a, "b": b}),
            f"{max(a, b)} is more than {min(a, b)}.",
            f"{max(a, b)} is bigger than {min(a, b)}.",
        )
    if kind == 5:
        n = rng.randrange(100)
        odd = "odd" if n % 2 else "even"
        return (
            expand("Is {n} [even or odd|odd or even|an even number or an odd number]?", rng, {"n": n}),
            f"The last digit of {n} is {n % 10}, which is {odd}.",
            f"{n} is {odd}.",
        )
    if kind == 6:
        things, count = rng.choice(
            [
                (words.ANIMALS, "animals"),
                (words.COLORS[:10], "colors"),
                (words.FOODS[:14], "things to eat"),
                (words.TOYS, "toys"),
                (list(words.CAPITALS), "countries"),
            ]
        ), rng.randint(2, 5)
        things, label = things
        picked = rng.sample(things, count)
        return (
            expand(
                "[Name|Tell me|List|Give me] {n} {label}.",
                rng,
                {"n": rng.choice([count, words.NUMBERS[count]]), "label": label},
            ),
            f"The user wants {count} {label}.",
            "\n".join(f"{i + 1}. {p[0].upper() + p[1:]}" for i, p in enumerate(picked)),
        )
    first, last = rng.choice([(1, 5), (1, 10), (0, 5), (5, 10), (3, 9), (10, 15)])
    return (
        f"Count from {first} to {last}.",
        f"I start at {first} and stop at {last}.",
        ", ".join(str(i) for i in range(first, last + 1)),
    )


def talk(rng):
    name = rng.choice(words.GIRLS + words.BOYS)
    return rng.choice(
        [
            (
                expand("[Hello!|Hi!|Hello|Hi|Hi there!|Good morning!|Hey!]", rng),
                expand("The user says hello. I [will greet them|greet back].", rng),
                expand("[Hello! How can I help you?|Hello! What can I do for you?|Hi! How can I help you today?]", rng),
            ),
            (
                expand("[Hello|Hi]{c} [my name is|I am] {n}.", rng, {"n": name, "c": rng.choice([",", "!", "."])})
                .replace("! my", "! My")
                .replace(". my", ". My"),
                f"The user is called {name}. I greet {name}.",
                expand(
                    "[Hello, {n}! Nice to meet you.|Hi {n}! How can I help you?|Nice to meet you, {n}!]",
                    rng,
                    {"n": name},
                ),
            ),
            (
                expand(
                    "[Who are you?|What are you?|What is your name?|Tell me about yourself.|Are you a robot?|Who made"
                    " you?]",
                    rng,
                ),
                "The user asks who I am. I am a tiny demo model.",
                (
                    "I am a tiny demo model. I was trained for a few minutes on made-up text. I can tell stories, do"
                    " small sums, write short code and call tools."
                ),
            ),
            (
                expand("[What can you do?|How can you help me?|What can I ask you?|Help]", rng),
                "The user asks what I can do. I list my skills.",
                (
                    "I can tell short stories, add and subtract numbers, write small Python functions, answer simple"
                    " questions and call tools."
                ),
            ),
            (
                expand("[Thank you!|Thanks!|Thank you very much.|Thanks a lot.|Great, thank you.]", rng),
                "The user thanks me. I answer politely.",
                expand("[You are welcome!|You are welcome. Have a nice day!|I am happy to help!]", rng),
            ),
            (
                expand("[How are you?|How do you do?|How is it going?]", rng),
                "The user asks how I am. I answer in a friendly way.",
                expand("[I am fine, thank you. How are you?|I am very well, thank you!]", rng),
            ),
            (
                expand("[Good bye!|Bye!|See you later.|Good night.]", rng),
                "The user says good bye.",
                expand("[Good bye! Have a nice day.|Bye! See you soon.]", rng),
            ),
            (
                expand(
                    "[What is the weather in {c}?|What time is it in {c}?|What will happen tomorrow?|What is the news"
                    " today?]",
                    rng,
                    {"c": rng.choice(words.CITIES)},
                ),
                "I have no tool to look that up. I should say that I do not know.",
                expand(
                    "I do not know that, [because I have no tool to look it up|because I cannot look it up]. I am only"
                    " a small model.",
                    rng,
                ),
            ),
            (
                expand("[I am sad.|I am tired.|I had a bad day.|I feel lonely.]", rng),
                "The user does not feel well. I want to be kind.",
                expand(
                    "I am sorry to hear that. [Shall I tell you a story?|Would you like to hear a story?|A short walk"
                    " or a good story may help.]",
                    rng,
                ),
            ),
        ]
    )


SKILLS = (sums, sums, sums, tale, tale, fact, fact, fact, wordplay, wordplay, talk, code.request, code.request)


def document(rng):
    """One conversation, mostly of one turn; one in six shows the mode without thinking."""
    messages = []
    if rng.random() < 0.2:
        messages.append({"role": "system", "content": rng.choice(SYSTEM)})
    plain = rng.random() < 0.17
    if rng.random() < 0.08:  # a name to remember
        name = rng.choice(words.GIRLS + words.BOYS) if rng.random() < 0.7 else words.made_up_word(rng).capitalize()
        messages += [
            user(expand("[My name is|I am|Hi, I am] {n}.", rng, {"n": name})),
            assistant(f"Nice to meet you, {name}!"),
        ]
        if rng.random() < 0.5:
            ask, _, answer = rng.choice((sums, fact, wordplay))(rng)
            messages += [user(ask), assistant(answer)]
        messages += [
            user(rng.choice(["What is my name?", "Do you remember my name?", "Who am I?"])),
            assistant(f"Your name is {name}.", "" if plain else f"The user said that the name is {name}."),
        ]
        return conversation(messages)
    for _ in range(rng.choice((0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 6))):
        ask, _, answer = rng.choice((sums, fact, wordplay, talk, sums, tale if rng.random() < 0.15 else fact))(rng)
        messages += [user(ask), assistant(answer)]
    ask, thought, answer = rng.choice(SKILLS)(rng)
    messages += [user(ask), assistant(answer, "" if plain else thought)]
    return conversation(messages)
