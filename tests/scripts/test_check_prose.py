# SPDX-License-Identifier: Apache-2.0
"""scripts/check_prose.py finds each fault that it is for, and leaves alone what is none."""

import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/check_prose.py"
sys.path.insert(0, str(SCRIPT.parent))
import check_prose  # noqa: E402

LONG = "word " * 30  # 150 columns


@pytest.mark.parametrize(
    ("path", "text", "line", "what"),
    [
        ("README.md", f"# Title\n\n{LONG}\n", 3, "columns"),
        ("docs/reference/requests.md", f"- item\n  {LONG}\n", 2, "columns"),
        ("bench/results/cpu.md", f"{LONG}\n", 1, "columns"),
        ("changelog/added/a-thing.md", f"{LONG}\n", 1, "columns"),
        ("docs/cuda.md", "As of 0fb292b the tests pass.\n", 1, "0fb292b"),
        ("README.md", "fast (4.1 ms, 358425d)\n", 1, "358425d"),
        ("CONTRIBUTING.md", "| since | ea0d39b |\n", 1, "ea0d39b"),
        ("docs/models.md", "Experts are not built.\n", 1, "not built"),
        ("docs/models.md", "## What is built\n", 1, "is built"),
        ("src/a.h", "// Names what is\n// not built; others pass.\n", 2, "not built"),
        ("src/a.cc", 'Fail("only 1 is built");\n', 1, "is built"),
        ("src/a.cc", 'return Refuse("experts are "\n              "not built");\n', 2, "not built"),
        ("docs/a.md", "What is refused when it is not built is named.\n", 1, "not built"),
        ("src/a.cu", "\n\nint a;  // where none are built\n", 3, "are built"),
        ("tests/test_a.py", '"calibration is not built"\n', 1, "not built"),
    ],
)
def test_finds(path, text, line, what):
    faults = check_prose.faults_of(path, text)
    assert len(faults) == 1
    assert faults[0].startswith(f"{path}:{line}: ") and what in faults[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("docs/a.md", f"| {LONG} |\n"),
        ("docs/a.md", f"```\n{LONG}\n```\n"),
        ("docs/a.md", f"    {LONG}\n"),
        ("src/a.cc", f"// {LONG}\n"),
        ("bench/results/a.md", "As of 0fb292b it took 3 ms.\n"),
        ("docs/a.md", "Deadbeef, facade and 1234567 are words and numbers; file.c0ffee1 and 0x1950a86a20f9 too.\n"),
        ("docs/a.md", "An engine is built for one kind of device, and is built by `inflight build`.\n"),
        ("docs/a.md", "Limits are fixed when an engine is built; once it is built, they stay.\n"),
        ("src/a.h", "// Requests are built\n// before the clock starts.\n"),
        ("changelog/fixed/a.md", "experts are not built\n"),
    ],
)
def test_leaves_alone(path, text):
    assert check_prose.faults_of(path, text) == []


def test_the_line_behind_a_break_is_the_right_one():
    assert check_prose.faults_of("src/a.h", "// One.\n// Two\n// three.\n// It is not\n// built.\n")[0].startswith("src/a.h:4: ")


def check(root):
    return subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, timeout=60, check=False)


def test_exit_status_says_whether_there_is_a_fault(tmp_path):
    def git(*arguments):
        subprocess.run(["git", "-C", tmp_path, *arguments], check=True, capture_output=True)

    git("init")
    readme = tmp_path / "README.md"
    readme.write_text("Plain.\n")
    git("add", ".")
    assert check(tmp_path).returncode == 0
    readme.write_text("Experts are not built.\n")
    done = check(tmp_path)
    assert done.returncode == 1 and "README.md:1: " in done.stdout


def test_no_files_are_a_failure(tmp_path):
    subprocess.run(["git", "-C", tmp_path, "init"], check=True, capture_output=True)
    assert check(tmp_path).returncode == 1
