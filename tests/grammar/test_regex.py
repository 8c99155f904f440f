# SPDX-License-Identifier: Apache-2.0
"""Regular expressions by Python's re: the same texts match."""

import random
import re

import pytest

ALPHABET = "ab1 -é\n_😀"


def random_pattern(draw, depth):
    if depth == 0:
        return draw.choice(["a", "b", "1", "é", ".", "[ab]", "[^a1]", r"\d", r"[\d_]", r"[a-b\-]", "😀", r"\n", "-"])
    kind = draw.randrange(5)
    inner = random_pattern(draw, depth - 1)
    if kind == 0:
        return f"({inner}|{random_pattern(draw, depth - 1)})"
    if kind == 1:
        return f"(?:{inner})" + draw.choice(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?", "??"])
    if kind == 2:
        return inner
    return inner + random_pattern(draw, depth - 1)


@pytest.mark.parametrize("seed", range(60))
def test_same_texts_match(driver, seed):
    draw = random.Random(seed)
    pattern = random_pattern(draw, 4)
    driver.guide("regex", pattern)
    texts = ["".join(draw.choices(ALPHABET, k=draw.randrange(7))) for _ in range(60)]
    expected = [re.fullmatch(pattern, text) is not None for text in texts]
    assert driver.matches(texts) == expected, pattern
    for text in driver.walks(seed, count=20, soft=10, hard=200):
        assert re.fullmatch(pattern, text), (pattern, text)
