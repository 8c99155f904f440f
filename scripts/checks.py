# SPDX-License-Identifier: Apache-2.0
"""What the checks of scripts/lint.sh have in common: the files that they read, how C++ hides text, and how they end."""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
CPP = (".h", ".cc", ".cu", ".cuh")

# Comments, raw strings, strings and characters of C++; the quote of 1'000 is none.
OPAQUE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"|"(?:[^"\\\n]|\\.)*"|(?<![0-9A-Fa-f])\'(?:[^\'\\\n]|\\.)+\'',
    re.DOTALL)


def files_in(root: pathlib.Path, *folders: str) -> list[str]:
    """Paths of the files that git knows, or would add, below these folders of a checkout; below all without any."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders],
                            cwd=root, check=True, capture_output=True, text=True).stdout.splitlines()
    return sorted(path for path in listed if (root / path).is_file())


def verdict(problems: list[str], clean: str) -> int:
    """Prints what is to be mended, or that all is well, and gives the exit status."""
    print("\n".join(problems) if problems else clean)
    return 1 if problems else 0
