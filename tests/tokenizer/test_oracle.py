# SPDX-License-Identifier: Apache-2.0
"""Ids and texts equal those of the `tokenizers` package, for every recipe and a varied corpus."""

import functools
import json
import random
import re
import unicodedata

import model_recipes
import pytest
import recipes
from texts import SAMPLES, long_texts, random_texts
from tokenizers import AddedToken, normalizers, processors

RECIPES = recipes.RECIPES | model_recipes.MODEL_RECIPES
INSERTS = recipes.INSERTS + model_recipes.INSERTS

# Ample against noise, and a fraction of what any quadratic step would take on 100 kB.
LONG_TEXT_RECIPES = [
    "gpt2 prefix space", "llama3", "llama3 ignore_merges", "qwen2", "o200k", "llama2", "metaspace first",
    "merges across words", "unknown among bytes", "split merged_with_next", "whitespace",
    "wordpiece", "unigram t5", "unigram ties", "precompiled nmt_nfkc",
]  # fmt: skip

# Normalizers that decompose, compose or make lower case.
NEEDS_OLD_TEXT = re.compile(r'"type":"(NFC|NFD|NFKC|NFKD|Lowercase)"|"(strip_accents|lowercase)":true')

# The recipes among which every way to class characters is found.
CHARACTER_RECIPES = [
    "gpt2", "llama3", "o200k", "qwen2", "llama2", "digits", "whitespace", "whitespace split", "split isolated",
    "lowercase", "accents", "classes", "words", "words in a class", "accents alone", "nmt", "bert normalizer",
    "bert clean text", "bert ideographs", "bert accents", "bert pre-tokenizer", "punctuation isolated",
    "punctuation contiguous", "precompiled nmt_nfkc", "precompiled nfkc_cf", "precompiled clusters",
    "unicode scripts", "byte level normalizer", "wordpiece", "unigram byte fallback",
]  # fmt: skip


@pytest.fixture(scope="module", params=sorted(RECIPES))
def pair(request, driver, tmp_path_factory):
    """A tokenizer of the package, and our driver with the same one loaded."""
    oracle = RECIPES[request.param]()
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    oracle.save(str(path))
    reply = driver.load(path)
    assert "error" not in reply
    return oracle, driver


def unicode_of(oracle):
    """Which characters the package's normalizer knows as ours does; None: all."""
    written = oracle.normalizer.__getstate__().decode() if oracle.normalizer is not None else ""
    if NEEDS_OLD_TEXT.search(written):
        return unicodedata.ucd_3_2_0  # these know the characters of Unicode 10 (ours those of 15): take what is older
    return unicodedata if '"Precompiled"' in written else None  # clusters: of the package by Unicode 17, ours by 15


def ids_of(oracle, texts, add_special_tokens=True):
    """The package's, which makes no offsets here."""
    return [encoding.ids for encoding in oracle.encode_batch_fast(texts, add_special_tokens=add_special_tokens)]


def assert_same_ids(oracle, driver, texts, add_special_tokens):
    if known := unicode_of(oracle):
        texts = ["".join(c for c in text if known.category(c) != "Cn") for text in texts]
    expected = ids_of(oracle, texts, add_special_tokens)
    for text, found, wanted in zip(texts, driver.encode_all(texts, add_special_tokens), expected, strict=True):
        assert found == wanted, ascii(text[:200])


def random_ids(oracle, seed, count):
    rng = random.Random(seed)
    size = oracle.get_vocab_size() + 5  # some that do not exist
    return [[rng.randrange(size) for _ in range(rng.randint(0, 40))] for _ in range(count)]


def chunked(ids, seed):
    rng = random.Random(seed)
    chunks = []
    while ids:
        size = rng.choice([0, 1, 1, 1, 2, 5])
        chunks.append(ids[:size])
        ids = ids[size:]
    return chunks


@pytest.mark.parametrize("add_special_tokens", [False, True])
def test_encode_equals_the_package(pair, add_special_tokens):
    oracle, driver = pair
    assert_same_ids(oracle, driver, SAMPLES + random_texts(seed=1, count=300, inserts=INSERTS), add_special_tokens)


@functools.cache
def texts_of_every_character():
    """With neighbours of all kinds: the classes of characters decide where words end."""
    characters = [chr(c) for c in range(0x32400) if not 0xD800 <= c <= 0xDFFF]
    rng = random.Random(2)
    rng.shuffle(characters)
    neighbours = ["", " ", "a", "1", "'s", "\n"]
    return [
        "".join(c + rng.choice(neighbours) for c in characters[begin : begin + 1000]) for begin in range(0, len(characters), 1000)
    ]


