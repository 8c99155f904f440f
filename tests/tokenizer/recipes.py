# SPDX-License-Identifier: Apache-2.0
"""Tokenizers of the GPT-2, Llama and related families, trained small by the `tokenizers` package."""

import functools
import json

from texts import training_texts
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Strings that the texts of a test should hold, whether a recipe adds them or not.
INSERTS = [
    "<|begin|>", "<|end|>", "<|end|>x", "<|e", "<s>", "</s>", "[MASK]", "  [MASK]  ", "<left>", " <left>", "<right> ",
    "<right>\n<left>", "word", " word ", "swordfish", "word_", "Normal", "NORMAL", "two words", "é", "<0x0A>", "▁",
]  # fmt: skip

_ADDED = [
    AddedToken("<|begin|>", special=True),
    AddedToken("<|end|>", special=True),
    AddedToken("<|end|>x", special=True),
    AddedToken("[MASK]", special=True, lstrip=True, rstrip=True),
    AddedToken("<left>", lstrip=True, normalized=False),
    AddedToken("<right>", rstrip=True, normalized=False),
    AddedToken("word", single_word=True, normalized=False),
    AddedToken("Normal", normalized=True),
    AddedToken("two words", normalized=True),
]


def _train(tokenizer, vocab_size, alphabet, special_tokens):
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=alphabet,
        special_tokens=special_tokens,
        limit_alphabet=600,
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_texts(), trainer)
    return tokenizer


def _edited(tokenizer, edit):
    """The tokenizer after `edit` changed its JSON."""
    data = json.loads(tokenizer.to_str())
    edit(data)
    return Tokenizer.from_str(json.dumps(data))


@functools.cache
def _byte_level_base(pattern, vocab_size):
    tokenizer = Tokenizer(models.BPE())
    if pattern is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    tokenizer.decoder = decoders.ByteLevel()
    return _train(tokenizer, vocab_size, pre_tokenizers.ByteLevel.alphabet(), ["<s>"]).to_str()


def _byte_level(pattern=None, vocab_size=2000, added=True, normalizer=None, bos=False, edit=None):
    tokenizer = Tokenizer.from_str(_byte_level_base(pattern, vocab_size))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if added:
        tokenizer.add_tokens(_ADDED)
    if bos:
        tokenizer.post_processor = processors.Sequence(
            [
                processors.ByteLevel(trim_offsets=False),
                processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]),
            ]
        )
    return _edited(tokenizer, edit) if edit else tokenizer


def _set_model(**options):
    return lambda data: data["model"].update(options)


def _prefix_space(data):
    data["pre_tokenizer"]["add_prefix_space"] = True


def _merges_as_strings(data):
    data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    del data["model"]["type"]


