# SPDX-License-Identifier: Apache-2.0
"""Tokenizers of the BERT, T5, XLM-R and related families, trained small by the `tokenizers` package, and others whose
components they have."""

import functools
import io
import json
import random
import struct

import sentencepiece
from model_proto import charsmap_of
from recipes import _ADDED, _byte_level, _edited, _metaspace, _pre_tokenized
from texts import SAMPLES, training_texts
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)  # fmt: skip

# For the texts of a test, beside those of recipes.py.
INSERTS = [
    "[UNK]", "[CLS]", "[SEP]", "##ing", "##", "do not", "isn't", "I'm they've", " ' ", "\r\n", "e\u0301\u0323", "\x01", "\x00",
    "\u0600\u0301", "｀\u0301", "ﾊﾟ", "\ufffd", "\u200b", "\u00a0", "中a文", "   ", "``'' ''", "<unk>", "<pad>", "<mask>",
]  # fmt: skip

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


@functools.cache
def charsmap(rule):
    """The replacement rules that SentencePiece compiles under that name."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SAMPLES[1:] * 5),
        model_writer=out,
        vocab_size=900,
        hard_vocab_limit=False,
        normalization_rule_name=rule,
        num_threads=1,
        minloglevel=2,
    )
    return charsmap_of(out.getvalue())


def charsmap_of_letters(rules):
    """Replacement rules of single ASCII characters, as src/tokenizer/charsmap.h describes the file."""
    units, texts = [256 << 10] + [0] * 511, b""
    for letter, text in rules.items():
        unit = 256 ^ ord(letter)
        units[unit] = ord(letter) | 1 << 8 | 128 << 10  # the value stands at unit ^ 128
        units[unit ^ 128] = 1 << 31 | len(texts)
        texts += text.encode() + b"\0"
    return struct.pack("<I", 2048) + struct.pack("<512I", *units) + texts


def _set(**parts):
    """An edit of the file: model__unk_token="x" sets model.unk_token; None of a model's field drops it."""

    def edit(data):
        for path, value in parts.items():
            *parents, last = path.split("__")
            place = functools.reduce(lambda part, key: part[key], parents, data)
            if value is None:
                place.pop(last)
            else:
                place[last] = value

    return edit


# --- WordPiece ---


@functools.cache
def _word_piece_base(lowercase, prefix, vocab_size):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", continuing_subword_prefix=prefix))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        continuing_subword_prefix=prefix,
        limit_alphabet=500,
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_texts(), trainer)
    return tokenizer.to_str()


def _word_piece(lowercase=True, prefix="##", vocab_size=2500, cleanup=True, added=False, edit=None, **parts):
    tokenizer = Tokenizer.from_str(_word_piece_base(lowercase, prefix, vocab_size))
    tokenizer.decoder = decoders.WordPiece(prefix=prefix, cleanup=cleanup)
    cls, sep = ((token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]"))
    tokenizer.post_processor = processors.BertProcessing(sep, cls)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    if added:
        tokenizer.add_tokens(_ADDED)
    return _edited(tokenizer, edit) if edit else tokenizer


# --- WordLevel ---


def _word_level(pre_tokenizer, decoder=None, normalizer=None, edit=None):
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.WordLevelTrainer(vocab_size=1500, special_tokens=["<unk>", "<s>"], show_progress=False)
    tokenizer.train_from_iterator(training_texts(), trainer)
    if decoder is not None:
        tokenizer.decoder = decoder
    return _edited(tokenizer, edit) if edit else tokenizer


# --- Unigram ---


@functools.cache
def _unigram_base(pre_tokenizer_state, vocab_size):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = (
        pre_tokenizers.ByteLevel(add_prefix_space=False) if pre_tokenizer_state == "bytes" else pre_tokenizers.Metaspace()
    )
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size,
        special_tokens=["<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if pre_tokenizer_state == "bytes" else ["▁"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_texts(), trainer)
    return tokenizer.to_str()


def _unigram(state="words", vocab_size=1500, edit_model=None, special=True, added=False, edit=None, **parts):
    data = json.loads(_unigram_base(state, vocab_size))
    if not special:
        data["added_tokens"] = []
    if edit_model:
        edit_model(data["model"])
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.decoder = decoders.ByteLevel() if state == "bytes" else decoders.Metaspace()
    if tokenizer.token_to_id("</s>") is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="$A </s>", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))]
        )
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    if added:
        tokenizer.add_tokens([*_ADDED, AddedToken("<mask>", special=True, lstrip=True, normalized=False)])
    return _edited(tokenizer, edit) if edit else tokenizer


