#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that what comments and documents refer to is there for whoever reads them.

    links      [text](path#heading) in documents: the file, and the heading (entries of changelog/ are read at the root)
    headings   docs/page.md, "Heading" in comments and documents: the page has that heading
    paths      docs/..., src/..., tests/... and other folders of the repository; wildcards and {a,b} have to match
    sources    folder/name.h, and name.h or name.md where no repository is named: some file of that path is here
    sections   are named by their headings, not by numbers behind a section sign or "spec"

Files of other repositories are written with their owner: NVIDIA/TensorRT-LLM/cpp/..., so that none is taken for ours.

usage: check_references.py [ROOT [FILE...]]: all files that git knows, or these. Prints FILE:LINE: what, exits 1 if anything.
"""

import ast
import dataclasses
import pathlib
import re
import sys

from checks import OPAQUE, ROOT, files_in, verdict

FOLDERS = ("docs", "src", "tests", "scripts", "bench", "tools", "include", "deploy", "cmake", "changelog", "examples")
SLASH_COMMENTS = {".h", ".cc", ".cu", ".cuh", ".proto", ".cpp"}
HASH_COMMENTS = {".sh", ".cmake", ".toml", ".yaml", ".yml", ".txt", ".supp"}
HISTORY = ("CHANGELOG.md", "changelog/")  # may name what has gone; their links may not
LEFT_OUT = ("tests/golden/data/", "models/", "scripts/check_references.py", "tests/scripts/test_check_references.py")

BEFORE = "(?<![\\w/.<>$*\u2026-])"
PATH = re.compile(BEFORE + r"(?:" + "|".join(FOLDERS) + r")/[\w./*{},+-]*")
SOURCE = re.compile(BEFORE + r"(?:[\w-]+/)*[A-Za-z0-9][\w-]*\.(?:h|cc|cu|cuh|md)\b(?!/|\.\w)")
HEADING = re.compile(BEFORE + r'(docs/[\w/.-]+\.md),\s+"([^"]+)"')
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
SECTION = re.compile("\u00a7|\\bspec \\d")
INCLUDE = re.compile(r"(?m)^\s*#\s*include\s*<([^>]+)>")
STANDING_FOR_ANY = {"foo.h", "foo.cc", "foo_test.cc"}
# Owners of other repositories; folders of TensorRT-LLM and its backend, which pages of docs/reference/ name without it.
UPSTREAM = ("NVIDIA/", "ggml-org/", "triton-inference-server/", "cpp/", "tensorrt_llm/", "all_models/", "inflight_batcher_llm/")


@dataclasses.dataclass
class Piece:
    """Text that is read, and the line that it begins in."""

    line: int
    text: str


def slash_comments(source: str) -> list[Piece]:
    """Comments of a C++ file; lines of // that follow one another are one piece."""
    pieces: list[Piece] = []
    last = -1
    for match in OPAQUE.finditer(source):
        text = match.group()
        if not text.startswith(("//", "/*")):
            continue
        line = source.count("\n", 0, match.start()) + 1
        body = re.sub(r"(?m)^\s*(?://|/\*|\*)+", "", text)
        if text.startswith("//") and line == last + 1:
            pieces[-1].text += "\n" + body
        else:
            pieces.append(Piece(line, body))
        last = line + text.count("\n")
    return pieces


def hash_comments(source: str) -> list[Piece]:
    pieces: list[Piece] = []
    last = -1
    for line, text in enumerate(source.split("\n"), 1):
        match = re.search(r"(?:^|\s)#(.*)", text)
        if match is None:
            continue
        if line == last + 1:
            pieces[-1].text += "\n" + match.group(1)
        else:
            pieces.append(Piece(line, match.group(1)))
        last = line
    return pieces


def python_comments(source: str) -> list[Piece]:
    pieces = hash_comments(re.sub(r'(?s)""".*?"""', lambda m: "\n" * m.group().count("\n"), source))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node):
            text = node.body[0].value
            pieces.append(Piece(text.lineno, text.value))
    return pieces


def pieces_of(path: pathlib.Path, source: str) -> list[Piece]:
    if path.suffix == ".md":
        return [Piece(1, source)]
    if path.suffix in SLASH_COMMENTS:
        return slash_comments(source)
    if path.suffix == ".py":
        return python_comments(source)
    if path.suffix in HASH_COMMENTS or source.startswith("#!"):
        return hash_comments(source)
    return []


def headings_of(text: str) -> list[str]:
    """Headings of a page, without code blocks and marks."""
    text = re.sub(r"(?ms)^```.*?^```", "", text)
    return [re.sub(r"[`*]", "", line).strip() for line in re.findall(r"(?m)^#+\s+(.*)$", text)]


def anchors_of(text: str) -> set[str]:
    """As GitHub makes them: lower case, without punctuation, blanks as dashes, repeated ones numbered."""
    anchors: set[str] = set()
    for heading in headings_of(text):
        anchor = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")
        number = 0
        while (name := anchor if number == 0 else f"{anchor}-{number}") in anchors:
            number += 1
        anchors.add(name)
    return anchors


