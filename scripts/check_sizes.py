#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that files and functions stay as long as a reader can hold: 600 and 80 lines.

Counts C++ and Python below include, src, tools, tests, bench, compat, scripts and examples. Kernels (.cu, .cuh) may have longer
functions: what a thread does is one sequence, and its length is bounded by registers. Prints what is too long as
FILE:LINE and exits 1 if there is anything.
"""

import ast
import pathlib
import re
import sys

from checks import CPP, OPAQUE, ROOT, files_in, verdict

FOLDERS = ("include", "src", "tools", "tests", "bench", "compat", "scripts", "examples")
MAX_FILE, MAX_FUNCTION = 600, 80

# What may be longer, and why: tables and schemas, whose rows are read one at a time, and kernels. A function stands as
# "FILE FUNCTION".
LONGER = {
    "src/artifact/pickle.cc Step": "a row for each opcode",
    "src/ops/cuda/attention_decode.cuh": "one kernel, whose phases share the registers of a warp",
    "src/tokenizer/char_ranges.h": "a run of characters for each row",
    "tests/simulation/worlds.cc Worlds": "a row for each world",
    "tests/tools/test_torch_files.py exploits": "a row for each exploit",
    "tools/inflight/bench_load_tensors.h AddTensorLoad": "a schema of options",
    "tools/inflight/build.cc MakeSchema": "a schema of options",
    "tools/inflight/serve_options.cc AddGrpc": "a schema of options",
}

SCOPE = re.compile(r"\b(namespace|class|struct|union|enum)\b(?![^{]*\)\s*(const|noexcept|override|final)?\s*$)|extern\s*$")
NAME = re.compile(r"([~\w:]+|operator\s*\S+?)\s*\(")


def cpp_functions(text: str) -> list[tuple[str, int, int]]:
    """Name, first line and number of lines of each function that is in no other."""
    code = OPAQUE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    code = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", lambda m: re.sub(r"[^\n]", " ", m[0]), code, flags=re.MULTILINE)
    found, depth, head = [], 0, None  # head: of the function we are in, with its depth
    begin, parens, has_parens = 0, 0, False  # of what stands before the next brace
    for mark in re.finditer(r"[{}();]", code):
        if mark[0] in "()":
            parens, has_parens = parens + (1 if mark[0] == "(" else -1), True
            continue
        if mark[0] == "{":
            if head is None and parens == 0 and has_parens:  # else of a value: "f(X x = {})", "to_array({...})"
                before = code[begin:mark.start()]
                if not before.rstrip().endswith("=") and not SCOPE.search(before):
                    start = begin + len(before) - len(before.lstrip())
                    name = NAME.search(before)
                    head = (name[1] if name else "?", code.count("\n", 0, start) + 1, depth)
            depth += 1
        elif mark[0] == "}":
            depth -= 1
            # The brace of an initialiser is followed by the next one, or by the body.
            if head is not None and depth == head[2] and not re.match(r"\s*[,{]", code[mark.end():mark.end() + 200]):
                found.append((head[0], head[1], code.count("\n", 0, mark.end()) + 2 - head[1]))
                head, parens = None, 0
        if head is None and parens <= 0:
            begin, parens, has_parens = mark.end(), 0, False
    return found


def python_functions(text: str) -> list[tuple[str, int, int]]:
    return [(node.name, node.lineno, node.end_lineno - node.lineno + 1) for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def too_long(path: pathlib.Path, name: str) -> dict[str, str]:
    """What is too long in a file, by the key that LONGER would have for it."""
    text = path.read_text()
    found = {}
    lines = text.count("\n")
    if lines > MAX_FILE:
        found[name] = f"{name}: has {lines} lines, may have {MAX_FILE}: find its second idea"
    if path.suffix in {".cu", ".cuh"}:
        return found
    functions = python_functions(text) if path.suffix == ".py" else cpp_functions(text)
    for function, line, length in functions:
        if length > MAX_FUNCTION:
            found[f"{name} {function}"] = (
                f"{name}:{line}: {function} has {length} lines, may have {MAX_FUNCTION}: name its phases")
    return found


def main() -> int:
    found, checked = {}, 0
    for name in files_in(ROOT, *FOLDERS):
        if name.endswith((*CPP, ".py")):
            checked += 1
            found |= too_long(ROOT / name, name)
    problems = [problem for key, problem in found.items() if key not in LONGER]
    problems += [f"check_sizes.py: {key} is not too long any more" for key in LONGER.keys() - found.keys()]
    return verdict(problems, f"sizes: {checked} files, none too long")


if __name__ == "__main__":
    sys.exit(main())
