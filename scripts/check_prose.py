#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what CONTRIBUTING.md says of documents, comments and error texts, as far as a program can.

usage: scripts/check_prose.py [ROOT]

- A line of a page has at most 120 columns, outside tables and code.
- A document names no commit: results of single commits stand in bench/results.
- The product supports a thing or does not: "is built", "are built" and "not built" in documents, comments and texts are
  found unless the words around say how or when a thing was put together (built for a device, when an engine is built).

Prints each fault as FILE:LINE and exits 1 if there is any.
"""

import pathlib
import re
import sys

from checks import ROOT, files_in, verdict

MAX_COLUMNS = 120
PAGES = re.compile(r".*\.md")
DOCUMENTS = re.compile(r"(README|CONTRIBUTING)\.md|docs/.*\.md")  # that name no commit
SOURCES = re.compile(r".*\.(h|cc|cu|cuh|md|py|sh|proto|cmake)|.*CMakeLists\.txt")
# History, the check itself and its test, and words of other people: of these columns alone are counted.
WORDS_UNCHECKED = re.compile(r"(CHANGELOG|changelog/).*|scripts/check_prose\.py|tests/scripts/test_check_prose\.py|models/.*")
COMMIT = re.compile(r"(?<![\w.#/-])(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}(?![\w./-])")
# Words behind "is built" that say how a thing was put together.
HOW = "after|afterwards|at|before|beside|by|for|from|in|into|of|on|once|when|where|with"
BUILT = re.compile(rf"\b(?:not built\b|(?:is|are) built\b(?! (?:{HOW})\b))")
# Words before it that do: "when an engine is built".
WHEN = re.compile(r"\b(?:after|before|once|when|while) (?:\w+ ){1,2}\Z", re.IGNORECASE)
# A phrase that a line break cuts in two, in a text or a comment.
BREAK = re.compile(r"(?:\s*\"\s*\n\s*\"|\s*\n\s*(?://+|#)?)\s*")


def prose_lines(text: str):
    """Line numbers and lines of a document outside tables and code."""
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith(("|", "    ")):
            yield number, line


def faults_of_columns(text: str) -> list[tuple[int, str]]:
    return [(number, f"{len(line)} columns, {MAX_COLUMNS} are allowed outside tables and code")
            for number, line in prose_lines(text) if len(line) > MAX_COLUMNS]


def faults_of_commits(text: str) -> list[tuple[int, str]]:
    return [(number, f"'{match[0]}' looks like a commit; its results belong to bench/results")
            for number, line in enumerate(text.split("\n"), 1) for match in COMMIT.finditer(line)]


def faults_of_words(text: str) -> list[tuple[int, str]]:
    """Where something is "built" that is supported."""
    faults = []
    joined, starts = "", []  # the text with its breaks as blanks, and where each piece of it stood
    end = 0
    for match in BREAK.finditer(text):
        starts.append((len(joined), end))
        joined += text[end:match.start()] + " "
        end = match.end()
    starts.append((len(joined), end))
    joined += text[end:]
    for match in BUILT.finditer(joined):
        if match[0] != "not built" and WHEN.search(joined, max(0, match.start() - 60), match.start()):
            continue
        at, place = [pair for pair in starts if pair[0] <= match.start()][-1]
        number = text.count("\n", 0, place + match.start() - at) + 1
        faults.append((number, f"'{match[0]}': say what is supported"))
    return faults


def faults_of(path: str, text: str) -> list[str]:
    """All faults of one file, each as FILE:LINE: what."""
    faults = []
    if PAGES.fullmatch(path):
        faults += faults_of_columns(text)
    if DOCUMENTS.fullmatch(path):
        faults += faults_of_commits(text)
    if SOURCES.fullmatch(path) and not WORDS_UNCHECKED.fullmatch(path):
        faults += faults_of_words(text)
    return [f"{path}:{number}: {what}" for number, what in sorted(faults)]


def main() -> int:
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    paths = [path for path in files_in(root) if SOURCES.fullmatch(path)]
    problems = [fault for path in paths for fault in faults_of(path, (root / path).read_text())]
    if not paths:
        problems.append(f"{root}: has no file to check")
    return verdict(problems, f"prose: {len(paths)} files, as CONTRIBUTING.md says")


if __name__ == "__main__":
    sys.exit(main())
