# SPDX-License-Identifier: Apache-2.0
"""Small English stories: one cast, one plot, many ways to say it; names and things stay the same throughout."""

from . import words
from .grammar import expand
from .plots import PLOTS

TOPICS = list(PLOTS)
ADULTS = [("mom", "she"), ("dad", "he"), ("grandma", "she"), ("grandpa", "he"), ("aunt", "she"), ("uncle", "he")]
PRONOUNS = {"she": ("she", "her", "her"), "he": ("he", "him", "his")}

OPENINGS = (
    (
        "[Once upon a time, there was|Once upon a time, there was|One day, there was|Once there was|There once was|Long"
        " ago, there was] a {hk} named {h}. "
    ),
    (
        "[Once upon a time, in a {size} {home}, there lived|Once upon a time, there lived|In a {size} {home}, there"
        " lived] a {hk} named {h}. "
    ),
    "[There was|There was once|In a {size} {home} lived] a {hk} named {h}. ",
    "A {hk} named {h} lived [near {place0}|in a {size} {home}]. ",
    "{h} was a {hk} who lived [in a {size} {home}|near {place0}|with {his} {a}]. ",
    "Once upon a time, a {hk} named {h} lived [near {place0}|in a {size} {home}]. ",
    "[This is the story of|Let me tell you about] {h}, a {hk}. ",
)
TRAITS = (
    "{He} [loved|liked] to {hobby}. ",
    "{h} [loved|liked] to {hobby} more than anything. ",
    "Every day, {he} liked to {hobby}. ",
    "{He} was [kind|brave|curious|cheerful|clever|quiet|always happy|very friendly]. ",
    "",
)
CLOSINGS = (
    "",
    "",
    "",
    " The end.",
    " And they lived happily ever after.",
    " And that was a good day.",
    " What a day it was!",
)


def cast(rng, human=False, name=None, kind=None):
    """One character: name, what it is, pronouns. `kind` is girl, boy or an animal."""
    kind = kind or rng.choice(["girl", "boy"] if human or rng.random() < 0.62 else words.ANIMALS)
    if kind == "girl":
        gender, pool = "she", words.GIRLS
    elif kind == "boy":
        gender, pool = "he", words.BOYS
    else:
        gender, pool = rng.choice(["she", "he"]), words.PETS
    size = rng.choice(
        ["little", "small", "young", "little"] if rng.random() < 0.8 else ["clever", "kind", "happy", "brave", "tiny"]
    )
    if name is None:
        name = rng.choice(pool) if rng.random() < 0.97 else words.made_up_word(rng).capitalize()
    return {"name": name, "kind": kind, "gender": gender, "text": f"{size} {kind}"}


def setting(rng, hero, friend):
    """Every variable a template may use."""
    he, him, his = PRONOUNS[hero["gender"]]
    fe, fim, fis = PRONOUNS[friend["gender"]]
    adult, ae = rng.choice(ADULTS)
    place, place0 = rng.sample(words.PLACES, 2)
    food, food2 = rng.sample(words.FOODS, 2)
    color = rng.choice(words.COLORS)
    return {
        "h": hero["name"],
        "hk": hero["text"],
        "he": he,
        "him": him,
        "his": his,
        "He": he.capitalize(),
        "His": his.capitalize(),
        "himself": "herself" if he == "she" else "himself",
        "f": friend["name"],
        "fk": friend["text"],
        "fe": fe,
        "fim": fim,
        "fis": fis,
        "Fe": fe.capitalize(),
        "a": adult,
        "aword": adult,
        "ae": ae,
        "Ae": ae.capitalize(),
        "a_him": PRONOUNS[ae][1],
        "a_his": PRONOUNS[ae][2],
        "thing": rng.choice(words.TOYS),
        "color": color,
        "ccolor": rng.choice(["black", "white", "gray", "orange"]),
        "bcolor": rng.choice(words.COLORS[:6]),
        "food": food,
        "food2": food2,
        "place": place,
        "place0": place0,
        "atplace": words.at(place),
        "spot": rng.choice(words.SPOTS),
        "animal": rng.choice([a for a in words.ANIMALS if a not in (hero["kind"], friend["kind"])]),
        "flower": rng.choice(words.FLOWERS),
        "n": rng.choice(words.NUMBERS[3:13]),
        "weather": rng.choice(words.WEATHER[:4] + ["warm"]),
        "season": rng.choice(words.SEASONS[:3]),
        "cake": rng.choice(["cake", "pie", "loaf of bread", "pizza"]),
        "skill": rng.choice(
            [
                "swim",
                "whistle",
                "ride a bike",
                "read",
                "skate",
                "juggle",
                "write {his} name",
                "jump rope",
                "paint",
                "cook",
            ]
        ),
        "instrument": rng.choice(["drum", "flute", "violin", "trumpet", "guitar", "horn"]),
        "metal": rng.choice(["tin", "silver", "old cans"]),
        "virtue": rng.choice(["brave", "wise", "strong", "kind"]),
        "size": rng.choice(["small", "little", "big", "quiet", "old"]),
        "home": rng.choice(
            ["village", "house", "town", "house by the sea", "house in the forest", "house near a farm"]
        ),
        "hobby": rng.choice(words.HOBBIES),
    }


def story(rng, topic=None, hero=None):
    """-> {"text", "plan", "topic", "hero", "kind"}; the text has three or four paragraphs."""
    topic = topic or rng.choice(TOPICS)
    plot = PLOTS[topic]
    hero = hero or cast(rng, plot["human"])
    friend = hero
    while friend["name"] == hero["name"] or friend["kind"] == hero["kind"] and hero["kind"] not in ("girl", "boy"):
        friend = cast(rng)
    values = setting(rng, hero, friend)
    first, *rest = plot["paragraphs"]
    opening = expand(rng.choice(OPENINGS) + rng.choice(TRAITS), rng, values)
    parts = [opening.rstrip()] if rng.random() < 0.5 else []
    parts += [("" if parts else opening) + expand(first, rng, values)]
    parts += [expand(part, rng, values) for part in rest]
    parts[-1] += rng.choice(CLOSINGS)
    return {
        "text": "\n\n".join(parts),
        "plan": expand(plot["plan"], rng, values),
        "topic": expand(topic, rng, values),
        "hero": hero["name"],
        "kind": hero["kind"],
    }


def document(rng):
    made = story(rng)
    if rng.random() < 0.15:
        return expand("[Title|Story]: [A story about {topic}|{hero} and {topic}]\n\n", rng, made) + made["text"]
    return made["text"]