def _add_bytes(missing=()):
    def edit(model):
        model["byte_fallback"] = True
        model["vocab"] += [[name, 0.0] for name in BYTES if name not in missing]

    return edit


def _tie(model):
    """Whole numbers, few of them: sums that are equal."""
    for entry in model["vocab"]:
        entry[1] = -(len(entry[0]) % 3)


def _few_characters(model):
    """Some characters remain only within longer pieces."""
    model["vocab"] = [entry for entry in model["vocab"] if entry[0] not in set("eta日é ")]


def _dear_pieces(model):
    """All scores above the penalty of the unknown token, which then goes before pieces of the vocabulary."""
    rng = random.Random(8)
    for entry in model["vocab"]:
        entry[1] = 100 + rng.random() * 10


def _list_again(model):
    rng = random.Random(9)
    model["vocab"] += [[entry[0], entry[1] - rng.random()] for entry in rng.sample(model["vocab"][3:], 300)]
    model["vocab"].insert(3, ["", -1.0])


def _albert():
    return normalizers.Sequence(
        [
            normalizers.Replace("``", '"'),
            normalizers.Replace("''", '"'),
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Precompiled(charsmap("nmt_nfkc")),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )


def _t5():
    return normalizers.Sequence(
        [
            normalizers.Precompiled(charsmap("nmt_nfkc")),
            normalizers.Strip(left=False, right=True),
            normalizers.Replace(Regex(" {2,}"), "▁"),
        ]
    )


def _bytes_decoder():
    return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])


def _metaspace_behind(*steps, **options):
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.Metaspace(**options)])


def _first(normalizer=None, *steps, split=False):
    """Where the blank of "first" goes is told by what normalizers and splits leave of the start."""
    tokenizer = _metaspace("first", added=True)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = _metaspace_behind(*steps, prepend_scheme="first", split=split)
    return tokenizer


def _post_processed(*names):
    """Post-processors behind one another. Two parts of a template are a pair to the next."""
    tokenizer = _byte_level(added=False)
    tokenizer.add_special_tokens(["[CLS]", "[SEP]", "<x>"])
    ids = {token: tokenizer.token_to_id(token) for token in ("<s>", "[CLS]", "[SEP]", "<x>")}
    cls, sep = (("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"]))

    def template(single, pair):
        return processors.TemplateProcessing(single=single, pair=pair, special_tokens=list(ids.items()))

    known = {
        "bert": processors.BertProcessing(sep, cls),
        "roberta": processors.RobertaProcessing(sep, cls),
        "left": template("<s> $A", "$B <x> $A"),
        "right": template("$A <x>", "$A $B"),
        "both": template("<s> $A <x>", "$A $B"),
        "twice": template("$A $A", "$A $B"),
    }
    tokenizer.post_processor = processors.Sequence([known[name] for name in names])
    return tokenizer


def _bert(**options):
    defaults = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**(defaults | options))


