#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the character classes of src/tokenizer as the `tokenizers` package has them.

    .venv/bin/python scripts/make_unicode_tables.py [--check]

The package classes characters in several ways, by Oniguruma's properties in the patterns of models, by the `\\w` of Rust's
regex crate in its Whitespace pre-tokenizer, and by older tables in components of their own; all are asked about every
character. Three files come of it:

    src/tokenizer/char_ranges.h      runs of characters with the same flags, for CharTable
    src/tokenizer/pcre2_sets.h       Oniguruma's classes as those of this machine's libpcre2-8 (10.42 in Debian 12: Unicode
                                     14) and what these lack
    src/tokenizer/script_runs.h      runs of characters of the same script, as UnicodeScripts tells them apart

--check writes nothing; it exits 1 where a file differs from what would be written.
"""

import argparse
import ctypes
import ctypes.util
import functools
import pathlib
import sys
import textwrap

from tokenizers import Regex, normalizers, pre_tokenizers

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "src/tokenizer"
NO_SURROGATES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
BLOCK = 1 << 14

HEAD = """// SPDX-License-Identifier: Apache-2.0
// {what}
// Made by scripts/make_unicode_tables.py from what the `tokenizers` package does.
#pragma once

#include {include}

namespace inflight::tokenizer {{

"""
TAIL = "\n}  // namespace inflight::tokenizer\n"


@functools.cache
def blocks():
    """All characters: codes, and the text of these, of so many at a time."""
    parts = [NO_SURROGATES[at : at + BLOCK] for at in range(0, len(NO_SURROGATES), BLOCK)]
    return [(codes, "".join(map(chr, codes))) for codes in parts]


def matches(pattern, parts):
    """Characters that Oniguruma's `pattern` matches, of codes and the text of these."""
    split = pre_tokenizers.Split(Regex(pattern + "+"), "removed", invert=True)
    found = set()
    for codes, text in parts:
        for _, (begin, end) in split.pre_tokenize_str(text):
            found.update(codes[begin:end])
    return found


@functools.cache
def classed():
    """The characters of any class that is asked for, as `blocks`: most of all are of none, as planes 4 to 13 are."""
    names = "".join(rf"\p{{{name}}}" for name in (*CATEGORIES, *SCRIPTS))
    codes = sorted(matches(rf"[{names}\s\d\w]", blocks()) | matches(r"\w", blocks()))  # \w alone is another class
    return [(codes, "".join(map(chr, codes)))]


def onig(pattern, among=None):
    """Characters that Oniguruma's `pattern` matches, of all or of those `among` which alone it can."""
    return matches(pattern, classed() if among is None else [(among, "".join(map(chr, among)))])


def rust_words_and_blanks():
    """The characters of Rust's \\w, and of its \\s: the pieces of a text are \\w+ or [^\\w\\s]+, and words go on after an "a"."""
    pieces = pre_tokenizers.Whitespace()
    words, blanks = set(), set(NO_SURROGATES)
    for codes, text in blocks():
        for _, (begin, end) in pieces.pre_tokenize_str(text):
            blanks.difference_update(codes[begin:end])
            if len(pieces.pre_tokenize_str("a" + text[begin])) == 1:
                words.update(codes[begin:end])
    return words, blanks


def dropped_by(normalizer):
    """The characters that a text loses to `normalizer`: between two bars there is nothing left of them."""
    found = set()
    for codes, text in blocks():
        pieces = normalizer.normalize_str("|".join(text.replace("|", "a"))).split("|")
        found.update(code for code, piece in zip(codes, pieces, strict=True) if not piece)
    return found


def punctuation():
    """The characters that the Punctuation pre-tokenizer drops."""
    pieces = pre_tokenizers.Punctuation("removed")
    found = set(NO_SURROGATES)
    for codes, text in blocks():
        for _, (begin, end) in pieces.pre_tokenize_str(text):
            found.difference_update(codes[begin:end])
    return found


class Pcre2:
    """Classes of the libpcre2-8 that this machine has."""

    UTF, UCP, NO_UTF_CHECK = 0x00080000, 0x00020000, 0x40000000

