# SPDX-License-Identifier: Apache-2.0
"""scripts/check_promises.py finds promises without tests and tests that are not there."""

import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/check_promises.py"
MORE = "## More\n\n| a | b |\n|---|---|\n| c | d |\n"
SECURITY = "# Security\n\n## Who is defended against\n\n| who | what | by |\n|---|---|---|\n{}\n" + MORE
PRODUCTION = "# Production\n\n## Promises and their tests\n\n| who | tests |\n|---|---|\n{}"
PROMISE = "| a client of [HTTP](docs/http.md), at any time | read files | tests |\n"
GOOD = "| a client of HTTP | `tests/test_a.py::test_reads_nothing`, `src/a_test.cc::ATest.ReadsNothing` |\n"


@pytest.fixture
def check(tmp_path):
    """What the script says of a promise and the row that stands for it."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "tests/test_a.py").write_text("def test_reads_nothing():\n    pass\n")
    (tmp_path / "src/a_test.cc").write_text("TEST_F(ATest, ReadsNothing) {}\n")

    def get(promises, tests):
        (tmp_path / "SECURITY.md").write_text(SECURITY.format(promises))
        (tmp_path / "docs/production.md").write_text(PRODUCTION.format(tests))
        done = subprocess.run([sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.strip()

    return get


def test_a_promise_with_its_tests_passes(check):
    assert check(PROMISE, GOOD) == (0, "promises: 1, each with its tests")


@pytest.mark.parametrize(
    ("promises", "tests", "problem"),
    [
        (PROMISE, "", "SECURITY.md:7: 'a client of HTTP, at any time' has no row"),
        (PROMISE + "| a thief | steal | tests |\n", GOOD, "SECURITY.md:8: 'a thief' has no row"),
        (PROMISE, GOOD + GOOD.replace("a client of HTTP", "nobody"), "docs/production.md:8: 'nobody' is no row"),
        (PROMISE, "| a client of HTTP | many |\n", "docs/production.md:7: 'a client of HTTP' names no test"),
        (PROMISE, GOOD.replace("test_reads", "test_writes"), "there is no test tests/test_a.py::test_writes_nothing"),
        (PROMISE, GOOD.replace("ATest.R", "BTest.R"), "there is no test src/a_test.cc::BTest.ReadsNothing"),
        (PROMISE, GOOD.replace("src/a", "src/b"), "there is no test src/b_test.cc::ATest.ReadsNothing"),
        (PROMISE + PROMISE.replace("any", "no"), GOOD, "SECURITY.md:8: 'a client of HTTP, at no time' has no row of its own"),
        ("", "", "SECURITY.md:1: there is no table"),
    ],
)
def test_what_is_missing_is_named(check, promises, tests, problem):
    status, said = check(promises, tests)
    assert status == 1
    assert problem in said
