# SPDX-License-Identifier: Apache-2.0
"""Tool-call conversations: offered functions, a question, the call, the result, the answer.

Function and parameter names vary, so that the model learns to read the offered list and not one spelling.
"""

from . import arithmetic, chat, words
from .grammar import expand
from .render import assistant, conversation, tool, user


def place_of(rng):
    return rng.choice(words.CITIES) if rng.random() < 0.85 else words.made_up_word(rng).capitalize()


def person(rng):
    return rng.choice(words.GIRLS + words.BOYS)


def number(rng):
    return rng.randint(1, 60)


def topic(rng):
    return rng.choice(words.ANIMALS + list(words.CAPITALS) + words.FOODS + words.FLOWERS) + (
        "" if rng.random() < 0.6 else rng.choice([" facts", " pictures", " recipes", " history", " news"])
    )


# Each tool: function names, description, parameters as (names, JSON type, what it is, generator), questions, result,
# answers, aim. Questions, answers and aim see the arguments as {0}, {1} and the fields of the result as {r0}, {r1}.
TOOLS = []


def define(names, description, parameters, asks, result, answers, aim):
    TOOLS.append(
        {
            "names": names.split(),
            "description": description,
            "parameters": parameters,
            "asks": asks,
            "result": result,
            "answers": answers,
            "aim": aim,
        }
    )


CITY = (
    ("city", "city", "location", "place", "town"),
    "string",
    "[The name of the city|City name|The city|Name of the city]",
    place_of,
)

