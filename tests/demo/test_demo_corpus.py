# SPDX-License-Identifier: Apache-2.0
"""The demo model's card says what was held out of its training; the scripts that made the text must agree."""

import itertools
import json
import pathlib
import re
import sys

DEMO = pathlib.Path(__file__).resolve().parents[2] / "models/demo"
sys.path.insert(0, str(DEMO))

import corpus  # noqa: E402
import questions  # noqa: E402

NUM_DOCUMENTS = 20_000


def heldout_rows() -> list[dict]:
    return [json.loads(line) for line in (DEMO / "heldout.jsonl").read_text().splitlines()]


def training_texts() -> list[list[tuple[str, bool]]]:
    return list(itertools.islice(corpus.documents(shard=0), NUM_DOCUMENTS))


def test_committed_questions_are_those_the_scripts_make():
    made = [{**row, "max_tokens": 60} for row in corpus.held_out_set(25)]
    assert made == heldout_rows()


def test_held_out_prompts_are_in_no_training_document():
    prompts = {text.removeprefix(corpus.BEGIN) for document in training_texts() for text, _ in document}
    assert len(prompts) > NUM_DOCUMENTS / 2
    assert not [row["text_input"] for row in heldout_rows() if row["text_input"] in prompts]


def test_held_out_operands_are_added_and_subtracted_in_no_training_document():
    seen = 0
    for document in training_texts():
        for text, _ in document:
            for a, sign, b, result in re.findall(r"\b(\d+) ([+-]) (\d+) = (-?\d+)", text):
                a, b = int(a), int(b)
                assert int(result) == (a + b if sign == "+" else a - b), text
                key = f"add|{min(a, b)}|{max(a, b)}" if sign == "+" else f"subtract|{a}|{b}"
                assert min(a, b) < 10 or not questions.is_held_out(key), text
                seen += 1
    assert seen > NUM_DOCUMENTS / 4


def test_expected_sums_are_right():
    equations = [re.findall(r"(\d+) ([-+*]) (\d+) = (-?\d+)", row["expected"]) for row in heldout_rows()]
    assert sum(map(len, equations)) > 50
    for a, sign, b, result in itertools.chain.from_iterable(equations):
        assert int(result) == {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[sign]
