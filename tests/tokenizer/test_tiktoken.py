# SPDX-License-Identifier: Apache-2.0
"""Files of tiktoken's ranks: ids and texts equal those of the `tiktoken` package.

Patterns and special tokens of OpenAI's encodings are the package's own; those of Llama 3 and Qwen are written as in
their authors' code (meta-llama/llama3/llama/tokenizer.py, the tokenization_qwen.py of Qwen/Qwen-7B).
"""

import json
import random
import unicodedata

import pytest
import tiktoken_recipes
from test_oracle import chunked
from texts import SAMPLES, long_texts, random_texts

LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_PATTERN = LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")
LLAMA3_SPECIALS = [
    "<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
    "<|reserved_special_token_2|>", "<|reserved_special_token_3|>", "<|start_header_id|>", "<|end_header_id|>",
    "<|reserved_special_token_4|>", "<|eot_id|>", *(f"<|reserved_special_token_{i}|>" for i in range(5, 251)),
]  # fmt: skip
LLAMA31_SPECIALS = [
    "<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
    "<|finetune_right_pad_id|>", "<|reserved_special_token_2|>", "<|start_header_id|>", "<|end_header_id|>",
    "<|eom_id|>", "<|eot_id|>", "<|python_tag|>", *(f"<|reserved_special_token_{i}|>" for i in range(3, 248)),
]  # fmt: skip
QWEN_SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205))]

PUBLISHED_SIZES = {"gpt2": 50256, "cl100k_base": 100256, "o200k_base": 199998, "llama3": 128000, "qwen": 151643}

# Special tokens of the small vocabularies, and what looks like them.
SPECIALS = ["<|x|>", "<|endoftext|>", "<|im_end|>", "<é>", "[MASK]"]
INSERTS = [*SPECIALS, "<|x", "|>", "<|endof", "abba", "ab ab", "aab\nbba"]


def definition_of(name, ranks, monkeypatch):
    """pat_str and special_tokens of an encoding under its name here."""
    if name == "qwen":
        return {"pat_str": QWEN_PATTERN, "special_tokens": {s: 151643 + i for i, s in enumerate(QWEN_SPECIALS)}}
    if name == "llama3":
        return {"pat_str": LLAMA3_PATTERN, "special_tokens": {s: 128000 + i for i, s in enumerate(LLAMA3_SPECIALS)}}
    return tiktoken_recipes.openai("r50k_base" if name == "gpt2" else name, ranks, monkeypatch)


def write(folder, name, ranks, **config):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(tiktoken_recipes.text_of(ranks))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


VOCABULARIES = {
    "trained": lambda name: tiktoken_recipes.trained(None if name == "gpt2" else LLAMA3_PATTERN),
    "trained small": lambda name: tiktoken_recipes.trained(QWEN_PATTERN, 400),
    "shuffled": lambda name: tiktoken_recipes.shuffled("ab ", 5, 1),
    "shuffled bytes": lambda name: tiktoken_recipes.shuffled("aé\n", 4, 2),
}


@pytest.fixture(scope="module", params=[(name, kind) for name in PUBLISHED_SIZES for kind in VOCABULARIES], ids="-".join)
def pair(request, driver, tmp_path_factory):
    """An encoding of the package with special tokens of ours, and our driver with the same one loaded."""
    name, kind = request.param
    ranks = VOCABULARIES[kind](name)
    special = {token: len(ranks) + 3 * i for i, token in enumerate(SPECIALS)}  # with gaps between
    with pytest.MonkeyPatch.context() as monkeypatch:
        pattern = definition_of(name, ranks, monkeypatch)["pat_str"]
    folder = tmp_path_factory.mktemp("tiktoken")
    added = {id: {"content": token, "special": True} for token, id in special.items()}
    write(folder, "some.tiktoken", ranks, encoding_name=name, added_tokens_decoder=added, add_bos_token=False)
    reply = driver.load(folder)
    assert "error" not in reply, reply
    oracle = tiktoken_recipes.encoding(name, ranks, pattern, special)
    assert reply["vocab_size"] == oracle.n_vocab
    return name, oracle, driver


def known(text, name):
    """The part of a text that both know: characters of Unicode 14, composed for Qwen as its own code does."""
    text = "".join(c for c in text if unicodedata.category(c) not in ("Cn", "Cs"))
    return unicodedata.normalize("NFC", text) if name == "qwen" else text