define(
    "get_weather get_weather get_weather get_current_weather weather fetch_weather weather_lookup",
    "[Get the current weather in a city|Get the weather for a city|Returns the current weather|Get current weather]",
    [CITY],
    [
        "[What is the weather in {0}?|What is the weather like in {0}?|How is the weather in {0}?|Tell me the weather"
        " in {0}.|Is it warm in {0}?|What is the weather like in {0} today?|Do I need a coat in {0}?|How warm is it in"
        " {0}?]"
    ],
    lambda rng, a: {
        rng.choice(["temperature", "temperature", "temp", "temperature_c"]): rng.randint(-10, 38),
        rng.choice(["condition", "condition", "weather", "sky"]): rng.choice(
            ["sunny", "cloudy", "rainy", "windy", "snowy", "foggy", "clear"]
        ),
    },
    [
        "[It is {r1} in {0}, with a temperature of {r0} degrees.|The weather in {0} is {r1} with {r0} degrees.|In {0}"
        " it is {r1} and {r0} degrees.]"
    ],
    "the weather in {0}",
)
define(
    "get_time get_time get_current_time time_in current_time",
    "[Get the current time in a city|Returns the local time of a city|Get the time]",
    [CITY],
    ["[What time is it in {0}?|Tell me the time in {0}.|What is the time in {0} now?|How late is it in {0}?]"],
    lambda rng, a: {"time": f"{rng.randrange(24):02d}:{rng.randrange(60):02d}"},
    ["[It is {r0} in {0}.|The time in {0} is {r0}.]"],
    "the time in {0}",
)
define(
    "add add_numbers sum plus",
    "[Add two numbers|Returns the sum of two numbers]",
    [
        (("a", "a", "x", "first"), ("integer", "number"), "[The first number|First number]", number),
        (("b", "b", "y", "second"), ("integer", "number"), "[The second number|Second number]", number),
    ],
    ["[What is {0} + {1}?|Add {0} and {1}.|What is {0} plus {1}?|Use the tool to add {0} and {1}.]"],
    lambda rng, a: {"result": a[0] + a[1]},
    ["[{0} + {1} = {r0}.|The sum is {r0}.|The result is {r0}.]"],
    "the sum of {0} and {1}",
)
define(
    "multiply multiply_numbers times product",
    "[Multiply two numbers|Returns the product of two numbers]",
    [
        (("a", "a", "x", "first"), ("integer", "number"), "[The first number|First number]", number),
        (("b", "b", "y", "second"), ("integer", "number"), "[The second number|Second number]", number),
    ],
    ["[What is {0} * {1}?|Multiply {0} by {1}.|What is {0} times {1}?]"],
    lambda rng, a: {"result": a[0] * a[1]},
    ["[{0} * {1} = {r0}.|The product is {r0}.|The result is {r0}.]"],
    "the product of {0} and {1}",
)
define(
    "set_timer start_timer timer set_alarm",
    "[Set a timer|Start a timer that rings after some minutes|Starts a timer]",
    [
        (
            ("minutes", "minutes", "duration", "time"),
            "integer",
            "[Number of minutes|The length in minutes|Minutes to wait]",
            number,
        )
    ],
    [
        "[Set a timer for {0} minutes.|Please set a timer for {0} minutes.|Wake me up in {0} minutes.|Start a timer for"
        " {0} minutes.]"
    ],
    lambda rng, a: {"status": rng.choice(["ok", "started", "done"])},
    ["[The timer is set for {0} minutes.|Done. The timer will ring in {0} minutes.]"],
    "a timer for {0} minutes",
)
define(
    "search search_web web_search find lookup",
    "[Search the web|Search for information|Find pages about a topic]",
    [(("query", "query", "q", "text", "topic"), "string", "[What to search for|The search query|Search words]", topic)],
    ["[Search for {0}.|Please search the web for {0}.|Find something about {0}.|Look up {0}.]"],
    lambda rng, a: {
        rng.choice(["results", "count", "hits"]): rng.randint(2, 99),
        rng.choice(["title", "top", "first"]): expand(
            "[All about {t}|The big book of {t}|{t} for beginners|{t}: an introduction]", rng, {"t": a[0]}
        ),
    },
    ['[I found {r0} results. The first one is "{r1}".|There are {r0} results. The top result is "{r1}".]'],
    "pages about {0}",
)
define(
    "send_message send_mail send_text message",
    "[Send a message to a person|Sends a short message|Send a text message]",
    [
        (
            ("to", "name", "recipient", "person"),
            "string",
            "[Who gets the message|Name of the person|The recipient]",
            person,
        ),
        (
            ("text", "message", "body", "content"),
            "string",
            "[The text of the message|What to say|The message]",
            lambda rng: rng.choice(
                [
                    "I am late",
                    "Happy birthday",
                    "Good morning",
                    "See you soon",
                    "Dinner is ready",
                    "I am at home",
                    "Thank you",
                    "Call me later",
                    "Let us meet at the park",
                    "The train is late",
                    "I miss you",
                    "Good luck",
                ]
            ),
        ),
    ],
    ['[Send a message to {0}: {1}.|Tell {0}: {1}.|Please send {0} the message "{1}".|Write to {0}: {1}.]'],
    lambda rng, a: {"status": rng.choice(["sent", "ok", "delivered"])},
    ["[I sent the message to {0}.|Done. {0} will get your message.]"],
    "to send a message to {0}",
)
define(
    "play_music play_song play start_music",
    "[Play music|Play a song of a kind|Start playing music]",
    [
        (
            ("genre", "kind", "style", "genre"),
            "string",
            "[The kind of music|Genre of the music]",
            lambda rng: rng.choice(["jazz", "rock", "pop", "folk", "classical", "piano", "happy", "quiet", "dance"]),
        )
    ],
    ["[Play some {0} music.|Please play {0} music.|I want to hear {0} music.|Put on some {0} music.]"],
    lambda rng, a: {
        "playing": expand(
            "[The {c} {t}|{n}'s song|Under the {c} tree|Dance of the {t}]",
            rng,
            {"c": rng.choice(words.COLORS), "t": rng.choice(words.TOYS), "n": person(rng)},
        )
    },
    ['[Now playing "{r0}".|I am playing "{r0}" for you.]'],
    "some {0} music",
)
define(
    "translate translate_text translate_word",
    "[Translate a word|Translates text to another language]",
    [
        (
            ("text", "text", "word"),
            "string",
            "[The text to translate|What to translate]",
            lambda rng: rng.choice(
                [
                    "hello",
                    "thank you",
                    "good morning",
                    "cat",
                    "dog",
                    "house",
                    "water",
                    "friend",
                    "bread",
                    "apple",
                    "sun",
                ]
            ),
        ),
        (
            ("language", "language", "target", "to"),
            "string",
            "[The target language|Language to translate to]",
            lambda rng: rng.choice(["French", "German", "Spanish", "Italian", "Japanese", "Polish", "Greek"]),
        ),
    ],
    ['[Translate "{0}" to {1}.|How do you say "{0}" in {1}?|What is "{0}" in {1}?|What does "{0}" mean in {1}?]'],
    lambda rng, a: {rng.choice(["translation", "result", "text"]): words.made_up_word(rng)},
    ['["{0}" in {1} is "{r0}".|In {1} you say "{r0}".]'],
    '"{0}" in {1}',
)
define(
    "get_price price stock_price check_price",
    "[Get the price of a product|Look up what something costs|Returns a price]",
    [
        (
            ("item", "product", "name", "item"),
            "string",
            "[The product|Name of the product|What to look up]",
            lambda rng: rng.choice(words.TOYS + words.FOODS),
        )
    ],
    ["[How much does a {0} cost?|What is the price of a {0}?|What does a {0} cost?|Check the price of a {0}.]"],
    lambda rng, a: {"price": rng.randint(1, 90), "currency": rng.choice(["EUR", "USD", "euros", "dollars", "coins"])},
    ["[A {0} costs {r0} {r1}.|The price of a {0} is {r0} {r1}.]"],
    "the price of a {0}",
)
define(
    "set_light turn_light lights switch_light",
    "[Switch the light in a room|Turn a light on or off|Control the lights]",
    [
        (
            ("room", "room", "place"),
            "string",
            "[The room|Name of the room]",
            lambda rng: rng.choice(["kitchen", "bedroom", "garden", "hall", "bathroom", "garage"]),
        ),
        (
            ("on", "on", "state"),
            "boolean",
            "[True for on, false for off|Whether the light is on]",
            lambda rng: rng.random() < 0.6,
        ),
    ],
    [
        "[Turn {onoff} the light in the {0}.|Switch {onoff} the light in the {0}.|Please turn the {0} light"
        " {onoff}.|Lights {onoff} in the {0}.]"
    ],
    lambda rng, a: {"status": "ok"},
    ["[The light in the {0} is {onoff} now.|Done. The {0} light is {onoff}.]"],
    "the light in the {0} to be {onoff}",
)
define(
    "get_capital capital_of find_capital",
    "[Get the capital of a country|Returns the capital city of a country]",
    [
        (
            ("country", "country", "name"),
            "string",
            "[The country|Name of the country]",
            lambda rng: rng.choice(list(words.CAPITALS)),
        )
    ],
    ["[What is the capital of {0}?|Look up the capital of {0}.|Which city is the capital of {0}?]"],
    lambda rng, a: {"capital": words.CAPITALS[a[0]]},
    ["[The capital of {0} is {r0}.|It is {r0}.]"],
    "the capital of {0}",
)
define(
    "add_task create_task add_todo remind_me",
    "[Add a task to the list|Create a new task|Remember something for the user]",
    [
        (
            ("title", "task", "text", "title"),
            "string",
            "[What to do|The task|Title of the task]",
            lambda rng: expand(
                "[buy|get] {t}|feed the {a}|call {n}|clean the {c} {t1}|read a book|water the flowers|[visit|write"
                " to] {n}".join("[]"),
                rng,
                {
                    "t": rng.choice(["milk", "bread", "eggs", "apples", "cheese"]),
                    "a": rng.choice(words.ANIMALS[:8]),
                    "n": person(rng),
                    "c": rng.choice(words.COLORS),
                    "t1": rng.choice(words.TOYS),
                },
            ),
        )
    ],
    ['[Add a task: {0}.|Remind me to {0}.|Put "{0}" on my list.|Please remember: {0}.]'],
    lambda rng, a: {"id": rng.randint(1, 99), "status": rng.choice(["ok", "added", "created"])},
    ['[I added "{0}" to your list.|Done. The task "{0}" has the number {r0}.]'],
    'to add the task "{0}"',
)
define(
    "roll_dice roll throw_dice random_number",
    "[Roll dice|Roll a die with some sides|Get a random number]",
    [
        (
            ("sides", "sides", "max"),
            "integer",
            "[Number of sides|The largest number]",
            lambda rng: rng.choice([6, 6, 8, 10, 12, 20, 100]),
        )
    ],
    ["[Roll a die with {0} sides.|Throw a die with {0} sides.|Give me a random number up to {0}.]"],
    lambda rng, a: {"value": rng.randint(1, a[0])},
    ["[You rolled a {r0}.|The number is {r0}.]"],
    "a random number up to {0}",
)


