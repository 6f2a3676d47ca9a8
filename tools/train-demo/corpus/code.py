# SPDX-License-Identifier: Apache-2.0
"""Small Python functions: source, what they do in words, and calls whose results were computed by running them."""

import re

from . import words
from .arithmetic import held_out
from .grammar import expand

# name | parameters | what it does | body with ; for a new line | kinds of example arguments
# Parameters in capital letters are renamed at random: N number, A B numbers, S text, L list of numbers.
TABLE = r"""
add|A, B|returns the sum of two numbers|return A + B|(num, num)
subtract|A, B|returns the difference of two numbers|return A - B|(num, num)
multiply|A, B|returns the product of two numbers|return A * B|(small, small)
square|N|returns the square of a number|return N * N|(small,)
cube|N|returns the cube of a number|return N * N * N|(tiny,)
double|N|returns twice a number|return 2 * N|(num,)
half|N|returns half of an even number|return N // 2|(even,)
is_even|N|checks if a number is even|return N % 2 == 0|(num,)
is_odd|N|checks if a number is odd|return N % 2 == 1|(num,)
is_positive|N|checks if a number is positive|return N > 0|(num,)
maximum|A, B|returns the larger of two numbers|if A > B:;    return A;return B|(num, num)
minimum|A, B|returns the smaller of two numbers|if A < B:;    return A;return B|(num, num)
absolute|N|returns the absolute value of a number|if N < 0:;    return -N;return N|(num,)
factorial|N|returns the factorial of a number|result = 1;for i in range(2, N + 1):;    result = result * i;return result|(tiny,)
factorial|N|returns the factorial of a number|if N <= 1:;    return 1;return N * factorial(N - 1)|(tiny,)
fibonacci|N|returns the n-th Fibonacci number|a, b = 0, 1;for _ in range(N):;    a, b = b, a + b;return a|(small,)
power|A, B|returns a number raised to a power|result = 1;for _ in range(B):;    result = result * A;return result|(tiny, tiny)
sum_to|N|returns the sum of the numbers from 1 to n|total = 0;for i in range(1, N + 1):;    total += i;return total|(small,)
average|L|returns the average of a list of numbers|return sum(L) / len(L)|(evens,)
total|L|returns the sum of a list of numbers|result = 0;for x in L:;    result += x;return result|(numbers,)
largest|L|returns the largest number in a list|best = L[0];for x in L:;    if x > best:;        best = x;return best|(numbers,)
smallest|L|returns the smallest number in a list|best = L[0];for x in L:;    if x < best:;        best = x;return best|(numbers,)
count_even|L|counts the even numbers in a list|count = 0;for x in L:;    if x % 2 == 0:;        count += 1;return count|(numbers,)
only_even|L|returns the even numbers of a list|return [x for x in L if x % 2 == 0]|(numbers,)
squares|L|returns the squares of the numbers in a list|return [x * x for x in L]|(numbers,)
first|L|returns the first item of a list|return L[0]|(numbers,)
last|L|returns the last item of a list|return L[-1]|(numbers,)
reverse_list|L|returns a list in reverse order|return L[::-1]|(numbers,)
sort_list|L|returns a sorted copy of a list|return sorted(L)|(numbers,)
contains|L, N|checks if a list contains a number|return N in L|(numbers, small)
reverse|S|returns a string in reverse order|return S[::-1]|(word,)
shout|S|returns a string in upper case|return S.upper()|(word,)
length|S|returns the number of characters in a string|return len(S)|(word,)
first_letter|S|returns the first letter of a string|return S[0]|(word,)
is_palindrome|S|checks if a string is a palindrome|return S == S[::-1]|(pal,)
count_vowels|S|counts the vowels in a string|count = 0;for letter in S:;    if letter in "aeiou":;        count += 1;return count|(word,)
greet|S|returns a greeting for a name|return "Hello, " + S + "!"|(name,)
repeat|S, N|repeats a string n times|return S * N|(word, tiny)
count_letter|S, LETTER|counts how often a letter is in a string|return S.count(LETTER)|(word, letter)
celsius_to_fahrenheit|C|converts a temperature from Celsius to Fahrenheit|return C * 9 / 5 + 32|(tens,)
minutes_to_seconds|N|converts minutes to seconds|return N * 60|(small,)
area|A, B|returns the area of a rectangle|return A * B|(small, small)
perimeter|A, B|returns the perimeter of a rectangle|return 2 * (A + B)|(small, small)
gcd|A, B|returns the greatest common divisor of two numbers|while B:;    A, B = B, A % B;return A|(num, num)
is_prime|N|checks if a number is prime|if N < 2:;    return False;for i in range(2, N):;    if N % i == 0:;        return False;return True|(num,)
digits_sum|N|returns the sum of the digits of a number|return sum(int(d) for d in str(N))|(num,)
clamp|N, LOW, HIGH|limits a number to a range|return max(LOW, min(N, HIGH))|(num, zero, ten)
swap|A, B|returns two values in swapped order|return B, A|(num, num)
join_words|WORDS|joins a list of words with spaces|return " ".join(WORDS)|(strings,)
longest|WORDS|returns the longest word of a list|return max(WORDS, key=len)|(strings,)
"""
FUNCTIONS = [line.split("|") for line in TABLE.strip().split("\n")]
RENAMES = {
    "A": ["a", "x", "a", "first", "left"],
    "B": ["b", "y", "b", "second", "right"],
    "N": ["n", "x", "number", "value", "n"],
    "S": ["text", "s", "word", "name"],
    "L": ["numbers", "items", "values", "xs"],
    "WORDS": ["words", "names", "words"],
    "LETTER": ["letter", "c"],
    "C": ["celsius", "c", "degrees"],
    "LOW": ["low"],
    "HIGH": ["high"],
}