MODEL_RECIPES = {
    "wordpiece": _word_piece,
    "wordpiece added": lambda: _word_piece(added=True),
    "wordpiece cased": lambda: _word_piece(lowercase=False, cleanup=False),
    "wordpiece no prefix": lambda: _word_piece(prefix=""),
    "wordpiece long prefix": lambda: _word_piece(prefix="▁▁"),
    "wordpiece short words": lambda: _word_piece(edit=_set(model__max_input_chars_per_word=6)),
    "wordpiece no words": lambda: _word_piece(edit=_set(model__max_input_chars_per_word=0)),
    "wordpiece long words": lambda: _word_piece(
        pre_tokenizer=pre_tokenizers.Whitespace(), edit=_set(model__max_input_chars_per_word=1 << 40)
    ),
    "wordpiece other prefix": lambda: _word_piece(edit=_set(model__continuing_subword_prefix="#")),
    "wordpiece prefix of none": lambda: _word_piece(edit=_set(model__continuing_subword_prefix="@@@")),
    "wordpiece other unknown": lambda: _word_piece(edit=_set(model__unk_token="[MASK]")),
    "wordpiece old file": lambda: _word_piece(edit=_set(model__type=None)),
    "wordpiece no decoder": lambda: _word_piece(edit=_set(decoder=None)),
    "wordpiece decoders": lambda: _word_piece(
        decoder=decoders.Sequence([decoders.Replace("e", " ."), decoders.WordPiece(), decoders.Fuse(), decoders.Strip("t", 1, 0)])
    ),
    "wordpiece byte level": lambda: _word_piece(pre_tokenizer=pre_tokenizers.ByteLevel(), added=True),
    "wordlevel": lambda: _word_level(pre_tokenizers.Whitespace()),
    "wordlevel old file": lambda: _word_level(pre_tokenizers.WhitespaceSplit(), edit=_set(model__type=None)),
    "wordlevel bytes": lambda: _word_level(pre_tokenizers.ByteLevel(add_prefix_space=True), decoders.ByteLevel()),
    "wordlevel letters": lambda: _word_level(
        pre_tokenizers.Split(Regex("."), "isolated"), decoders.Fuse(), normalizers.ByteLevel()
    ),
    "wordlevel delimiter": lambda: _word_level(pre_tokenizers.CharDelimiterSplit("e")),
    "unigram": _unigram,
    "unigram old file": lambda: _unigram(edit=_set(model__type=None, model__byte_fallback=None)),
    "unigram t5": lambda: _unigram(normalizer=_t5(), added=True),
    "unigram xlmr": lambda: _unigram(
        normalizer=normalizers.Precompiled(charsmap("nmt_nfkc")),
        pre_tokenizer=_metaspace_behind(pre_tokenizers.WhitespaceSplit()),
        post_processor=processors.RobertaProcessing(("</s>", 1), ("<pad>", 0)),
        added=True,
    ),
    "unigram albert": lambda: _unigram(normalizer=_albert()),
    "unigram nmt": lambda: _unigram(normalizer=normalizers.Nmt(), special=False),
    "unigram first": lambda: _unigram(
        normalizer=normalizers.Strip(), pre_tokenizer=_metaspace_behind(prepend_scheme="first", split=False), added=True
    ),
    "unigram whole": lambda: _unigram(pre_tokenizer=pre_tokenizers.Split("\n", "isolated")),
    "unigram bytes": lambda: _unigram("bytes", pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "unigram byte fallback": lambda: _unigram(edit_model=_add_bytes(), decoder=_bytes_decoder()),
    "unigram missing bytes": lambda: _unigram(edit_model=_add_bytes(missing=["<0xF0>", "<0xC3>"]), decoder=_bytes_decoder()),
    "unigram ties": lambda: _unigram(edit_model=_tie),
    "unigram few characters": lambda: _unigram(edit_model=_few_characters),
    "unigram few characters, bytes": lambda: _unigram(
        edit_model=lambda model: (_few_characters(model), _add_bytes()(model)), decoder=_bytes_decoder()
    ),
    "unigram dear pieces": lambda: _unigram(edit_model=_dear_pieces, special=False),
    "unigram dear pieces, ties": lambda: _unigram(
        edit_model=lambda model: model.update(vocab=[[token, 30] for token, _ in model["vocab"]]), special=False
    ),
    "unigram listed again": lambda: _unigram(edit_model=_list_again, added=True),
    "unigram spelled unknown": lambda: _unigram(special=False, pre_tokenizer=pre_tokenizers.WhitespaceSplit()),
    "first, stripped": lambda: _first(normalizers.Strip()),
    "first, nmt": lambda: _first(normalizers.Nmt()),
    "first, accents": lambda: _first(normalizers.StripAccents()),
    "first, bert": lambda: _first(_bert(clean_text=True, handle_chinese_chars=True)),
    "first, precompiled": lambda: _first(normalizers.Precompiled(charsmap("nmt_nfkc"))),
    "first, replaced": lambda: _first(normalizers.Replace(Regex("[a-zA-Z]{2}"), "x")),
    "first, dropped": lambda: _first(normalizers.Replace(Regex("^[a-zA-Z](?=.)"), "")),
    "first, words": lambda: _first(None, pre_tokenizers.WhitespaceSplit(), split=True),
    "first, punctuation": lambda: _first(None, pre_tokenizers.Punctuation(), pre_tokenizers.BertPreTokenizer()),
    "bert normalizer": lambda: _byte_level(normalizer=normalizers.BertNormalizer()),
    "bert clean text": lambda: _byte_level(normalizer=_bert(clean_text=True)),
    "bert ideographs": lambda: _byte_level(normalizer=_bert(handle_chinese_chars=True)),
    "bert accents": lambda: _byte_level(normalizer=_bert(strip_accents=True)),
    "bert cased": lambda: _byte_level(normalizer=normalizers.BertNormalizer(lowercase=False)),
    "bert lower case with accents": lambda: _byte_level(normalizer=normalizers.BertNormalizer(strip_accents=False)),
    "nmt": lambda: _byte_level(normalizer=normalizers.Nmt()),
    "accents alone": lambda: _byte_level(normalizer=normalizers.StripAccents()),
    "byte level normalizer": lambda: _byte_level(normalizer=normalizers.ByteLevel()),
    "precompiled nmt_nfkc": lambda: _byte_level(normalizer=normalizers.Precompiled(charsmap("nmt_nfkc"))),
    "precompiled nfkc_cf": lambda: _byte_level(normalizer=normalizers.Precompiled(charsmap("nmt_nfkc_cf"))),
    "precompiled clusters": lambda: _byte_level(
        normalizer=normalizers.Precompiled(charsmap_of_letters({"a": "X", "1": "", "\n": "N", "\r": "R", "s": "ß"}))
    ),
    "unicode scripts": lambda: _pre_tokenized(pre_tokenizers.UnicodeScripts()),
    "fixed length": lambda: _pre_tokenized(pre_tokenizers.FixedLength(3)),
    "first, scripts": lambda: _first(None, pre_tokenizers.UnicodeScripts(), split=True),
    "first, fixed length": lambda: _first(None, pre_tokenizers.FixedLength(7), split=True),
    "bpe decoder": lambda: _word_piece(decoder=decoders.BPEDecoder(suffix="e"), added=True),
    "bpe decoder of nothing": lambda: _word_piece(decoder=decoders.BPEDecoder(suffix="")),
    "bpe decoder before others": lambda: _word_piece(
        decoder=decoders.Sequence([decoders.BPEDecoder(suffix="##"), decoders.Strip("t", 1, 0), decoders.Fuse()])
    ),
    "ctc decoder": lambda: _word_piece(decoder=decoders.CTC(pad_token="e", word_delimiter_token="##"), added=True),
    "ctc decoder as it is": lambda: _word_piece(decoder=decoders.CTC("a", "t", cleanup=False)),
    "ctc decoder of nothing": lambda: _word_piece(decoder=decoders.CTC("", "")),
    "ctc decoder before others": lambda: _word_piece(
        decoder=decoders.Sequence([decoders.CTC("##e", "##"), decoders.Strip("t", 1, 0), decoders.WordPiece("a")])
    ),
    **{
        f"post-processors, {name}": functools.partial(_post_processed, *names)
        for name, names in {
            "bert then template": ("bert", "left"),
            "template then bert": ("left", "bert"),
            "template then roberta": ("both", "roberta"),
            "roberta then bert": ("roberta", "bert"),
            "two templates": ("right", "left"),
            "a text twice": ("twice", "left"),
            "three": ("bert", "left", "roberta"),
        }.items()
    },
    "bert pre-tokenizer": lambda: _pre_tokenized(pre_tokenizers.BertPreTokenizer()),
    "char delimiter": lambda: _pre_tokenized(pre_tokenizers.CharDelimiterSplit("ー")),
}

for _behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
    MODEL_RECIPES[f"punctuation {_behavior}"] = functools.partial(_pre_tokenized, pre_tokenizers.Punctuation(_behavior))