def instance(rng, base):
    """One way to offer a tool: -> base, its name, parameter names and the JSON given to the template."""
    name = (
        rng.choice(base["names"])
        if rng.random() < 0.93
        else rng.choice(base["names"]) + rng.choice(["_v2", "_now", "_tool", "_api"])
    )
    properties, names = {}, []
    for options, kind, what, _ in base["parameters"]:
        parameter = rng.choice([o for o in options if o not in names])
        names.append(parameter)
        properties[parameter] = {"type": kind if isinstance(kind, str) else rng.choice(kind)}
        if rng.random() < 0.75:
            properties[parameter]["description"] = expand(what, rng)
    function = {
        "name": name,
        "description": expand(base["description"], rng) + rng.choice(["", "", "."]),
        "parameters": {"type": "object", "properties": properties, "required": list(names)},
    }
    if rng.random() < 0.15:
        del function["parameters"]["required"]
    return {
        "base": base,
        "name": name,
        "parameters": names,
        "json": {"type": "function", "function": function} if rng.random() < 0.85 else function,
    }


def use(rng, offered):
    """One question for a tool -> question, call, result, values for the wordings."""
    base = offered["base"]
    arguments = [generate(rng) for *_, generate in base["parameters"]]
    while base["names"][0] == "add" and arithmetic.held_out(*arguments):
        arguments = [generate(rng) for *_, generate in base["parameters"]]
    values = {str(i): a for i, a in enumerate(arguments)}
    values["onoff"] = "on" if arguments[-1] is True else "off"
    result = base["result"](rng, arguments)
    values.update({f"r{i}": v for i, v in enumerate(result.values())})
    return {
        "ask": expand(rng.choice(base["asks"]), rng, values),
        "call": (offered["name"], dict(zip(offered["parameters"], arguments))),
        "result": result,
        "aim": expand(base["aim"], rng, values),
        "answer": expand(rng.choice(base["answers"]), rng, values),
    }


