# SPDX-License-Identifier: Apache-2.0
"""Tokenizers in GGUF files that the `gguf` package wrote: ids and texts equal those of the tokenizer that the file was
made of, by the `tokenizers` and `sentencepiece` packages."""

import functools
import json
import re

import gguf
import pytest
import recipes
import sentencepiece
import sentencepiece_recipes
from model_proto import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, edit_pieces
from texts import SAMPLES, random_texts
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# What a GGUF file can say of added tokens: their text, and whether they are special.
ADDED = ["<|begin|>", "<|end|>", "<|end|>x", "<left>", "two words"]
INSERTS = recipes.INSERTS


# DeepSeek LLM: letters of scripts that have two cases, as its tokenizer.json lists them.
CASED = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7d"
    "ᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇ"
    "Ꞌ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
ASIAN = "[一-龥ࠀ-一가-\ud7ff]+"
DEEPSEEK_LLM = [r"[\r\n]", rf"\s?[{CASED}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", ASIAN, r"\p{N}+"]
DEEPSEEK_CODER = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", ASIAN, r"\p{N}"]
# Falcon, and files without a name: GPT-2's pattern among others, without its last part.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
FALCON = [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"]
DEFAULT = [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]


def byte_level(pattern, ignore_merges=False, normalizer=None, digits=False, bos=False, cuts=()):
    """A trained tokenizer of the family, with added tokens that take none of the blanks around them. Under `cuts` its
    texts are cut by each of these patterns in turn."""
    data = json.loads(recipes._byte_level(pattern, added=False, bos=bos).to_str())
    data["model"]["ignore_merges"] = ignore_merges
    tokenizer = Tokenizer.from_str(json.dumps(data))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if digits:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    if cuts:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                *(pre_tokenizers.Split(Regex(cut), "isolated") for cut in cuts),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    for text in ADDED:
        added = recipes.AddedToken(text, special=text.startswith("<|"), normalized=False)
        (tokenizer.add_special_tokens if added.special else tokenizer.add_tokens)([added])
    return tokenizer


# tokenizer.ggml.pre, if any -> the tokenizer that it stands for
KINDS = {
    "": lambda: byte_level(None, cuts=DEFAULT),
    "default": lambda: byte_level(None, cuts=DEFAULT),
    "deepseek-coder": lambda: byte_level(None, cuts=DEEPSEEK_CODER),
    "deepseek-llm": lambda: byte_level(None, cuts=DEEPSEEK_LLM),
    "deepseek-r1-qwen": lambda: byte_level(recipes.QWEN2, normalizer=normalizers.NFC()),
    "falcon": lambda: byte_level(None, cuts=FALCON),
    "falcon3": lambda: byte_level(recipes.LLAMA3, ignore_merges=True, bos=True),
    "gpt-2": lambda: byte_level(None),
    "llama-bpe": lambda: byte_level(recipes.LLAMA3, ignore_merges=True, bos=True),
    "olmo": lambda: byte_level(None, normalizer=normalizers.NFC()),
    "smaug-bpe": lambda: byte_level(recipes.LLAMA3),
    "dbrx": lambda: byte_level(recipes.LLAMA3),
    "qwen2": lambda: byte_level(recipes.QWEN2, normalizer=normalizers.NFC()),
    "tekken": lambda: byte_level(TEKKEN, ignore_merges=True, bos=True),
    "gpt-4o": lambda: byte_level(recipes.O200K),
    "smollm": lambda: byte_level(None, digits=True),
}


def write(path, fill):
    writer = gguf.GGUFWriter(path, "llama")
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_byte_level(pre, tokenizer, writer):
    data = json.loads(tokenizer.to_str())
    added = {token["id"]: token for token in data["added_tokens"]}
    size = tokenizer.get_vocab_size()
    tokens = [tokenizer.id_to_token(i) for i in range(size)]
    types = [(CONTROL if added[i]["special"] else USER_DEFINED) if i in added else NORMAL for i in range(size)]
    writer.add_tokenizer_model("gpt2")
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list([*tokens, "[PAD7]"])
    writer.add_token_types([*types, gguf.TokenType.UNUSED])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in data["model"]["merges"]])
    writer.add_bos_token_id(tokenizer.token_to_id("<s>"))
    writer.add_eos_token_id(tokenizer.token_to_id("<|end|>"))


@pytest.fixture(params=sorted(KINDS))
def byte_level_pair(request, driver, tmp_path):
    oracle = KINDS[request.param]()
    write(tmp_path / "tokenizer.gguf", functools.partial(add_byte_level, request.param, oracle))
    reply = driver.load(tmp_path)
    assert "error" not in reply, reply
    assert reply["bos_id"] == oracle.token_to_id("<s>")
    assert reply["eos_id"] == oracle.token_to_id("<|end|>")
    return oracle, driver