def argument(rng, kind):
    small_word = lambda: rng.choice(words.TOYS + words.ANIMALS + words.FOODS[:10])
    return {
        "num": lambda: rng.randrange(50),
        "small": lambda: rng.randint(1, 10),
        "tiny": lambda: rng.randint(1, 5),
        "even": lambda: 2 * rng.randrange(30),
        "tens": lambda: 10 * rng.randint(0, 10),
        "zero": lambda: 0,
        "ten": lambda: 10,
        "numbers": lambda: [rng.randrange(10) for _ in range(rng.randint(2, 5))],
        "evens": lambda: [2 * rng.randrange(6) for _ in range(rng.choice((2, 4)))],
        "word": small_word,
        "name": lambda: rng.choice(words.GIRLS + words.BOYS),
        "letter": lambda: rng.choice("aeioutrn"),
        "pal": lambda: rng.choice(["level", "noon", "radar", "kayak", "anna", small_word(), small_word()]),
        "strings": lambda: [small_word() for _ in range(rng.randint(2, 4))],
    }[kind]()


def function(rng, docstring=None):
    """-> {"name", "source", "does", "calls": [(call, result), ...]}; results come from running the source."""
    name, parameters, does, body, example = rng.choice(FUNCTIONS)
    if rng.random() < 0.12 and name not in body:
        name = rng.choice(["my_", "get_", "compute_"]) + name
    same = rng.randrange(4)
    renamed = {}
    for part in parameters.split(", "):
        options = RENAMES[part]
        renamed[part] = options[same % len(options)]
    put = lambda text: re.sub(r"\b[A-Z]+\b(?!\()", lambda m: renamed.get(m.group(), m.group()), text)
    lines = [f"def {name}({put(parameters)}):"]
    if docstring if docstring is not None else rng.random() < 0.45:
        lines.append(
            f'    """{does[0].upper() + does[1:]}."""'.replace("Returns", rng.choice(["Return", "Returns"])).replace(
                "Checks", rng.choice(["Check", "Checks"])
            )
        )
    lines += ["    " + put(line) for line in body.split(";")]
    source = "\n".join(lines)
    scope = {}
    exec(source, scope)  # our own table above, nothing from outside
    calls = []
    for _ in range(2):
        values = [argument(rng, kind) for kind in example.strip("(),").split(", ")]
        while (
            len(values) == 2
            and example == "(num, num)"
            and (held_out(*values) or held_out(abs(values[0] - values[1]), min(values)))
        ):
            values = [argument(rng, "num"), argument(rng, "num")]
        calls.append((f"{name}({', '.join(show(v) for v in values)})", show(scope[name](*values), True)))
    return {"name": name, "source": source, "does": does, "calls": calls}


