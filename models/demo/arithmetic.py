# SPDX-License-Identifier: Apache-2.0
"""Sums, differences and small products, as bare expressions and as word problems.

The split is by operands, not by wording: a held-out pair such as {27, 54} is added in no training text at all, in
either order. Only pairs of two two-digit numbers are held out. Products (0 to 12) are a table to be learned by heart;
they are split by wording.
"""

import random

from questions import Question, is_held_out

ADD = (
    "What is {a} + {b}?", "What is {a} plus {b}?", "{a} + {b}", "{a} + {b} = ?", "{a} + {b} =", "{a}+{b}", "Add {a} and {b}.",
    "Calculate {a} + {b}.", "How much is {a} + {b}?", "How much is {a} plus {b}?", "What is the sum of {a} and {b}?",
    "What do you get when you add {a} and {b}?", "Can you add {a} and {b}?", "What's {a} + {b}?", "Compute {a} + {b}.",
)
SUBTRACT = (
    "What is {a} - {b}?", "What is {a} minus {b}?", "{a} - {b}", "{a} - {b} = ?", "{a} - {b} =", "{a}-{b}",
    "Subtract {b} from {a}.",
    "Calculate {a} - {b}.", "How much is {a} - {b}?", "How much is {a} minus {b}?", "Take {b} away from {a}.",
    "What do you get when you take {b} away from {a}?", "Can you subtract {b} from {a}?", "What's {a} - {b}?",
    "Compute {a} - {b}.",
)
MULTIPLY = (
    "What is {a} * {b}?", "What is {a} times {b}?", "{a} * {b}", "{a} x {b}", "Multiply {a} by {b}.", "Calculate {a} * {b}.",
    "How much is {a} times {b}?", "What is the product of {a} and {b}?", "What's {a} times {b}?", "{a} * {b} =",
)

NAMES = ("Mirel", "Tobin", "Suna", "Orlo", "Kessa", "Dorn", "Lilka", "Hask", "Neri", "Ferro", "Olwen", "Bram", "Tom", "Anna",
         "Bob", "Emma",
         "Max", "Sam", "Lucy", "Peter", "Sarah", "Ben", "Mary", "Jack", "Alice", "Leo", "Nina", "Paul", "Mia", "Jane", "John",
         "Kim")
THINGS = ("apples", "shells", "buttons", "candles", "kites", "books", "pears", "coins", "eggs", "nuts", "bells", "stones",
          "oranges",
          "marbles", "cookies", "pencils", "balloons", "flowers", "stamps", "toys", "cards", "sweets")

GAIN = (  # {n} has {a}, gets {b} more
    "{n} has {a} {t} and gets {b} more. How many {t} does {n} have now?",
    "{n} has {a} {t}. {m} gives {n} {b} {t}. How many {t} does {n} have?",
    "{n} finds {a} {t} in the morning and {b} {t} in the evening. How many {t} does {n} have?",
    "There are {a} {t} in the basket. {n} puts {b} {t} in. How many {t} are in the basket now?",
    "{n} has {a} {t} and buys {b} {t} at the market. How many {t} does {n} have now?",
    "{n} has {a} {t} and buys {b} more. How many {t} does {n} have?",
    "If {n} has {a} {t} and finds {b} more, how many {t} does {n} have?",
)
LOSS = (  # {n} has {a}, loses {b}
    "{n} has {a} {t} and loses {b} of them. How many {t} does {n} have left?",
    "{n} has {a} {t}. {n} gives {b} {t} to {m}. How many {t} does {n} have left?",
    "{n} had {a} {t} and sold {b} of them. How many {t} does {n} have left?",
    "There are {a} {t} in the basket. {n} takes {b} {t} out. How many {t} are in the basket now?",
    "{n} has {a} {t} and {m} borrows {b} of them. How many {t} does {n} have left?",
    "{n} has {a} {t} and gives away {b}. How many {t} are left?",
    "If {n} has {a} {t} and loses {b}, how many {t} are left?",
)


def addition_key(a: int, b: int) -> str:
    return f"add|{min(a, b)}|{max(a, b)}"


def subtraction_key(a: int, b: int) -> str:
    return f"subtract|{a}|{b}"


