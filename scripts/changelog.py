#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The changelog: what stands in CHANGELOG.md of releases, and in changelog/<kind>/<slug>.md of what comes next.

usage: scripts/changelog.py                    prints all of it, the next release as "Unreleased"
       scripts/changelog.py release [--day D]  moves what is in changelog/ to CHANGELOG.md, under the version of
                                               include/inflight/version.h and the day, today's unless it is given
"""

import argparse
import datetime
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
KINDS = ("added", "changed", "deprecated", "removed", "fixed")  # in this order
PLACE = "## Unreleased\n\nSee `changelog/`.\n"  # where the next release comes in CHANGELOG.md


def version(root):
    text = (root / "include/inflight/version.h").read_text()
    return re.search(r'kVersion\[\] = "(\d+\.\d+\.\d+)"', text).group(1)


def entry(text):
    """One bullet, or those that the file has."""
    lines = text.strip().splitlines()
    if lines[0].startswith("- "):
        return "\n".join(lines) + "\n"
    return "\n".join(["- " + lines[0], *("  " + line if line else "" for line in lines[1:])]) + "\n"


def sections(root):
    """What is in changelog/: a section for each kind, its entries by their slugs."""
    unknown = sorted({path.parent.name for path in (root / "changelog").glob("*/*.md")} - set(KINDS))
    if unknown:
        sys.exit(f"changelog.py: changelog/{unknown[0]}: the kinds are {', '.join(KINDS)}")
    text = ""
    for kind in KINDS:
        entries = [entry(path.read_text()) for path in sorted((root / "changelog" / kind).glob("*.md"))]
        if entries:
            text += f"\n### {kind.capitalize()}\n\n" + "".join(entries)
    return text


def collected(root=ROOT):
    text = (root / "CHANGELOG.md").read_text()
    if PLACE not in text:
        sys.exit(f"changelog.py: CHANGELOG.md lacks the lines {PLACE!r}")
    return text.replace(PLACE, "## Unreleased\n" + sections(root))


def release(root, day):
    new = f"## {version(root)} ({day})"
    text = (root / "CHANGELOG.md").read_text()
    if f"## {version(root)} (" in text:
        sys.exit(f"changelog.py: CHANGELOG.md has {version(root)} already; raise kVersion of include/inflight/version.h first")
    found = sections(root)
    if PLACE not in text or not found:
        sys.exit("changelog.py: nothing in changelog/, or no place for it in CHANGELOG.md")
    (root / "CHANGELOG.md").write_text(text.replace(PLACE, PLACE + "\n" + new + "\n" + found))
    for path in (root / "changelog").glob("*/*.md"):
        path.unlink()


def main(root=ROOT):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["release"])
    parser.add_argument("--day", type=datetime.date.fromisoformat, default=datetime.date.today())
    args = parser.parse_args()
    if args.what == "release":
        release(root, args.day)
    else:
        sys.stdout.write(collected(root))


if __name__ == "__main__":
    main()
