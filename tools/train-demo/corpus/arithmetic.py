# SPDX-License-Identifier: Apache-2.0
"""Small sums, as plain lines, as sentences and as word problems.

One pair in twenty is held out of every sum a + b and a - b, so that a test can tell computing from recall.
"""

from . import words
from .grammar import expand


def held_out(a, b):
    """True for the unordered pairs of two-digit sums that training never shows."""
    low, high = sorted((a, b))
    return low >= 10 and (low * 7919 + high * 104729) % 20 == 0


def operands(rng, operator):
    """-> a, b, result; results are whole numbers and never negative."""
    while True:
        if operator == "*":
            a, b = rng.randint(0, 12), rng.randint(0, 12)
            return a, b, a * b
        if operator == "/":
            b, result = rng.randint(1, 12), rng.randint(0, 12)
            return b * result, b, result
        limit = rng.choice((10, 20, 100, 100))
        a, b = rng.randrange(limit), rng.randrange(rng.choice((10, limit)))
        if rng.random() < 0.5:
            a, b = b, a
        if operator == "-" and a < b:
            a, b = b, a
        if not held_out(a, b) and not (operator == "-" and held_out(a - b, b)):
            return a, b, a + b if operator == "+" else a - b


def draw(rng):
    operator = rng.choice("+++++--**/")
    return (operator, *operands(rng, operator))


SPOKEN = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}
SYMBOL = {"+": ("+",), "-": ("-",), "*": ("*", "*", "x"), "/": ("/",)}


def line(rng):
    operator, a, b, result = draw(rng)
    style = rng.random()
    sign = rng.choice(SYMBOL[operator])
    if style < 0.62:
        return f"{a} {sign} {b} = {result}"
    if style < 0.72:
        return f"{a}{sign}{b}={result}"
    if style < 0.84:
        return f"{a} {SPOKEN[operator]} {b} is {result}."
    if style < 0.90 and max(a, b, result) <= 20:
        return f"{words.NUMBERS[a]} {SPOKEN[operator]} {words.NUMBERS[b]} is {words.NUMBERS[result]}.".capitalize()
    if style < 0.95:
        return f"{result} = {a} {sign} {b}"
    c = rng.randrange(10)
    if operator == "+" and result + c < 100:
        return f"{a} + {b} + {c} = {result + c}"
    return f"{a} {sign} {b} = {result}"


def question(rng):
    operator, a, b, result = draw(rng)
    return expand(f"[Question|Q]: What is [{a} {SPOKEN[operator]} {b}|{a} {operator} {b}]?\n[Answer|A]: {result}", rng)


def sequence(rng):
    step = rng.choice((1, 1, 2, 3, 5, 10))
    first = rng.choice((0, 1, step, rng.randrange(30)))
    numbers = [first + step * i for i in range(rng.randint(6, 14))]
    numbers = [n for n in numbers if n <= 120]
    if rng.random() < 0.25:
        numbers.reverse()
    head = rng.choice(["", "", f"Count by {step}: " if numbers[0] < numbers[-1] and step > 1 else "", "Numbers: "])
    return head + ", ".join(map(str, numbers))


def compare(rng):
    a, b = rng.randrange(100), rng.randrange(100)
    if a == b:
        return f"{a} is the same as {b}."
    word = "more" if a > b else "less"
    sign = ">" if a > b else "<"
    return rng.choice(
        [
            f"{a} is {word} than {b}.",
            f"{a} {sign} {b}",
            f"{max(a, b)} is bigger than {min(a, b)}.",
            f"{min(a, b)} is smaller than {max(a, b)}.",
        ]
    )


def problem(rng):
    """-> question, working, answer: a word problem with one step."""
    name, other = rng.sample(words.GIRLS + words.BOYS, 2)
    he = "She" if name in words.GIRLS else "He"
    things = rng.choice(words.PLURALS)
    operator = rng.choice("++--*")
    if operator == "*":
        a, b = rng.randint(2, 9), rng.randint(2, 9)
        result = a * b
        text = rng.choice(
            [
                f"{name} has {a} boxes. There are {b} {things} in each box. How many {things} does {name} have?",
                f"There are {a} bags with {b} {things} each. How many {things} are there?",
                f"{name} buys {b} {things} every day for {a} days. How many {things} does {name} buy?",
            ]
        )
        return (
            text,
            f"{a} * {b} = {result}",
            (
                f"There are {result} {things}."
                if text.startswith("There")
                else f"{name} buys {result} {things}." if " buys " in text else f"{name} has {result} {things}."
            ),
        )
    a, b = rng.randint(2, 30), rng.randint(2, 20)
    if operator == "+":
        if held_out(a, b):
            return problem(rng)
        result = a + b
        text = rng.choice(
            [
                f"{name} has {a} {things}. {other} gives {name} {b} more. How many {things} does {name} have now?",
                f"{name} has {a} {things}, and {other} has {b} {things}. How many {things} do they have together?",
                (
                    f"{name} finds {a} {things} in the morning and {b} {things} in the evening. How many {things} does"
                    f" {name} find?"
                ),
            ]
        )
        answer = (
            f"They have {result} {things} together."
            if "together" in text
            else f"{name} finds {result} {things}." if " finds " in text else f"{name} has {result} {things} now."
        )
        return text, f"{a} + {b} = {result}", answer
    if a < b:
        a, b = b, a
    if held_out(a - b, b):
        return problem(rng)
    result = a - b
    text = rng.choice(
        [
            f"{name} has {a} {things}. {he} gives {b} {things} to {other}. How many {things} does {name} have left?",
            f"There are {a} {things} on the table. {name} takes {b} of them. How many {things} are left?",
            f"{name} had {a} {things} and lost {b}. How many {things} does {name} have now?",
        ]
    )
    answer = (
        f"There are {result} {things} left."
        if text.startswith("There")
        else f"{name} has {result} {things} left." if "left?" in text else f"{name} has {result} {things} now."
    )
    return text, f"{a} - {b} = {result}", answer


def worked(operator, a, b, result):
    """The way to a two-digit sum, step by step."""
    tens, ones = a // 10 * 10 + b // 10 * 10, a % 10 + b % 10
    if operator == "+" and a >= 10 and b >= 10:
        return (
            f"{a // 10 * 10} + {b // 10 * 10} = {tens} and {a % 10} + {b % 10} = {ones}, so {tens} + {ones} = {result}"
        )
    return f"{a} {operator} {b} = {result}"


def document(rng):
    kind = rng.random()
    if kind < 0.34:
        return line(rng)
    if kind < 0.62:
        return "\n".join(line(rng) for _ in range(rng.randint(3, 24)))
    if kind < 0.72:
        return rng.choice(["\n", "\n\n"]).join(question(rng) for _ in range(rng.randint(1, 5)))
    if kind < 0.80:
        return sequence(rng)
    if kind < 0.86:
        return "\n".join(compare(rng) for _ in range(rng.randint(1, 6)))
    text, working, answer = problem(rng)
    if rng.random() < 0.5:
        return f"{text}\n{working}\n{answer}"
    return f"Question: {text}\nAnswer: {working}. {answer}"