def show(value, printed=False):
    if isinstance(value, str):
        return value if printed else f'"{value}"'
    return repr(value).replace("'", '"')


def loop(rng):
    """A short script with a loop, and what it prints."""
    kind = rng.randrange(5)
    if kind == 0:
        n = rng.randint(2, 6)
        return f"for i in range({n}):\n    print(i)", [str(i) for i in range(n)]
    if kind == 1:
        items = rng.sample(words.FOODS[:10] + words.ANIMALS[:14], rng.randint(2, 4))
        name = rng.choice(["item", "word", "x"])
        return f"for {name} in {show(items)}:\n    print({name})", items
    if kind == 2:
        a, b = rng.randrange(20), rng.randrange(10)
        return f"a = {a}\nb = {b}\nprint(a + b)", [str(a + b)]
    if kind == 3:
        n = rng.randint(2, 5)
        return f"n = {n}\nwhile n > 0:\n    print(n)\n    n = n - 1", [str(i) for i in range(n, 0, -1)]
    name = rng.choice(words.GIRLS + words.BOYS)
    return f'name = "{name}"\nprint("Hello, " + name + "!")', [f"Hello, {name}!"]


def klass(rng):
    name = rng.choice(["Dog", "Cat", "Robot", "Bird", "Person", "Cow", "Duck"])
    sound = {
        "Dog": "Woof",
        "Cat": "Meow",
        "Robot": "Beep",
        "Bird": "Tweet",
        "Person": "Hello",
        "Cow": "Moo",
        "Duck": "Quack",
    }[name]
    verb = rng.choice(["speak", "say", "talk"])
    variable, who = name.lower(), rng.choice(words.PETS + words.GIRLS + words.BOYS)
    return (
        f"class {name}:\n    def __init__(self, name):\n        self.name = name\n\n    def {verb}(self):\n"
        f'        return self.name + " says {sound}!"\n\n\n{variable} = {name}("{who}")\nprint({variable}.{verb}())  #'
        f" {who} says {sound}!"
    )


def document(rng):
    kind = rng.random()
    if kind < 0.12:
        source, output = loop(rng)
        return source + ("" if rng.random() < 0.4 else "\n# " + "\n# ".join(output))
    if kind < 0.18:
        return klass(rng)
    parts = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        made = function(rng)
        text = made["source"]
        if rng.random() < 0.25:
            text = f"# {made['does'][0].upper() + made['does'][1:]}.\n" + text
        if rng.random() < 0.7:
            text += "\n\n\n" + "\n".join(
                f"print({call})  # {result}" for call, result in made["calls"][: rng.randint(1, 2)]
            )
        parts.append(text)
    return "\n\n\n".join(parts)


def request(rng):
    """-> question, reasoning, answer: someone asks for a function."""
    if rng.random() < 0.12:
        source, output = loop(rng)
        return (
            expand("What does this code print?\n\n```python\n", rng) + source + "\n```",
            "I go through the code line by line.",
            "It prints:\n\n```\n" + "\n".join(output) + "\n```",
        )
    made = function(rng, docstring=rng.random() < 0.3)
    does = made["does"]
    that = {"returns": "that returns", "checks": "that checks"}.get(does.split()[0], "that " + does.split()[0])
    rest = does.split(" ", 1)[1]
    ask = expand(
        "[Write a Python function|Can you write a Python function|Please write a Python function|Write a function in"
        " Python|I need a Python function|Show me a Python function] {that} {rest}",
        rng,
        {"that": that, "rest": rest},
    )
    ask += "?" if ask.startswith("Can") else "."
    call, result = made["calls"][0]
    think = expand(
        "The user wants a Python function {that} {rest}. I [will|can] call it `{name}`.",
        rng,
        {"that": that, "rest": rest, "name": made["name"]},
    )
    answer = "```python\n" + made["source"] + "\n```"
    if rng.random() < 0.6:
        answer += f"\n\nFor example, `{call}` gives `{result}`."
    if rng.random() < 0.5:
        answer = (
            expand(
                "[Here is the function:|Here you are:|Here is a function {that} {rest}:]\n\n",
                rng,
                {"that": that, "rest": rest},
            )
            + answer
        )
    return ask, think, answer