def test_byte_level_ids_are_those_of_the_package(byte_level_pair):
    oracle, driver = byte_level_pair
    for text in SAMPLES + random_texts(seed=31, count=150, inserts=INSERTS):
        # Normalizers of the package know the characters of an older Unicode.
        if oracle.normalizer is not None:
            text = "".join(c for c in text if c.isascii() or recipes.normalizers.NFC().normalize_str(c) == c)
        for special in (False, True):
            assert driver.encode(text, special) == oracle.encode(text, add_special_tokens=special).ids, ascii(text[:200])


# Texts in which the patterns of the names above find different words.
CUT_TEXTS = [
    "a1234567 12  345,678", "x=`y`;$z+=1", "(`a`) `", "été Ωmega ΩK ﬁ ꞌx 𐐀𐑏", "你好，世界。 안녕 한글 かな", "ࠀ ऄ ა ᲐᲑ",
    "1234你5678 ½²³ ①②③", "a\r\n\n  b \t c   ", "  \n  ", "‘quoted’ “text” ！？　。", "don't we'll I'M", "٣٤٥٦ 12٣",
]  # fmt: skip


def test_words_are_cut_as_the_package_cuts_them(byte_level_pair):
    oracle, driver = byte_level_pair
    for text in CUT_TEXTS:
        if oracle.normalizer is None or oracle.normalizer.normalize_str(text) == text:
            assert driver.encode(text) == oracle.encode(text, add_special_tokens=False).ids, text


def test_byte_level_texts_are_those_of_the_package(byte_level_pair):
    oracle, driver = byte_level_pair
    for text in random_texts(seed=32, count=60, inserts=INSERTS):
        ids = oracle.encode(text).ids
        for skip in (False, True):
            assert driver.decode(ids, skip) == oracle.decode(ids, skip_special_tokens=skip)


def add_sentencepiece(pieces, blank, writer):
    """As convert_hf_to_gguf.py writes them: with blanks in user-defined pieces."""
    ids = {piece.piece: i for i, piece in enumerate(pieces)}
    writer.add_tokenizer_model("llama")
    writer.add_token_list([p.piece.replace("▁", " ") if p.type == USER_DEFINED else p.piece for p in pieces])
    writer.add_token_scores([piece.score for piece in pieces])
    writer.add_token_types([piece.type for piece in pieces])
    writer.add_bos_token_id(ids["<s>"])
    writer.add_eos_token_id(ids["</s>"])
    writer.add_unk_token_id(ids["<unk>"])
    if not blank:
        writer.add_add_space_prefix(False)


CUT = (CONTROL, UNKNOWN, USER_DEFINED)


class Pieces:
    """A model of the package, whose control, unknown and user-defined pieces are cut out of a text first."""

    def __init__(self, recipe):
        model = sentencepiece_recipes.RECIPES[recipe]()
        self.package = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.pieces = []
        edit_pieces(model, self.pieces.extend)
        self.cut = {p.piece.replace("▁", " "): i for i, p in enumerate(self.pieces) if p.type in CUT}
        longest_first = sorted(self.cut, key=len, reverse=True)
        self.pattern = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")

    def encode(self, text):
        ids = []
        for part in filter(None, self.pattern.split(text)):
            ids += [self.cut[part]] if part in self.cut else self.package.encode(part)
        return ids


@pytest.fixture(params=["bpe llama", "bpe no dummy prefix", "bpe user defined, no prefix"])
def pieces_pair(request, driver, tmp_path):
    oracle = Pieces(request.param)
    blank = "no" not in request.param.split()
    write(tmp_path / "tokenizer.gguf", lambda writer: add_sentencepiece(oracle.pieces, blank, writer))
    reply = driver.load(tmp_path)
    assert "error" not in reply, reply
    assert (reply["bos_id"], reply["eos_id"]) == (oracle.package.bos_id(), oracle.package.eos_id())
    return oracle, driver


def test_sentencepiece_ids_are_those_of_the_package(pieces_pair):
    oracle, driver = pieces_pair
    inserts = [*sentencepiece_recipes.INSERTS, "<s>", "</s>", "<unk>"]
    for text in SAMPLES + random_texts(seed=33, count=150, inserts=inserts):
        text = text.replace("▁", "")  # the blanks of user-defined pieces are blanks in such a file, nothing else
        assert driver.encode(text) == oracle.encode(text), ascii(text[:200])
        assert driver.encode(text, True) == [oracle.package.bos_id(), *oracle.encode(text)]


def test_sentencepiece_texts_come_back(pieces_pair):
    oracle, driver = pieces_pair
    for text in random_texts(seed=34, count=60, inserts=["two words", "é", "\t"]):
        ids = [i for i in oracle.package.encode(text) if not oracle.package.is_unknown(i)]
        assert driver.decode(ids) == oracle.package.decode(ids)