@functools.cache
def _metaspace_base(crosses_words, vocab_size):
    """Trained with U+2581 as the blank; its vocabulary gets the 256 byte tokens of Llama behind the special ones."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if crosses_words:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\n,.]"), "isolated")
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>"]
    data = json.loads(_train(tokenizer, vocab_size, ["▁"], special).to_str())
    vocab = {token: id for token, id in data["model"]["vocab"].items() if id < 3}
    vocab.update({f"<0x{byte:02X}>": 3 + byte for byte in range(256)})
    vocab.update({token: id + 256 for token, id in data["model"]["vocab"].items() if id >= 3})
    data["model"]["vocab"] = vocab
    return json.dumps(data)


def _metaspace(style, vocab_size=1500, added=True, crosses_words=False, split=True, edit=None):
    data = json.loads(_metaspace_base(crosses_words, vocab_size))
    data["normalizer"] = data["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(data))
    if style == "normalizers":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=style, split=split)
        tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=style)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    if added:
        tokenizer.add_tokens(_ADDED)
    return _edited(tokenizer, edit) if edit else tokenizer


def _legacy_metaspace(data):
    for part in (data["pre_tokenizer"], data["decoder"]["decoders"][1]):
        part.pop("prepend_scheme")
        part.update({"add_prefix_space": True, "str_rep": "▁"})


def _unknown(fuse, bytes_known):
    """Few characters known, so that unk_token is at work; with `bytes_known`, some byte tokens too."""

    def edit(data):
        vocab = data["model"]["vocab"]
        dropped = {t for t in vocab if any(c in "e,0▁é" for c in t) and not t.startswith("<")}
        if not bytes_known:
            dropped |= {t for t in vocab if t.startswith("<0x")}
        else:
            dropped |= {f"<0x{b:02X}>" for b in (0x65, 0xF0)}
        kept = [t for t in sorted(vocab, key=vocab.get) if t not in dropped]
        data["model"]["vocab"] = {t: i for i, t in enumerate(kept)}
        data["model"]["merges"] = [m for m in data["model"]["merges"] if not {m[0], m[1], m[0] + m[1]} & dropped]
        data["model"]["fuse_unk"] = fuse

    return _metaspace("normalizers", added=False, edit=edit)


def _sequence(steps):
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _pre_tokenized(*steps):
    tokenizer = _byte_level()
    tokenizer.pre_tokenizer = _sequence(steps)
    return tokenizer


RECIPES = {
    "gpt2": lambda: _byte_level(added=False),
    "gpt2 with added tokens": _byte_level,
    "gpt2 prefix space": lambda: _byte_level(edit=_prefix_space),
    "gpt2 old file": lambda: _byte_level(edit=_merges_as_strings),
    "llama3": lambda: _byte_level(LLAMA3, bos=True),
    "llama3 ignore_merges": lambda: _byte_level(LLAMA3, edit=_set_model(ignore_merges=True)),
    "llama3 tiny": lambda: _byte_level(LLAMA3, vocab_size=300),
    "qwen2": lambda: _byte_level(QWEN2, normalizer=normalizers.NFC()),
    "cl100k": lambda: _byte_level(CL100K),
    "o200k": lambda: _byte_level(O200K),
    "llama2": lambda: _metaspace("normalizers"),
    "llama2 plain": lambda: _metaspace("normalizers", added=False),
    "llama2 ignore_merges": lambda: _metaspace("normalizers", edit=_set_model(ignore_merges=True)),
    "metaspace always": lambda: _metaspace("always"),
    "metaspace first": lambda: _metaspace("first"),
    "metaspace first unsplit": lambda: _metaspace("first", split=False),
    "metaspace never": lambda: _metaspace("never"),
    "metaspace old file": lambda: _metaspace("always", edit=_legacy_metaspace),
    "merges across words": lambda: _metaspace("normalizers", crosses_words=True),
    "merges across words, metaspace": lambda: _metaspace("never", crosses_words=True, split=False),
    "unknown fused": lambda: _unknown(fuse=True, bytes_known=False),
    "unknown": lambda: _unknown(fuse=False, bytes_known=False),
    "unknown among bytes": lambda: _unknown(fuse=True, bytes_known=True),
    "no decoder": lambda: _edited(_byte_level(), lambda data: data.update(decoder=None)),
    "lowercase": lambda: _byte_level(normalizer=normalizers.Sequence([normalizers.Lowercase(), normalizers.Strip()])),
    "accents": lambda: _byte_level(normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])),
    "replace regex": lambda: _byte_level(normalizer=normalizers.Replace(Regex(r"\s+"), " ")),
    "digits": lambda: _pre_tokenized(pre_tokenizers.Digits(individual_digits=True)),
    "digit runs": lambda: _pre_tokenized(pre_tokenizers.Digits(individual_digits=False)),
    "whitespace": lambda: _pre_tokenized(pre_tokenizers.Whitespace()),
    "classes": lambda: _pre_tokenized(
        pre_tokenizers.Split(
            Regex(r"\p{Han}+|\p{Lu}|\p{Ll}+|\p{Lm}|\p{Lo}+|\p{Mn}|\p{M}+|\p{Nd}|\p{N}+|\p{P}+|\p{S}+|\s+"), "isolated"
        )
    ),
    "words": lambda: _pre_tokenized(pre_tokenizers.Split(Regex(r"\w+"), "isolated")),
    "words in a class": lambda: _pre_tokenized(pre_tokenizers.Split(Regex(r"[\w]+|[^\w\s]"), "isolated")),
    "whitespace split": lambda: _pre_tokenized(pre_tokenizers.WhitespaceSplit()),
    "byte level before split": lambda: _edited(
        _byte_level(),
        lambda data: data.update(
            pre_tokenizer=json.loads(
                pre_tokenizers.Sequence(
                    [pre_tokenizers.ByteLevel(add_prefix_space=True), pre_tokenizers.Split("Ġ", "merged_with_next")]
                ).__getstate__()
            )
        ),
    ),
}

for _behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
    for _invert in (False, True):
        RECIPES[f"split {_behavior} {'inverted' if _invert else ''}".strip()] = functools.partial(
            _pre_tokenized, pre_tokenizers.Split(Regex(r"[aeiou]|\s|\w?\d+|\P{L}{3}"), _behavior, _invert)
        )
        RECIPES[f"split string {_behavior} {'inverted' if _invert else ''}".strip()] = functools.partial(
            _pre_tokenized, pre_tokenizers.Split("e", _behavior, _invert)
        )
