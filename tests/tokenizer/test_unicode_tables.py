# SPDX-License-Identifier: Apache-2.0
"""The tables of characters in src/tokenizer are what scripts/make_unicode_tables.py makes."""

import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/make_unicode_tables.py"


def test_the_tables_are_those_of_the_package():
    made = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
