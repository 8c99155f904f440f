#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no code decides by the words of a Status: its code, reason() and field() are for programs (status.h).

Prints FILE:LINE of each search in the text of `message()`, also of a variable that holds it, and exits 1 if there is any.
Tests may look for words.

usage: scripts/check_messages.py [ROOT]
"""

import pathlib
import re
import sys

from checks import CPP, ROOT, files_in, verdict

SEARCH = r"\s*\.\s*(?:find|rfind|find_first_of|starts_with|ends_with|contains|compare|substr)\s*\("
HELD = re.compile(r"\b(\w+)\s*(?:=|\(|\{)\s*[\w.:*>()-]*?(?:\.|->)message\(\)\s*[;)}]")
COMPARED = re.compile(r"message\(\)\s*(?:==|!=)|(?:==|!=)\s*[\w.:*>()-]*?(?:\.|->)message\(\)")
ASKED = re.compile(r"\b(?:Is|Has|Contains)\w*\(\s*[\w.:*>()-]*?(?:\.|->)message\(\)")  # a predicate of the text


def faults(text: str) -> list[int]:
    """Lines, from 1, that search a message."""
    names = {name for name in HELD.findall(text) if name not in {"if", "return", "Append"}}
    searched = "|".join([r"message\(\)", *(rf"\b{re.escape(name)}" for name in sorted(names))])
    found = re.compile(f"(?:{searched}){SEARCH}")
    starts = [match.start() for pattern in (found, COMPARED, ASKED) for match in pattern.finditer(text)]
    return sorted({text.count("\n", 0, start) + 1 for start in starts})


def main() -> int:
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    files = [path for path in files_in(root, "include", "src", "tools")
             if path.endswith(CPP) and not pathlib.PurePath(path).stem.endswith("_test")]
    problems = [f"{path}:{line}: searches the text of a status"
                for path in files for line in faults((root / path).read_text())]
    return verdict(problems, f"messages: {len(files)} files, none decides by words")


if __name__ == "__main__":
    sys.exit(main())
