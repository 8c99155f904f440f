#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what takes the bytes of a program: by section, then by whose the functions and tables are.

usage: scripts/program_size.py PROGRAM [--symbols N]      PROGRAM is not stripped, such as build/cpu-release/bin/inflight

A symbol belongs to the namespace that its name begins with: of ours also the folder (inflight::openai), of others the
library (google::protobuf). What no symbol covers, as text constants and unwinding tables, is in the sections alone.
"""

import argparse
import collections
import pathlib
import re
import subprocess

OPERATORS = re.compile(r"^(?:non-virtual thunk to |virtual thunk to |vtable for |typeinfo (?:name )?for |guard variable for |"
                       r"construction vtable for |VTT for |reference temporary #\d+ for )+")  # fmt: skip


def output(*command):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, check=True).stdout


def sections(program):
    """[(name, bytes in the file)], the largest first; those that a stripped program does not have are left out."""
    found = []
    for line in output("readelf", "--section-headers", "--wide", program).splitlines():
        match = re.match(r"\s*\[\s*\d+\]\s+(\S+)\s+(\w+)\s+[0-9a-f]+\s+[0-9a-f]+\s+([0-9a-f]+)\s+[0-9a-f]+\s+(\S*)", line)
        if match and "A" in match.group(4) and match.group(2) != "NOBITS":
            found.append((match.group(1), int(match.group(3), 16)))
    return sorted(found, key=lambda item: -item[1])


def without_arguments(name):
    """The name of a function or table without its return type, template arguments and parameters."""
    name = OPERATORS.sub("", name)
    depth, plain = 0, []
    for i, character in enumerate(name):
        if character == "<" and not name[:i].endswith("operator"):
            depth += 1
        elif character == ">" and depth > 0 and name[i - 1] != "-":
            depth -= 1
        elif depth == 0:
            if character == "(" and not name[i:].startswith("(anonymous namespace)"):
                break
            plain.append(character)
    words = "".join(plain).replace("(anonymous namespace)", "{}").split()
    return words[-1].lstrip("*&") if words else ""


def owner(name):
    parts = without_arguments(name).split("::")
    parts = [part for part in parts if part and part != "{}"]
    if len(parts) < 2:
        return "C and assembler"
    return "::".join(parts[:2]) if parts[0] in ("inflight", "google", "boost") and len(parts) > 2 else parts[0]


def symbols(program):
    """[(bytes, name)] of functions and data in the file."""
    found = []
    for line in output("nm", "--print-size", "--size-sort", "--demangle", "--defined-only", program).splitlines():
        _, size, kind, name = line.split(maxsplit=3)
        if kind not in "bB":  # zeros take no bytes of the file
            found.append((int(size, 16), name))
    return found


def table(title, rows, total):
    print(f"\n{title}")
    for name, size in rows:
        print(f"{size / 1e3:10.0f} kB {100 * size / total:5.1f} %  {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--symbols", type=int, default=15, metavar="N", help="single symbols to print")
    args = parser.parse_args()
    by_section = sections(args.program)
    total = sum(size for _, size in by_section)
    print(f"{total / 1e6:.1f} MB without symbols")
    table("section", by_section[:12], total)
    found = symbols(args.program)
    owners = collections.Counter()
    for size, name in found:
        owners[owner(name)] += size
    table("whose", owners.most_common(30), total)
    table("symbol", [(name[:140], size) for size, name in sorted(found, reverse=True)[: args.symbols]], total)


if __name__ == "__main__":
    main()
