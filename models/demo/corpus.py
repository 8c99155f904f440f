# SPDX-License-Identifier: Apache-2.0
"""From questions and stories to training documents, and the held-out set.

A document is a list of (text, is_learned) pieces; only learned pieces add to the loss, so the model is not taught to
invent questions. The same question comes in five forms:

    chat      the chat template: <|start_header_id|>user<|end_header_id|> ... <|eot_id|>
    question  "Question: ...\\nAnswer: ..."
    qa        "Q: ...\\nA: ..."
    bare      the question, a space, the answer
    line      the question, a newline, the answer
"""

import functools
import random

import arithmetic
import stories
import talk
import world
import world_questions
from questions import Question, is_held_out

SEED = 20261121
BEGIN, END, EOT = "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"
START_HEADER, END_HEADER = "<|start_header_id|>", "<|end_header_id|>"
SPECIAL_TOKENS = (BEGIN, END, START_HEADER, END_HEADER, EOT)

SYSTEM = ("You are a helpful assistant.", f"You are a guide to the island of {world.ISLAND}.", "You are a friendly demo model.",
          "Answer the question.", "Give short answers.", "You are a teller of stories.")

# Share of questions in training. The held-out set has the same number of each, small talk and stories excepted.
CATEGORIES = {"addition": 20, "subtraction": 20, "word problems": 12, "times table": 5, "facts": 14, "lookups": 5, "portraits": 5,
              "yes or no": 9, "two steps": 7, "unknown": 8, "small talk": 3}
SCORED = tuple(name for name in CATEGORIES if name != "small talk")
SCORED_FORMS = ("chat", "question", "qa", "bare")


@functools.cache
def _world(category: str, held_out: bool) -> tuple[tuple[Question, ...], ...]:
    """All questions of one category on one side of the split; true and false statements apart, so both are asked as often."""
    make = {"facts": world_questions.facts, "lookups": world_questions.lookups,
            "portraits": world_questions.portraits, "yes or no": world_questions.confirmations,
            "two steps": world_questions.chains}[category]
    side = [q for q in make() if is_held_out(q.key) == held_out]
    groups = ([q for q in side if q.answer.startswith("Yes, ")], [q for q in side if not q.answer.startswith("Yes, ")])
    return tuple(tuple(group) for group in groups if group)


def question(category: str, rng: random.Random, held_out: bool) -> Question:
    make = {"addition": arithmetic.addition, "subtraction": arithmetic.subtraction, "word problems": arithmetic.word_problem,
            "times table": arithmetic.product, "unknown": talk.unknown}.get(category)
    if make:
        return make(rng, held_out)
    if category == "small talk":
        return talk.small_talk(rng)
    return rng.choice(rng.choice(_world(category, held_out)))


def header(role: str) -> str:
    return f"{START_HEADER}{role}{END_HEADER}\n\n"


def prompt_of(form: str, text: str) -> str:
    """What a client sends (without the begin-of-text token, which the tokenizer adds)."""
    return {"chat": f"{header('user')}{text}{EOT}{header('assistant')}", "question": f"Question: {text}\nAnswer:",
            "qa": f"Q: {text}\nA:", "bare": text, "line": f"{text}\n"}[form]


def reply_of(form: str, answer: str) -> str:
    """What the model must generate, end token excepted."""
    return answer if form in ("chat", "line") else f" {answer}"


def _careless(text: str, rng: random.Random) -> str:
    """People do not always type capitals and question marks."""
    if rng.random() > 0.12 or "=" in text:
        return text
    return rng.choice((text.lower(), text.rstrip("?."), text.lower().rstrip("?."), text[0].lower() + text[1:]))


def _ask(rng: random.Random) -> tuple[str, str]:
    if rng.random() < 0.12:
        return stories.request(rng)
    category = rng.choices(tuple(CATEGORIES), weights=tuple(CATEGORIES.values()))[0]
    q = question(category, rng, held_out=False)
    return _careless(q.text, rng), q.answer


def document(rng: random.Random) -> list[tuple[str, bool]]:
    kind = rng.random()
    if kind < 0.12:
        return [(BEGIN, False), (stories.story(rng)[0] + END, True)]
    if kind < 0.16:
        return [(BEGIN, False), (world.page(rng) + END, True)]
    if kind < 0.56:
        return _conversation(rng)
    form = rng.choices(("question", "qa", "bare", "line"), weights=(5, 3, 4, 1))[0]
    shots = rng.choices((0, 1, 2, 3), weights=(94, 2, 2, 2))[0] if form in ("question", "qa") else 0
    text, answer = _ask(rng)
    before = BEGIN
    for _ in range(shots):
        shown = _ask(rng)
        before += prompt_of(form, shown[0]) + reply_of(form, shown[1]) + "\n\n"
    prompt, reply = before + prompt_of(form, text), reply_of(form, answer)
    if form != "line" and rng.random() < 0.08:  # a prompt that ends in a space must work as well
        prompt, reply = prompt + " ", reply[1:]
    return [(prompt, False), (reply + END, True)]


def _conversation(rng: random.Random) -> list[tuple[str, bool]]:
    pieces = [(BEGIN, False)]
    if rng.random() < 0.2:
        pieces.append((header("system") + rng.choice(SYSTEM) + EOT, False))
    for _ in range(rng.choices((1, 2, 3, 5, 8), weights=(60, 20, 10, 6, 4))[0]):
        text, answer = _ask(rng)
        pieces += [(prompt_of("chat", text), False), (answer + EOT, True)]
    return pieces


def documents(shard: int):
    """An endless stream; shard i is the same on every machine."""
    rng = random.Random(f"{SEED}/{shard}")
    while True:
        yield document(rng)


def held_out_set(per_category: int) -> list[dict]:
    """Questions from the held-out side, each once, in the four scored forms by turns."""
    rows = []
    for category in SCORED:
        rng = random.Random(f"{SEED}/held-out/{category}")
        seen = set()
        tries = 0
        while len(seen) < per_category and tries < 100 * per_category:
            tries += 1
            q = question(category, rng, held_out=True)
            if q.text in seen:
                continue
            form = SCORED_FORMS[len(seen) % len(SCORED_FORMS)]
            seen.add(q.text)
            rows.append({"category": category, "form": form, "text_input": prompt_of(form, q.text),
                         "expected": reply_of(form, q.answer)})
    return rows
