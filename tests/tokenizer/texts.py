# SPDX-License-Identifier: Apache-2.0
"""Texts to tokenize: written samples of many scripts, and seeded random ones."""

import functools
import json
import os
import random
import textwrap

SAMPLES = [
    "",
    " ",
    "Hello, world! It's a test; we're here, they'LL go, I'd say 'tis.",
    "The year 2026 has 31536000 seconds, 3.14159 is pi, 1,234,567.89 $ and 0x1F600.",
    "  leading blanks,   runs   of    blanks, trailing blanks    ",
    "tabs\tand\t\tmore\n\nnew lines\r\n\r\n  indented\n\t\tdeeper \n \n x",
    "no-break\u00a0blank, thin\u2009blank, ideographic\u3000blank, line\u2028sep, next\u0085line, \u180e mongolian",
    "naïve café résumé — “quotes” … fi ligature ﬁ, ß, İstanbul, ǆ, ſ long s: 'ſ 'S 'ﬆ",
    "e\u0301 vs \u00e9, a\u0308\u0304, q\u0307\u0323 vs q\u0323\u0307, Å \u212b A\u030a, \u1e9b\u0323",
    "Zalgo: h\u0335\u0321\u0315e\u0336\u0322\u031bl\u0334\u0328l\u0337o\u0338",
    "日本語のテキスト、カタカナとひらがな。中文文本，繁體字。한국어 텍스트 조합: \u1112\u1161\u11ab",
    "नमस्ते दुनिया १२३ क्षत्रिय; বাংলা; தமிழ்; తెలుగు; ไทยภาษา; ລາວ; བོད་ཡིག",
    "مرحبا بالعالم ٠١٢٣ السَّلَامُ عَلَيْكُمْ; שָׁלוֹם עולם; فارسی\u200cمی‌خواهم",
    "Привет, мир! Ελληνικά κείμενο. Հայերեն. ქართული. አማርኛ. ᏣᎳᎩ.",
    "😀 😃 👍🏽 👩‍👩‍👧‍👦 👨🏿‍🚀 🏳️‍🌈 🇩🇪🇫🇷 ❤️ ☺︎ 1️⃣ #️⃣ 🫠 🧑🏻‍❤️‍💋‍🧑🏿",
    "½ ² ³ Ⅷ ⅷ ① ㊿ ٣ 𝟘𝟙 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 Ⓐⓑ ﷽ ㎏ ｶﾞ ＦＵＬＬ",
    "controls \x00\x01\x02\x07\x08\x0b\x0c\x1b\x1c\x1d\x1e\x1f\x7f\x80\x9f end \ufeff bom \u200b zero \u2060 \u00ad",
    "private \ue000\uf8ff\U000f0000 unassigned \u0378\U000e0fff noncharacter \ufffe\U0010ffff new \u1c89\U00010d40\U0002ebf0",
    'def f(x: int) -> str:\n    return f"{x!r:>10}" if x else None  # comment\n\n\nclass A:\n\tpass\n',
    '<html><body class="a b">&nbsp;</body></html> {"json": [1, 2.5e-3, null]} SELECT * FROM t WHERE a<>\'b\';',
    "https://example.com/path?q=1&r=%20#frag user@example.com C:\\Windows\\System32 ../../etc",
    "ALLCAPS camelCase snake_case kebab-case SCREAMING_SNAKE x86_64 UTF-8 i18n",
    "▁ already marked ▁▁text▁ <0x41> <0xE2><0x96> <unk> Ġ Ċ",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "!!!???...---***///\\\\\\|||~~~```'''\"\"\"",
]

_ALPHABETS = [
    (0x20, 0x7E),
    (0x20, 0x7E),
    (0x00, 0x1F),
    (0xA0, 0x17F),
    (0x300, 0x36F),
    (0x370, 0x52F),
    (0x590, 0x6FF),
    (0x900, 0x97F),
    (0x2000, 0x206F),
    (0x2460, 0x24FF),
    (0x3040, 0x30FF),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0x1F300, 0x1FAFF),
    (0xFE00, 0xFE0F),
    (0x10000, 0x10FFFF),
]


def _character(rng):
    kind = rng.random()
    if kind < 0.3:
        return rng.choice(" \n\t\r\u00a0\u3000'")
    if kind < 0.35:
        code = rng.randrange(0x110000)
        return "\ufffd" if 0xD800 <= code <= 0xDFFF else chr(code)
    low, high = rng.choice(_ALPHABETS)
    return chr(rng.randint(low, high))


def random_texts(seed, count, inserts=()):
    """Texts of random characters, samples cut anywhere, and strings of `inserts` among them."""
    return list(_random_texts(seed, count, tuple(inserts)))


@functools.cache  # each recipe asks for the same
def _random_texts(seed, count, inserts):
    rng = random.Random(seed)
    texts = []
    for _ in range(count):
        parts = []
        for _ in range(rng.randint(1, 6)):
            kind = rng.random()
            if inserts and kind < 0.4:
                parts.append(rng.choice(inserts))
            elif kind < 0.7:
                sample = rng.choice(SAMPLES)
                begin = rng.randint(0, len(sample))
                parts.append(sample[begin : rng.randint(begin, len(sample))])
            else:
                parts.append("".join(_character(rng) for _ in range(rng.randint(0, 30))))
        texts.append("".join(parts))
    return texts


@functools.cache
def long_texts():
    """Lines of 100 kB: what must not take quadratic time."""
    rng = random.Random(7)
    size = 100_000
    return {
        "one letter": "a" * size,
        "two letters": "ab" * (size // 2),
        "random letters": "".join(rng.choice("etaoinshrdlu") for _ in range(size)),
        "blanks": " " * size,
        "line ends": "\n" * size,
        "line end, then blanks": "\n" + " " * size + "x",
        "digits": "1234567890" * (size // 10),
        "symbols": "-=" * (size // 2),
        "cjk": "".join(chr(rng.randint(0x4E00, 0x9FFF)) for _ in range(size // 3)),
        "emoji": "👩‍👩‍👧‍👦" * (size // 25),
        "marks": "a" + "\u0301\u0323" * (size // 4),
        "metaspace": "▁" * (size // 3),
        "open brackets": "<|" * (size // 2),
        "words": "lorem ipsum dolor " * (size // 18),
        "unknown bytes": "\U000e0fff" * (size // 4),
    }


def training_texts():
    sources = [os.__file__, json.__file__, textwrap.__file__]
    texts = list(SAMPLES) * 3
    for source in sources:
        with open(source, encoding="utf-8") as file:
            texts += file.read().split("\n\n")
    return texts
