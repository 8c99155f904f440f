#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails unless a Debian source tree has Debian's patches applied: each of them, the last first, can be taken back.

usage: scripts/check_patched.py TREE...

What is taken back is a copy; the trees stay as they are.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile


def series(tree):
    """Paths of the patches in the order in which they are applied."""
    listed = tree / "debian/patches/series"
    lines = listed.read_text().splitlines() if listed.exists() else []
    return [listed.parent / line.split()[0] for line in lines if line.strip() and not line.startswith("#")]


def fault(tree):
    """What is wrong with a tree, or None."""
    if not (tree / "debian/source/format").exists():
        return f"{tree}: debian/source/format is not there; unpack it by `dpkg-source -x` or `apt-get source`"
    with tempfile.TemporaryDirectory() as work:
        copy = shutil.copytree(tree, pathlib.Path(work, "copy"), symlinks=True)
        for patch in reversed(series(tree)):
            command = ["patch", "--reverse", "--strip=1", "--force", "--silent", "--directory", copy, "--input", patch.resolve()]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            if done.returncode != 0:
                return f"{tree}: {patch.name} is not applied; unpack the source by `dpkg-source -x` or `apt-get source`"
    return None


def main():
    trees = [pathlib.Path(name) for name in sys.argv[1:]]
    if not trees:
        sys.exit(__doc__)
    faults = [found for found in map(fault, trees) if found]
    for found in faults:
        print(found, file=sys.stderr)
    for tree in trees:
        if not faults:
            print(f"{tree.name}: {len(series(tree))} patches of Debian applied")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
