#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/requirements.txt, tests/clients.txt and tests/demo.txt: each Python package of the .in file of that name
and what it needs, by version and SHA-256. Those of demo.txt are part of requirements.txt.

usage: scripts/pin_python.py [--upgrade]

pip resolves for each machine of TARGETS, from the indexes that it is configured for, and says which file it would
take. Only wheels are taken, so that nothing of a package runs when it is installed. Versions that the file has stay,
unless --upgrade is given or the .in file asks for another.
"""

import argparse
import itertools
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILES = ("requirements", "clients", "demo")  # of tests/
PART_OF = {"demo": "requirements"}  # whose versions it has, in the same virtual environment; others have one of their own
GLIBC = {"3.11": 36, "3.12": 39}  # minor version of the C library beside this Python: Debian 12, Ubuntu 24.04
ARCHITECTURES = ("x86_64", "aarch64")
TARGETS = list(itertools.product(GLIBC, ARCHITECTURES))
HEAD = """\
# Written by scripts/pin_python.py from the .in file of this name. pip takes no file whose SHA-256 is not listed here.
--only-binary :all:
--require-hashes
"""


def canonical(name):
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text):
    """{canonical name: version} of the lines NAME==VERSION."""
    found = re.findall(r"^([\w.-]+)(?:\[[^\]]*\])?==([^\s\\;]+)", text, re.MULTILINE)
    return {canonical(name): version for name, version in found}


def resolved(asked, python, architecture, constraints):
    """[(canonical name, version, SHA-256)] that pip would install for a Python on a machine."""
    platforms = [f"manylinux_2_{minor}_{architecture}" for minor in range(GLIBC[python], 4, -1)]
    with tempfile.TemporaryDirectory() as work:
        report, limits = pathlib.Path(work, "report.json"), pathlib.Path(work, "constraints.txt")
        limits.write_text("".join(f"{name}=={version}\n" for name, version in constraints.items()))
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run", "--ignore-installed",
             "--target", work, "--implementation", "cp", "--python-version", python, "--only-binary", ":all:",
             *(word for platform in platforms for word in ("--platform", platform)),
             "--report", report, "--requirement", asked, "--constraint", limits], check=True,
        )  # fmt: skip
        files = json.loads(report.read_text())["install"]
    return [
        (canonical(data["name"]), data["version"], file["download_info"]["archive_info"]["hashes"]["sha256"])
        for file in files
        for data in [file["metadata"]]
    ]


def text_of(found):
    """The file's text for {name: {version: {SHA-256}}}."""
    lines = []
    for name, versions in sorted(found.items()):
        if len(versions) != 1:
            sys.exit(f"{name}: the targets resolve to versions {', '.join(versions)}; say which in the .in file")
        ((version, hashes),) = versions.items()
        lines.append(" \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{digest}" for digest in sorted(hashes))]))
    return HEAD + "\n".join(lines) + "\n"


def write(name, upgrade):
    source, pinned, whole = (ROOT / f"tests/{file}" for file in (f"{name}.in", f"{name}.txt", f"{PART_OF.get(name, name)}.txt"))
    asked = pins(source.read_text())
    kept = pins(whole.read_text()) if whole.exists() and (name in PART_OF or not upgrade) else {}
    found = {}
    for python, architecture in TARGETS:
        for name, version, digest in resolved(source, python, architecture, kept | asked):
            found.setdefault(name, {}).setdefault(version, set()).add(digest)
    pinned.write_text(text_of(found))
    print(f"{pinned.relative_to(ROOT)}: {len(found)} packages for {len(TARGETS)} targets")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that the .in files allow")
    upgrade = parser.parse_args().upgrade
    for name in FILES:
        write(name, upgrade)


if __name__ == "__main__":
    main()