def outcome(rng, made):
    return tool(made["result"] if rng.random() < 0.85 else ", ".join(f"{k}: {v}" for k, v in made["result"].items()))


def turn(rng, offered, messages, plain):
    """Appends one exchange with a tool."""
    made = use(rng, offered)
    name = offered["name"]
    thought = expand(
        "The user [wants|asks for|wants to know] {aim}. I [will|can|should] call [{name}|the function"
        " {name}|`{name}`].",
        rng,
        {"aim": made["aim"], "name": name},
    )
    if made["aim"].startswith("to "):
        thought = thought.replace("asks for to", "wants to").replace("wants to know to", "wants to")
    lead = rng.choice([""] * 8 + ["I will do that now.", "Let me check.", "One moment."])
    if rng.random() < 0.06:  # the tool fails
        error = rng.choice(["not found", "timeout", "service not available"])
        messages += [
            user(made["ask"]),
            assistant(lead, "" if plain else thought, [made["call"]]),
            tool({"error": error}),
            assistant(
                f"Sorry, that did not work. The tool says: {error}.",
                "" if plain else "The tool gave an error. I tell the user.",
            ),
        ]
        return
    after = expand(
        "[The tool gave a result.|I have the result now.|Now I can answer.|The result is there.] {answer}", rng, made
    )
    messages += [
        user(made["ask"]),
        assistant(lead, "" if plain else thought, [made["call"]]),
        outcome(rng, made),
        assistant(made["answer"], "" if plain else after),
    ]


def both(rng, offered, messages, plain):
    """Two calls of one function in one turn."""
    first, second = use(rng, offered), use(rng, offered)
    if first["call"] == second["call"]:
        return turn(rng, offered, messages, plain)
    ask = expand("{a} [And|And also:|Then] {b}", rng, {"a": first["ask"], "b": second["ask"]})
    if offered["base"] is TOOLS[0]:
        city = [next(iter(m["call"][1].values())) for m in (first, second)]
        ask = expand("What is the weather in {a} and in {b}?", rng, {"a": city[0], "b": city[1]})
    thought = expand(
        "The user asks two things: {a} and {b}. I will call {name} twice.",
        rng,
        {"a": first["aim"], "b": second["aim"], "name": offered["name"]},
    )
    answer = first["answer"] + " " + second["answer"]
    messages += [
        user(ask),
        assistant("", "" if plain else thought, [first["call"], second["call"]]),
        outcome(rng, first),
        outcome(rng, second),
        assistant(answer, "" if plain else "I have both results. " + answer),
    ]


def document(rng):
    bases = rng.sample(TOOLS, rng.choice((1, 1, 2, 2, 3, 4)))
    if rng.random() < 0.35 and TOOLS[0] not in bases:
        bases[0] = TOOLS[0]
        rng.shuffle(bases)
    offered = [instance(rng, base) for base in bases]
    if len({o["name"] for o in offered}) < len(offered):
        offered = offered[:1]
    specification = [o["json"] for o in offered]
    messages = [{"role": "system", "content": rng.choice(chat.SYSTEM)}] if rng.random() < 0.25 else []
    plain = rng.random() < 0.15
    if rng.random() < 0.2:  # a question before that needs no tool
        ask, _, answer = rng.choice((chat.sums, chat.fact, chat.talk))(rng)
        if "no tool" not in answer and not any(
            o["base"]["names"][0] in ("add", "multiply", "get_capital") for o in offered
        ):
            messages += [user(ask), assistant(answer)]
    kind = rng.random()
    if kind < 0.12:
        names = [o["base"]["names"][0] for o in offered]
        ask, thought, answer = rng.choice((chat.fact, chat.talk, chat.wordplay))(rng)
        if not ("get_capital" in names and "capital" in ask or "What is the weather" in ask or "What time" in ask):
            thought = "" if plain else thought + rng.choice([" I need no tool for this.", " No tool is needed."])
            return conversation(messages + [user(ask), assistant(answer, thought)], specification)
    if kind < 0.24:
        both(rng, rng.choice(offered), messages, plain)
    else:
        turn(rng, rng.choice(offered), messages, plain)
        if rng.random() < 0.2:
            turn(rng, rng.choice(offered), messages, plain)
    cut = rng.random() < 0.25 and messages[-1]["role"] == "assistant"
    return conversation(
        messages[:-2] if cut and messages[-2]["role"] == "tool" and messages[-3]["role"] != "tool" else messages,
        specification,
    )