@pytest.mark.parametrize("pair", CHARACTER_RECIPES, indirect=True)
def test_every_character_encodes_as_in_the_package(pair):
    oracle, driver = pair
    assert_same_ids(oracle, driver, texts_of_every_character(), False)


@pytest.mark.parametrize("pair", LONG_TEXT_RECIPES, indirect=True)
def test_long_lines_are_equal(pair):
    oracle, driver = pair
    texts = long_texts()
    expected = ids_of(oracle, list(texts.values()), False)
    for name, found, wanted in zip(texts, driver.encode_all(texts.values()), expected, strict=True):
        assert found == wanted, name


@pytest.mark.parametrize("skip_special_tokens", [False, True])
def test_decode_equals_the_package(pair, skip_special_tokens):
    oracle, driver = pair
    texts = SAMPLES + random_texts(seed=3, count=100, inserts=INSERTS)
    lists = ids_of(oracle, texts) + random_ids(oracle, seed=4, count=200)
    for ids, found in zip(lists, driver.decode_all(lists, skip_special_tokens), strict=True):
        assert found == oracle.decode(ids, skip_special_tokens=skip_special_tokens), ids


@pytest.mark.parametrize("skip_special_tokens", [False, True])
def test_chunks_of_any_size_concatenate_to_the_text(pair, skip_special_tokens):
    oracle, driver = pair
    texts = SAMPLES + random_texts(seed=5, count=100, inserts=INSERTS)
    lists = ids_of(oracle, texts) + random_ids(oracle, seed=6, count=100)
    answers = driver.detokenize_all([chunked(ids, seed=i) for i, ids in enumerate(lists)], skip_special_tokens)
    for ids, pieces in zip(lists, answers, strict=True):
        assert "".join(pieces) == oracle.decode(ids, skip_special_tokens=skip_special_tokens), ids


# The files of DeepSeek-R1's distillations of Qwen and of Llama: Qwen2's or Llama 3's words, special tokens of DeepSeek's
# own, some of them not special, and a class that is named after Llama's first tokenizer.
R1_SPECIAL = ["<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜begin▁of▁sentence｜>", "<|EOT|>", "<｜▁pad▁｜>"]
R1_PLAIN = ["<think>", "</think>", "<tool_call>"]


def r1_token(text):
    return {"__type": "AddedToken", "content": text, "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}


@pytest.mark.parametrize("words", [recipes.QWEN2, recipes.LLAMA3], ids=["qwen", "llama"])
def test_the_files_of_deepseek_r1_distillations_open(words, driver, tmp_path):
    oracle = recipes._byte_level(words, added=False, normalizer=normalizers.NFC() if words == recipes.QWEN2 else None)
    oracle.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in R1_SPECIAL])
    oracle.add_tokens([AddedToken(text, normalized=False, special=False) for text in R1_PLAIN])
    begin, end = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
    oracle.post_processor = processors.TemplateProcessing(
        single=[begin, "$A"], pair=[begin, "$A", begin, "$B:1"], special_tokens=[(begin, oracle.token_to_id(begin))]
    )
    oracle.save(str(tmp_path / "tokenizer.json"))
    config = {
        "add_bos_token": True, "add_eos_token": False, "bos_token": r1_token(begin), "eos_token": r1_token(end),
        "pad_token": r1_token(end), "unk_token": None, "clean_up_tokenization_spaces": False, "legacy": True,
        "model_max_length": 16384, "sp_model_kwargs": {}, "tokenizer_class": "LlamaTokenizerFast",
    }  # fmt: skip
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    reply = driver.load(tmp_path)
    assert reply["bos_id"] == oracle.token_to_id(begin)
    assert reply["eos_id"] == reply["pad_id"] == oracle.token_to_id(end)
    inserts = R1_SPECIAL + R1_PLAIN
    question = f"{begin}<｜User｜>What is 12 + 34?<｜Assistant｜><think>\nIt is 46.\n</think>\n\n46{end}"
    texts = [question, *SAMPLES, *random_texts(seed=7, count=60, inserts=inserts)]
    for special in (False, True):
        assert_same_ids(oracle, driver, texts, special)
    for text in texts:
        ids = oracle.encode(text).ids
        for skip in (False, True):
            assert driver.decode(ids, skip) == oracle.decode(ids, skip_special_tokens=skip)
    thought = oracle.encode(question).ids
    assert "<think>" in driver.decode(thought, True) and "｜" not in driver.decode(thought, True)