    def __init__(self):
        self.library = ctypes.CDLL(ctypes.util.find_library("pcre2-8"))
        for name in ("pcre2_compile_8", "pcre2_match_data_create_8"):
            getattr(self.library, name).restype = ctypes.c_void_p
        self.library.pcre2_get_ovector_pointer_8.restype = ctypes.POINTER(ctypes.c_size_t)
        self.text = "".join(map(chr, NO_SURROGATES)).encode()

    def members(self, members):
        pattern = f"[{members}]+".encode()
        error, offset = ctypes.c_int(), ctypes.c_size_t()
        code = ctypes.c_void_p(
            self.library.pcre2_compile_8(
                pattern, ctypes.c_size_t(len(pattern)), self.UTF | self.UCP, ctypes.byref(error), ctypes.byref(offset), None
            )
        )
        assert code, pattern
        data = ctypes.c_void_p(self.library.pcre2_match_data_create_8(1, None))
        bounds = self.library.pcre2_get_ovector_pointer_8(data)
        text = self.text
        found, start = set(), 0
        while (
            self.library.pcre2_match_8(
                code, text, ctypes.c_size_t(len(text)), ctypes.c_size_t(start), self.NO_UTF_CHECK, data, None
            )
            > 0
        ):
            found.update(map(ord, text[bounds[0] : bounds[1]].decode()))
            start = bounds[1]
        return found


def runs(codes):
    """(first, last) of the runs of consecutive codes; the surrogates interrupt none."""
    result = []
    for code in sorted(codes):
        if result and code - result[-1][1] == 1:
            result[-1][1] = code
        else:
            result.append([code, code])
    return result


def char_ranges():
    words, blanks = rust_words_and_blanks()
    bert = functools.partial(normalizers.BertNormalizer, handle_chinese_chars=False, lowercase=False)
    classes = {
        "kLetter": onig(r"\p{L}"),
        "kNumber": onig(r"\p{N}"),
        "kSpace": blanks,
        "kMark": dropped_by(normalizers.StripAccents()),
        "kWord": words,
        "kPunctuation": punctuation(),
        "kControl": dropped_by(bert(clean_text=True, strip_accents=False)),
        "kNonspacing": dropped_by(bert(clean_text=False, strip_accents=True)),
    }
    assert classes["kSpace"] == onig(r"\s"), "Rust and Oniguruma agree on blanks"
    by_flags = {}
    for code in set().union(*classes.values()):
        flags = " | ".join(name for name, members in classes.items() if code in members)
        by_flags.setdefault(flags, []).append(code)
    rows = sorted((first, last, flags) for flags, codes in by_flags.items() for first, last in runs(codes))
    text = HEAD.format(what="The flags of all characters that have any.", include='"tokenizer/unicode.h"')
    text += "struct CharRange {\n  char32_t first, last;\n  uint8_t flags;  // CharFlag\n};\n\n"
    text += "// clang-format off\ninline constexpr CharRange kCharRanges[] = {\n"
    cells = [f"{{0x{first:X}, 0x{last:X}, {flags}}}," for first, last, flags in rows]
    text += "\n".join(
        textwrap.wrap(
            " ".join(c.replace(" ", "\0") for c in cells),
            96,
            break_on_hyphens=False,
            initial_indent="    ",
            subsequent_indent="    ",
        )
    ).replace("\0", " ")
    return text + "\n};\n// clang-format on\n" + TAIL


def escapes(codes):
    """Members of a class in PCRE2's words."""
    return "".join(rf"\x{{{a:x}}}" if a == b else rf"\x{{{a:x}}}-\x{{{b:x}}}" for a, b in runs(codes))


CATEGORIES = [
    *("L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "Z", "Zs", "Zl", "Zp", "Cf"),
    *("P", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So"),
]
SCRIPTS = [
    *("Arabic", "Bengali", "Cyrillic", "Devanagari", "Greek", "Han", "Hangul", "Hebrew", "Hiragana", "Katakana"),
    *("Latin", "Tamil", "Thai"),
]


def pcre2_sets():
    pcre2 = Pcre2()
    rows = []
    sets = {}

    def add(name, base, theirs):
        additions = escapes(theirs - (pcre2.members(base) if base else set()))
        sets[name] = base + additions
        if additions or base != rf"\p{{{name}}}":
            rows.append((name, sets[name]))

    of_group = {}  # by a group's letter, which comes first
    for name in CATEGORIES:
        # What PCRE2 has besides stays: U+1171E alone, a nonspacing mark until Unicode 14.
        theirs = onig(rf"[\p{{{name}}}]", of_group.get(name[0]))
        if len(name) == 1:
            of_group[name] = sorted(theirs)
        add(name, rf"\p{{{name}}}", theirs)
    for name in SCRIPTS:  # PCRE2 means by the bare name also what several scripts share
        add(name, rf"\p{{sc:{name}}}", onig(rf"[\p{{{name}}}]"))
    add(r"\s", "", onig(r"\s"))
    add(r"\d", r"\p{Nd}", onig(r"\d"))
    for name, pattern in ((r"\w", r"\w"), (r"[\w]", r"[\w]")):  # not the same to Oniguruma
        words = "".join(sets[part] for part in ("L", "M", "Nd", "Nl", "Pc"))
        rows.append((name, words + escapes(onig(pattern) - pcre2.members(words))))
    text = HEAD.format(what="Oniguruma's classes of characters in PCRE2's words.", include="<string_view>")
    text += "// What stands between [ and ] for a property, by its name, or for an escape.\n"
    text += "struct Pcre2Set {\n  std::string_view name;\n  std::string_view members;\n};\n\n"
    text += "// clang-format off\ninline constexpr Pcre2Set kPcre2Sets[] = {\n"
    for name, members in rows:
        lines = textwrap.wrap(members.replace("}\\", "} \\"), 84, break_on_hyphens=False)
        text += f'    {{R"({name})",\n' + "\n".join(f'     R"({line.replace(" ", "")})"' for line in lines) + "},\n"
    return text + "};\n// clang-format on\n" + TAIL


def joined(text):
    """For each character of `text` whether UnicodeScripts leaves it in one piece with the one before it."""
    begins = {begin for _, (begin, _) in pre_tokenizers.UnicodeScripts().pre_tokenize_str(text)}
    return [i not in begins for i in range(len(text))]


def script_runs():
    """Two characters are of one script if they stay together. What stays with any, as the blank does, is of script 0."""
    scripts = {}  # by code
    for at in range(0, len(NO_SURROGATES), BLOCK):
        codes = NO_SURROGATES[at : at + BLOCK]
        together = joined("".join(f"a{chr(c)}\u0416{chr(c)}" for c in codes))
        for i, code in enumerate(codes):
            if together[4 * i + 1] and together[4 * i + 3]:
                scripts[code] = 0
    others = [c for c in NO_SURROGATES if c not in scripts]
    firsts = []  # a character of each script from 1 on
    for code, goes_on in zip(others, joined("".join(map(chr, others))), strict=True):
        if not goes_on:
            together = joined("".join(chr(first) + chr(code) for first in firsts))[1::2]
            script = together.index(True) + 1 if True in together else len(firsts) + 1
            if script > len(firsts):
                firsts.append(code)
        scripts[code] = script
    text = HEAD.format(what="The scripts of characters: 0 goes with any, others have numbers.", include="<cstdint>")
    text += "// Up to the next run.\nstruct ScriptRun {\n  char32_t first;\n  uint8_t script;\n};\n\n"
    text += "// clang-format off\ninline constexpr ScriptRun kScriptRuns[] = {\n"
    cells, last = [], None
    for code in NO_SURROGATES:
        if scripts[code] != last:
            last = scripts[code]
            cells.append(f"{{0x{code:X},{last}}},")
    return (
        text
        + "\n".join(textwrap.wrap(" ".join(cells), 96, initial_indent="    ", subsequent_indent="    "))
        + ("\n};\n// clang-format on\n" + TAIL)
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    differs = False
    files = {"char_ranges.h": char_ranges, "pcre2_sets.h": pcre2_sets, "script_runs.h": script_runs}
    for name, content in ((name, make()) for name, make in files.items()):
        path = FOLDER / name
        if check and (not path.exists() or path.read_text() != content):
            print(f"{path}: differs from what scripts/make_unicode_tables.py makes")
            differs = True
        elif not check:
            path.write_text(content)
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