def expand(path: str) -> list[str]:
    """a.{h,cc} -> a.h a.cc"""
    match = re.search(r"\{([^{}]*)\}", path)
    if match is None:
        return [path]
    return [p for word in match.group(1).split(",") for p in expand(path[:match.start()] + word + path[match.end():])]


class Checker:
    def __init__(self, root: pathlib.Path, files: list[str]):
        self.root = root
        self.files = set(files)
        self.folders = {str(parent) for file in files for parent in pathlib.PurePath(file).parents}
        self.tails = {"/".join(parts[i:]) for file in files for parts in [file.split("/")] for i in range(len(parts))}
        self.foreign = set(STANDING_FOR_ANY)  # also headers of libraries that sources include
        for file in files:
            if pathlib.PurePath(file).suffix in SLASH_COMMENTS:
                self.foreign.update(INCLUDE.findall(self.page(file)))
        self.problems: list[str] = []

    def exists(self, path: str) -> bool:
        name = path.rstrip("/")
        if "*" in name:
            pattern = re.compile(re.escape(name).replace(r"\*", "[^/]*") + "$")
            return any(pattern.match(file) for file in self.files | self.folders)
        if name in self.files or name in self.folders:
            return True
        # Without an ending: all files of that name, such as foo/bar for bar.h and bar.cc.
        return "." not in name.rsplit("/", 1)[-1] and not path.endswith("/") and any(
            name + suffix in self.files for suffix in (".h", ".cc", ".cuh", ".cu", ".py"))

    def page(self, path: str) -> str:
        return (self.root / path).read_text(encoding="utf-8")

    def check(self, file: str) -> None:
        path = pathlib.PurePath(file)
        try:
            source = self.page(file)
        except (UnicodeDecodeError, OSError):
            return
        for piece in pieces_of(pathlib.Path(file), source):
            def report(match: re.Match, what: str, piece: Piece = piece) -> None:
                line = piece.line + piece.text.count("\n", 0, match.start())
                self.problems.append(f"{file}:{line}: {what}")

            if path.suffix == ".md":
                self.check_links(file, piece, report)
            if not file.startswith(HISTORY):
                self.check_text(file, piece, report)

    def check_links(self, file: str, piece: Piece, report) -> None:
        for match in LINK.finditer(re.sub(r"(?ms)^```.*?^```", lambda m: re.sub(r"[^\n]", " ", m.group()), piece.text)):
            target, _, anchor = match.group(1).partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            base = pathlib.PurePath("." if file.startswith("changelog/") else str(pathlib.PurePath(file).parent))
            there = str(pathlib.PurePath(*self.normal(base / target))) if target else file
            if not self.exists(there):
                report(match, f"link to {match.group(1)}: there is no {there}")
            elif anchor and (not there.endswith(".md") or anchor not in anchors_of(self.page(there))):
                report(match, f"link to {match.group(1)}: {there} has no such heading")

    @staticmethod
    def normal(path: pathlib.PurePath) -> list[str]:
        parts: list[str] = []
        for part in path.parts:
            if part == "..":
                parts = parts[:-1] if parts else [".."]
            elif part != ".":
                parts.append(part)
        return parts

    def check_text(self, file: str, piece: Piece, report) -> None:
        text = piece.text
        if file.endswith(".md"):  # targets of links were looked at
            text = LINK.sub(lambda m: m.group().replace(m.group(1), " " * len(m.group(1))), text)
        for match in HEADING.finditer(text):
            page, heading = match.group(1), re.sub(r"\s+", " ", match.group(2))
            if page in self.files and heading not in headings_of(self.page(page)):
                report(match, f'{page} has no heading "{heading}"')
        for match in PATH.finditer(text):
            name = match.group().rstrip(".,-+{*") if not match.group().endswith(("/*", "_*")) else match.group()
            if text[match.end():match.end() + 1] in ("<", "$", "\u2026"):  # a pattern: its folder counts
                name = name[:name.rfind("/") + 1]
            for one in expand(name):
                if not self.exists(one):
                    report(match, f"there is no {one}")
        for match in SOURCE.finditer(text):
            name = match.group()
            if name.startswith((*(folder + "/" for folder in FOLDERS), *UPSTREAM)) or name in self.foreign:
                continue
            if name not in self.tails:
                report(match, f"there is no {name}")
        for match in SECTION.finditer(text):
            report(match, "name the heading, not the number of a section")


def main(arguments: list[str]) -> int:
    root = pathlib.Path(arguments[0]) if arguments else ROOT
    files = files_in(root)
    checker = Checker(root, files)
    for file in arguments[1:] or files:
        if not file.startswith(LEFT_OUT):
            checker.check(file)
    return verdict(checker.problems, f"references: {len(files)} files, all there")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
