# SPDX-License-Identifier: Apache-2.0
"""Short plain texts: facts, introductions, letters, lists; for prompts that are neither story nor chat."""

from . import chat, stories, words
from .grammar import expand

INTRODUCTION = (
    "[Hello, my name is|Hello! My name is|Hi, I am|My name is|I am] {h}. [I am a {hk}.|I am {n} years old.|I live in"
    " {city}.|I live near {place}.] [I like to {do}|I love to {do}|Every day I {do}]. [My favorite color is {color}.|I"
    " have a {color} {thing}.|My best friend is {f}.|I like {many}.] [What is your name?|Nice to meet you!|I am happy"
    " to be here.|]"
)
LETTER = (
    "Dear {f},\n\n[how are you?|thank you for your letter.|I hope that you are well.] [I am fine.|I am very well.|It is"
    " {weather} here.] [Yesterday I went to {place} and found a {color} {thing}.|I got a {color} {thing} from my {a}.|I"
    " have a new friend, a {fk}.] [I like it very much.|It made me very happy.|] [Please write back soon.|I hope to see"
    " you soon.|Come and visit me in {season}.]\n\n[Love,|Your friend,]\n{h}"
)
SCENE = (
    "[It was a {weather} morning.|The sun was shining.|It was a quiet evening.|The wind was cold.|The sky was gray.] [A"
    " {animal} sat {atplace}.|{h} looked out of the window.|The birds were singing.] [Somebody was waiting for a"
    " friend.|A {color} {thing} lay in the grass.|Everything smelled of {flower}s.] [Then it began to rain.|What a"
    " beautiful day!|Nobody made a sound.|Far away, a bell rang.]"
)
LIKES = (
    "[I like|I love] {many}, but I do not like {many2}. [They are not for me.|My friend {f} eats them every"
    " day.|{color} is my favorite color.]"
)
SAYINGS = (
    "The quick brown fox jumps over the lazy dog.",
    "An apple a day keeps the doctor away.",
    "All that glitters is not gold.",
    "A friend in need is a friend indeed.",
    "The early bird catches the worm.",
    "Practice makes perfect.",
    "Better late than never.",
    "Two heads are better than one.",
    "Rome was not built in a day.",
    "Every cloud has a silver lining.",
    "Where there is a will, there is a way.",
    "Look before you leap.",
    "Honesty is the best policy.",
    "Good things come to those who wait.",
)


def document(rng):
    kind = rng.random()
    if kind < 0.35:
        facts = [chat.fact(rng) for _ in range(rng.randint(1, 5))]
        if rng.random() < 0.3:
            return "\n\n".join(f"Question: {ask}\nAnswer: {answer}" for ask, _, answer in facts)
        return (
            rng.choice(["\n", " "]).join(
                thought.removeprefix("I know this. ").removeprefix("This is easy. ")
                for _, thought, _ in facts
                if "user asks" not in thought
            )
            or "The sky is blue."
        )
    if kind < 0.42:
        return rng.choice(SAYINGS)
    if kind < 0.47:
        return rng.choice(
            [
                ", ".join(words.DAYS),
                ", ".join(words.MONTHS),
                " ".join("abcdefghijklmnopqrstuvwxyz"),
                " ".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
                ", ".join(words.NUMBERS[1:11]),
                ", ".join(words.SEASONS),
            ]
        )
    hero, friend = stories.cast(rng, True), stories.cast(rng)
    values = stories.setting(rng, hero, friend)
    values["many"], values["many2"] = rng.sample(words.PLURALS, 2)
    values.update(city=rng.choice(words.CITIES), do=rng.choice([h for h in words.HOBBIES if "{" not in h]))
    return expand(rng.choice((INTRODUCTION, INTRODUCTION, LETTER, SCENE, LIKES)), rng, values)
