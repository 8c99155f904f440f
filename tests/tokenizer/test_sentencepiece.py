# SPDX-License-Identifier: Apache-2.0
"""A bare tokenizer.model: ids and texts equal those of the `sentencepiece` package."""

import random

import pytest
import sentencepiece
from sentencepiece_recipes import INSERTS, RECIPES
from test_oracle import chunked
from texts import SAMPLES, long_texts, random_texts

LONG_TEXT_RECIPES = [
    "bpe default", "bpe llama", "bpe user defined", "bpe unused", "unigram default", "unigram llama", "unigram suffix",
    "unigram user defined, bytes",
]  # fmt: skip


@pytest.fixture(scope="module", params=sorted(RECIPES))
def pair(request, driver, tmp_path_factory):
    """A model of the package, and our driver with the same one loaded."""
    model = RECIPES[request.param]()
    oracle = sentencepiece.SentencePieceProcessor(model_proto=model)
    folder = tmp_path_factory.mktemp("sentencepiece")
    (folder / "tokenizer.model").write_bytes(model)
    reply = driver.load(folder)
    assert "error" not in reply, reply
    assert reply["vocab_size"] == oracle.vocab_size()
    for name in ("bos_id", "eos_id"):
        assert (-1 if reply[name] is None else reply[name]) == getattr(oracle, name)()
    return oracle, driver


def id_lists(oracle, seed, count):
    """Ids of texts, and ids at random: with wrong bytes, control and unknown pieces."""
    rng = random.Random(seed)
    lists = [oracle.encode(text) for text in SAMPLES + random_texts(seed, count, INSERTS)]
    size = oracle.vocab_size()
    for _ in range(count):
        length = rng.randint(0, 30)
        lists.append([rng.randrange(min(300, size) if rng.random() < 0.6 else size) for _ in range(length)])
    return lists


def test_encode_equals_the_package(pair):
    oracle, driver = pair
    for text in SAMPLES + random_texts(seed=11, count=250, inserts=INSERTS):
        assert driver.encode(text) == oracle.encode(text), ascii(text[:200])


@pytest.mark.parametrize("pair", ["bpe nfkc_cf", "unigram default", "unigram nfkc"], indirect=True)
def test_every_character_encodes_as_in_the_package(pair):
    oracle, driver = pair
    characters = [chr(c) for c in range(0x30000) if not 0xD800 <= c <= 0xDFFF]
    rng = random.Random(12)
    rng.shuffle(characters)
    for begin in range(0, len(characters), 2000):
        text = "".join(c + rng.choice(["", " ", "a", "\u0301"]) for c in characters[begin : begin + 2000])
        assert driver.encode(text) == oracle.encode(text)


@pytest.mark.parametrize("pair", LONG_TEXT_RECIPES, indirect=True)
def test_long_lines_are_equal(pair):
    oracle, driver = pair
    for name, text in long_texts().items():
        assert driver.encode(text) == oracle.encode(text), name


def test_decode_equals_the_package(pair):
    oracle, driver = pair
    for ids in id_lists(oracle, seed=13, count=200):
        expected = oracle.decode(ids)
        assert driver.decode(ids, False) == expected, ids
        assert driver.decode(ids, True) == expected, ids


def test_chunks_of_any_size_concatenate_to_the_text(pair):
    oracle, driver = pair
    for i, ids in enumerate(id_lists(oracle, seed=14, count=100)):
        pieces = driver.detokenize(chunked(ids, seed=i), True)
        assert "".join(pieces) == oracle.decode(ids), ids