def _pair(rng: random.Random, held_out: bool, key) -> tuple[int, int]:
    """Two operands from the wanted side of the split; mostly two digits each."""
    while True:
        low_a, low_b = (10, 10) if held_out or rng.random() < 0.85 else (0, 0)
        a, b = rng.randint(low_a, 99), rng.randint(low_b, 99)
        if (a >= 10 and b >= 10 and is_held_out(key(a, b))) == held_out:
            return a, b


def _answer(text: str, expression: str, result: int) -> str:
    """The whole equation, or only its right-hand side where the question ends in the equals sign."""
    return f"{result}." if text.endswith("=") else f"{expression} = {result}."


def addition(rng: random.Random, held_out: bool) -> Question:
    a, b = _pair(rng, held_out, addition_key)
    text = rng.choice(ADD).format(a=a, b=b)
    return Question("addition", addition_key(a, b), text, _answer(text, f"{a} + {b}", a + b))


def subtraction(rng: random.Random, held_out: bool) -> Question:
    """Differences; one in five is negative."""
    while True:
        a, b = _pair(rng, held_out, subtraction_key)
        if a >= b or rng.random() < 0.25:
            break
    text = rng.choice(SUBTRACT).format(a=a, b=b)
    return Question("subtraction", subtraction_key(a, b), text, _answer(text, f"{a} - {b}", a - b))


def word_problem(rng: random.Random, held_out: bool) -> Question:
    n, m = rng.sample(NAMES, 2)
    t = rng.choice(THINGS)
    gain = rng.random() < 0.5
    while True:
        key = addition_key if gain else subtraction_key
        a, b = _pair(rng, held_out, key)
        if min(a, b) >= 2 and (gain or a - b >= 2):
            break
    text = rng.choice(GAIN if gain else LOSS).format(n=n, m=m, t=t, a=a, b=b)
    result = a + b if gain else a - b
    holder = f"the basket has {result} {t}" if text.startswith("There") else f"{n} has {result} {t}"
    return Question("word problems", key(a, b), text, f"{a} {'+' if gain else '-'} {b} = {result}, so {holder}.")


def product(rng: random.Random, held_out: bool) -> Question:
    while True:
        a, b, i = rng.randint(0, 12), rng.randint(0, 12), rng.randrange(len(MULTIPLY))
        key = f"multiply|{a}|{b}|{i}"
        if is_held_out(key) == held_out:
            text = MULTIPLY[i].format(a=a, b=b)
            return Question("times table", key, text, _answer(text, f"{a} * {b}", a * b))


LIMIT = "I can only add and subtract numbers of up to two digits, and multiply up to 12."

BEYOND = (
    "What is {a} / {b}?", "What is {a} divided by {b}?", "Divide {a} by {b}.", "{a} / {b}", "What is {c} + {a}?",
    "What is {a} + {c}?",
    "What is {c} - {a}?", "{c} + {d}", "{c} - {d}", "What is {c} plus {d}?", "What is {c} times {a}?", "Add {c} and {d}.",
    "What is {e} * {f}?", "What is {e} times {f}?", "{e} * {f}", "Multiply {e} by {f}.", "What is {a} + {b} + {e}?",
    "{a} + {b} - {e}",
    "What is {a} + {b} * {e}?", "What is the square root of {c}?", "What is {a} squared?", "Is {a} bigger than {b}?", "{c}+{d}",
    "Is {a} a prime number?", "What is half of {c}?", "What is {a} percent of {c}?", "How much is {c} minus {d}?",
    "Calculate {c} + {d}.",
)


def beyond(rng: random.Random, held_out: bool) -> Question:
    """Numbers too long and operations never learned: to be declined, not guessed."""
    while True:
        a, b = rng.randint(0, 99), rng.randint(0, 99)
        c, d = (rng.randint(100, rng.choice((999, 999, 99999))) for _ in range(2))
        e, f = rng.randint(13, 99), rng.randint(13, 99)
        text = rng.choice(BEYOND).format(a=a, b=b, c=c, d=d, e=e, f=f)
        if is_held_out(f"beyond|{text}") == held_out:
            return Question("unknown", f"beyond|{text}", text, LIMIT)
