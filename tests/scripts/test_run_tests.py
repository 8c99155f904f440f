# SPDX-License-Identifier: Apache-2.0
"""scripts/run_tests.py over binaries that are scripts and answer as GoogleTest's do."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = """#!/bin/sh
for a in "$@"; do case $a in --gtest_output=json:*) report=${a#--gtest_output=json:};; esac; done
[ ! -e "$TEST_TMPDIR/mark" ] && [ "$TMPDIR" = "$TEST_TMPDIR" ] && failures=0 || failures=1
touch "$TEST_TMPDIR/mark"
echo "$TEST_TMPDIR" >>"@SEEN@"
printf '{"tests": 1, "failures": %s, "testsuites": [{"testsuite": [{"result": "COMPLETED"}]}]}' $failures >"$report"
exit $failures
"""


def run(tmp_path, names):
    (tmp_path / "bin").mkdir()
    for name in names:
        path = tmp_path / "bin" / name
        path.write_text(BINARY.replace("@SEEN@", str(tmp_path / "seen")))
        path.chmod(0o755)
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/run_tests.py", tmp_path, "unit", "golden"], capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout.splitlines()[-1], (tmp_path / "seen").read_text().split()


def test_each_part_of_a_binary_has_a_folder_that_ends_with_it(tmp_path):
    # golden_test takes so long that it runs in two halves beside each other.
    code, line, folders = run(tmp_path, ["golden_test", "one_test", "another_test"])
    assert (code, line) == (0, "4 passed, 0 failed")
    assert len(set(folders)) == 4
    assert not any(pathlib.Path(folder).exists() for folder in folders)
