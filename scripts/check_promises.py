#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each promise of SECURITY.md has its tests in docs/production.md, and that they exist.

A row of SECURITY.md's table of who is defended against needs a row of its own in the table of promises, which begins
with the same words and names at least one test as `path::test_name` or `path::Suite.Name`. Prints FILE:LINE: what,
exits 1 if there is anything to mend.

usage: check_promises.py [ROOT]
"""

import pathlib
import re
import sys

from checks import ROOT, verdict

SECURITY, PRODUCTION = "SECURITY.md", "docs/production.md"
WHO, PROMISES = "Who is defended against", "Promises and their tests"
TEST = re.compile(r"`([\w/.-]+)::([\w.]+)`")


def rows(text: str, heading: str) -> list[tuple[int, list[str]]]:
    """Line and cells of each row of the tables below a heading, without their heads."""
    found, inside, in_table = [], False, False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            inside = line == f"## {heading}"
        is_row = line.startswith("|")
        if inside and is_row and in_table and not line.startswith("|---"):
            found.append((number, [cell.strip() for cell in line.strip().strip("|").split("|")]))
        in_table = is_row
    return found


def plain(cell: str) -> str:
    """A cell's text without its links."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell)


def exists(root: pathlib.Path, path: str, name: str) -> bool:
    file = root / path
    if not file.is_file():
        return False
    if path.endswith(".py"):
        return re.search(rf"^def {re.escape(name)}\(", file.read_text(), re.MULTILINE) is not None
    suite, _, test = name.partition(".")
    return re.search(rf"\bTEST(_F|_P)?\({re.escape(suite)},\s*{re.escape(test)}\)", file.read_text()) is not None


def main() -> int:
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    promised = rows((root / SECURITY).read_text(), WHO)
    tested = rows((root / PRODUCTION).read_text(), PROMISES)
    problems = [] if promised else [f"{SECURITY}:1: there is no table below '{WHO}'"]
    taken = {}  # line of a row of promises -> the promise that it stands for
    for line, cells in promised:
        who = plain(cells[0])
        mine = [(len(plain(row[0])), number) for number, row in tested if who.startswith(plain(row[0]))]
        number = max(mine)[1] if mine else None  # the row that has most of its words
        if number is None:
            problems.append(f"{SECURITY}:{line}: '{who}' has no row in {PRODUCTION}, '{PROMISES}'")
        elif number in taken:
            problems.append(f"{SECURITY}:{line}: '{who}' has no row of its own in {PRODUCTION}, but that of '{taken[number]}'")
        taken.setdefault(number, who)
    for line, cells in tested:
        if line not in taken:
            problems.append(f"{PRODUCTION}:{line}: '{cells[0]}' is no row of {SECURITY}, '{WHO}'")
        tests = TEST.findall(cells[-1])
        if not tests:
            problems.append(f"{PRODUCTION}:{line}: '{cells[0]}' names no test as `path::name`")
        missing = [f"{path}::{name}" for path, name in tests if not exists(root, path, name)]
        problems += [f"{PRODUCTION}:{line}: there is no test {name}" for name in missing]
    return verdict(problems, f"promises: {len(promised)}, each with its tests")


if __name__ == "__main__":
    sys.exit(main())
