# SPDX-License-Identifier: Apache-2.0
"""Files of tiktoken's ranks: vocabularies trained by the `tokenizers` package, and generated ones."""

import base64
import functools
import itertools
import json
import random

import recipes
import tiktoken
from tiktoken_ext import openai_public

BYTES = [bytes([byte]) for byte in range(256)]


@functools.cache
def _byte_of():
    """The byte that each character of the byte alphabet stands for, as GPT-2's published code assigns them."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


def trained(pattern, vocab_size=2000):
    """{bytes: rank} of a byte-level BPE: the 256 bytes, then what the merges make, in their order."""
    vocab = json.loads(recipes._byte_level_base(pattern, vocab_size))["model"]["vocab"]
    tokens = [bytes(_byte_of()[c] for c in token) for token in sorted(vocab, key=vocab.get) if token != "<s>"]
    return {token: rank for rank, token in enumerate(BYTES + [token for token in tokens if len(token) > 1])}


def shuffled(letters, longest, seed):
    """All strings of a few letters up to a length, ranked at random: most come about in several ways, some in none."""
    rng = random.Random(seed)
    words = ["".join(word).encode() for n in range(2, longest + 1) for word in itertools.product(letters, repeat=n)]
    words = rng.sample(words, len(words) * 3 // 4)
    return {token: rank for rank, token in enumerate(rng.sample(BYTES, 256) + words)}


def of_size(size, seed):
    """As many ranks as a published file has: bytes, all pairs of bytes, then some of three and four bytes."""
    rng = random.Random(seed)
    tokens = dict.fromkeys(BYTES)
    tokens |= dict.fromkeys(bytes(pair) for pair in itertools.product(range(256), repeat=2))
    while len(tokens) < size:
        tokens[rng.randbytes(rng.choice((3, 3, 4)))] = None
    return {token: rank for rank, token in enumerate(itertools.islice(tokens, size))}


def text_of(ranks):
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items())


def openai(name, ranks, monkeypatch):
    """An encoding as the package defines it, with other ranks in the place of the file that it would download."""
    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda *args, **kwargs: dict(ranks))
    definition = getattr(openai_public, name)()
    definition.pop("explicit_n_vocab", None)
    return definition


def encoding(name, ranks, pat_str, special_tokens):
    return tiktoken.Encoding(name, pat_str=pat_str, mergeable_ranks=ranks, special_tokens=special_tokens)