def test_encode_equals_the_package(pair):
    name, oracle, driver = pair
    for text in SAMPLES + random_texts(seed=21, count=300, inserts=INSERTS):
        text = known(text, name)
        assert driver.encode(text) == oracle.encode(text, allowed_special="all"), ascii(text[:200])


def test_runs_of_few_letters_encode_as_in_the_package(pair):
    _, oracle, driver = pair
    rng = random.Random(22)
    for _ in range(300):
        text = "".join(rng.choice("ababab é\n") for _ in range(rng.randint(1, 80)))
        assert driver.encode(text) == oracle.encode(text), ascii(text)


@pytest.mark.parametrize("pair", [(name, "trained") for name in PUBLISHED_SIZES], indirect=True, ids="-".join)
def test_every_character_encodes_as_in_the_package(pair):
    name, oracle, driver = pair
    characters = [chr(c) for c in range(0x32400) if not 0xD800 <= c <= 0xDFFF]
    rng = random.Random(23)
    rng.shuffle(characters)
    for begin in range(0, len(characters), 1000):
        text = "".join(c + rng.choice(["", " ", "a", "1", "'s", "\n"]) for c in characters[begin : begin + 1000])
        text = known(text, name)
        assert driver.encode(text) == oracle.encode(text)


@pytest.mark.parametrize("pair", [("cl100k_base", "trained"), ("qwen", "shuffled")], indirect=True, ids="-".join)
def test_long_lines_are_equal(pair):
    name, oracle, driver = pair
    for text in long_texts().values():
        text = known(text, name)
        assert driver.encode(text) == oracle.encode(text)


def test_decode_equals_the_package(pair):
    name, oracle, driver = pair
    rng = random.Random(24)
    ids = sorted(oracle._mergeable_ranks.values()) + sorted(oracle._special_tokens.values())
    texts = [known(text, name) for text in SAMPLES + random_texts(seed=25, count=50, inserts=INSERTS)]
    lists = [oracle.encode(text, allowed_special="all") for text in texts]
    lists += [rng.choices(ids, k=rng.randint(0, 40)) for _ in range(200)]
    for i, ids in enumerate(lists):
        assert driver.decode(ids) == oracle.decode(ids), ids
        assert "".join(driver.detokenize(chunked(ids, seed=i))) == oracle.decode(ids), ids


@pytest.mark.parametrize("name", PUBLISHED_SIZES)
def test_files_of_the_published_size_have_the_published_special_tokens(name, driver, tmp_path, monkeypatch):
    ranks = tiktoken_recipes.of_size(PUBLISHED_SIZES[name], 3)
    definition = definition_of(name, ranks, monkeypatch)
    write(tmp_path, "original/tokenizer.model" if name == "llama3" else f"{name}.tiktoken", ranks)
    reply = driver.load(tmp_path)
    assert "error" not in reply, reply
    special = definition["special_tokens"]
    oracle = tiktoken_recipes.encoding(name, ranks, definition["pat_str"], special)
    assert reply["vocab_size"] == oracle.n_vocab
    assert reply["bos_id"] == special.get("<|begin_of_text|>")
    assert reply["eos_id"] == special["<|end_of_text|>" if name == "llama3" else "<|endoftext|>"]
    text = "Hello, world! " + "and".join(special) + "\n  "
    ids = oracle.encode(text, allowed_special="all")
    assert driver.encode(text) == ids
    assert driver.encode(text, add_special_tokens=True) == ([128000] if name == "llama3" else []) + ids
    assert driver.decode(ids) == text


@pytest.mark.parametrize("name, content", [
    ("original/params.json", {"use_scaled_rope": True}),
    ("config.json", {"rope_scaling": {"rope_type": "llama3"}}),
    ("config.json", {"pretrained_config": {"rotary_scaling": {"type": "llama3"}}}),
])  # fmt: skip
def test_special_tokens_of_llama_3_1_are_told_by_its_settings(name, content, driver, tmp_path):
    write(tmp_path, "original/tokenizer.model", tiktoken_recipes.of_size(128000, 4))
    (tmp_path / name).write_text(json.dumps(content))
    assert "error" not in driver.load(tmp_path)
    assert driver.encode("".join(LLAMA31_SPECIALS)) == list(range(128000, 128256))
