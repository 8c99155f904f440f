#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the minutes of each part of a CI run and names those that grew; the reference is the table of docs/testing.md.

usage: scripts/ci_minutes.py RUN [--cache cold|warm] [--write]

RUN has a line `part<TAB>seconds<TAB>seconds of building` for each part, as .ci/run writes it. A part grew when it took over
10 % more than in the reference, and over 10 seconds more. With a warm compiler cache building is left out on both sides.
It is a warning and never a failure, since machines differ. --write makes this run, which began with an empty compiler
cache, the reference.
"""

import argparse
import os
import pathlib
import re
import sys

DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "docs/testing.md"
BEGIN, END = "<!-- minutes of CI: scripts/ci_minutes.py --write -->\n", "<!-- end of minutes -->\n"
GROWTH, NOISE_MIN = 1.1, 10 / 60
Part = tuple[float, float]  # minutes, of them building


def read_run(path: pathlib.Path) -> dict[str, Part]:
    rows = (line.split("\t") for line in path.read_text().splitlines())
    return {name: (int(seconds) / 60, int(build) / 60) for name, seconds, build in rows}


def machine() -> str:
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return f"{os.cpu_count()} cores of {model[1].strip() if model else 'a processor without a name'}"


def table(parts: dict[str, Part]) -> str:
    total = (sum(part[0] for part in parts.values()), sum(part[1] for part in parts.values()))
    rows = [f"| {name} | {minutes:.1f} | {build:.1f} |" for name, (minutes, build) in [*parts.items(), ("all", total)]]
    return "\n".join(["| part | minutes | of them building |", "|---|---|---|", *rows]) + "\n"


def reference() -> tuple[str, dict[str, Part]]:
    """The machine and the parts that docs/testing.md has."""
    text = DOCUMENT.read_text().split(BEGIN)[1].split(END)[0]
    rows = re.findall(r"^\| ([a-z]+) \| ([0-9.]+) \| ([0-9.]+) \|$", text, re.MULTILINE)
    where = re.search(r"On (.*?),", text)
    return where[1] if where else "", {name: (float(minutes), float(build)) for name, minutes, build in rows if name != "all"}


def grown(parts: dict[str, Part], before: dict[str, Part], with_build: bool) -> list[str]:
    lines = []
    for name, part in parts.items():
        if name not in before:
            continue
        now, then = (minutes if with_build else minutes - build for minutes, build in (part, before[name]))
        if now > then * GROWTH and now > then + NOISE_MIN:
            what = name if with_build else f"{name} without its build"
            more = now / max(then, 0.1) - 1
            lines.append(f"warning: {what} took {now:.1f} minutes, {more:.0%} over the {then:.1f} of docs/testing.md")
    return lines


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("run", type=pathlib.Path)
    arguments.add_argument("--cache", choices=["cold", "warm"], default="cold")
    arguments.add_argument("--write", action="store_true")
    chosen = arguments.parse_args()
    parts = read_run(chosen.run)
    print(f"On {machine()}, with a {chosen.cache} compiler cache:\n\n{table(parts)}")
    where, before = reference()
    warnings = grown(parts, before, chosen.cache == "cold")
    print("\n".join(warnings) or "No part grew by more than 10 %.")
    if warnings and where != machine():
        print(f"The minutes of docs/testing.md were measured on other hardware: {where}.")
    if chosen.write:
        text = DOCUMENT.read_text()
        head, tail = text.split(BEGIN)[0], text.split(END)[1]
        lead = f"On {machine()}, with an empty compiler cache:\n\n"
        DOCUMENT.write_text(head + BEGIN + lead + table(parts) + END + tail)
    return 0


if __name__ == "__main__":
    sys.exit(main())
