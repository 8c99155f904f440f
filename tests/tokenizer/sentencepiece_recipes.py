# SPDX-License-Identifier: Apache-2.0
"""SentencePiece models, trained small by the `sentencepiece` package."""

import functools
import io

import sentencepiece
from model_proto import CONTROL, NORMAL, UNUSED, edit_pieces
from texts import SAMPLES, training_texts

# Strings that the texts of a test should hold, whether a recipe defines them or not.
INSERTS = [
    "<user>", "<user>x", "<us", "▁", "▁▁", " ▁", "<0x41>", "<s>", "</s>", "<unk>", "two words", "two", "  ", "\t",
    "e\u0301", "ab", "abc", "the", "ﬁ", "①", "Ａ", "\u3000",
]  # fmt: skip

_USER_DEFINED = ["<user>", "<user>x", "two words", "▁▁", "ab", "é", "ﬁ"]


@functools.cache
def _train(model_type, vocab_size=900, user_defined=(), **options):
    out = io.BytesIO()
    lines = [line for text in training_texts() for line in text.splitlines() if line.strip()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines[:1500] + SAMPLES[1:] * 2),
        model_writer=out,
        model_type=model_type,
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        user_defined_symbols=list(user_defined),
        num_threads=1,
        minloglevel=2,
        **options,
    )
    return out.getvalue()


def _set_types(choose, new_type):
    def edit(pieces):
        for i, piece in enumerate(pieces):
            if piece.type == NORMAL and choose(i, piece.piece):
                piece.type = new_type

    return edit


def _drop_characters(pieces):
    """Some characters remain only within longer pieces."""
    pieces[:] = [p for p in pieces if p.type != NORMAL or p.piece not in set("eta日é")]


def _equal_scores(pieces):
    for piece in pieces:
        piece.score = -float(len(piece.piece) % 3)


def _recipes(kind):
    train = functools.partial(_train, kind)
    llama = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    return {
        "default": lambda: train(),
        "nfkc": lambda: train(normalization_rule_name="nfkc"),
        "nfkc_cf": lambda: train(normalization_rule_name="nfkc_cf", byte_fallback=True),
        "llama": lambda: train(byte_fallback=True, split_digits=True, allow_whitespace_only_pieces=True, **llama),
        "identity": lambda: train(**llama),
        "no dummy prefix": lambda: train(add_dummy_prefix=False, byte_fallback=True, **llama),
        "no prefix, blanks removed": lambda: train(add_dummy_prefix=False),
        "suffix": lambda: train(treat_whitespace_as_suffix=True),
        "across words": lambda: train(split_by_whitespace=False, byte_fallback=True),
        "user defined": lambda: train(user_defined=tuple(_USER_DEFINED)),
        "user defined, bytes": lambda: train(user_defined=tuple(_USER_DEFINED), byte_fallback=True, **llama),
        "user defined, no prefix": lambda: train(
            user_defined=tuple(_USER_DEFINED), byte_fallback=True, add_dummy_prefix=False, **llama
        ),
        "special pieces": lambda: train(
            bos_id=3, eos_id=-1, pad_id=0, unk_id=2, unk_surface="?", pad_piece="[PAD]", control_symbols="<ctrl>,q"
        ),
        "unused": lambda: edit_pieces(train(byte_fallback=True), _set_types(lambda i, p: i % 3 == 0, UNUSED)),
        "unused, unknown": lambda: edit_pieces(
            train(user_defined=tuple(_USER_DEFINED)), _set_types(lambda i, p: i % 2 == 0 and p != "▁", UNUSED)
        ),
        "control in use": lambda: edit_pieces(train(), _set_types(lambda i, p: i % 7 == 0, CONTROL)),
        "dropped characters": lambda: edit_pieces(train(), _drop_characters),
        "equal scores": lambda: edit_pieces(train(byte_fallback=True), _equal_scores),
    }


RECIPES = {f"{kind} {name}": make for kind in ("bpe", "unigram") for name, make in _recipes(kind).items()}
