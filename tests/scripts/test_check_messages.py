# SPDX-License-Identifier: Apache-2.0
"""scripts/check_messages.py finds code that decides by the words of a status, and leaves alone what is none."""

import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/check_messages.py"


def check(root):
    return subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True)


def tree(root, path, code):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(code)
    subprocess.run(["git", "init", "-q", root], check=True)
    return root


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ('if (status.message().find("memory") != npos) return true;\n', 1),
        ('\nif (model.status().message().starts_with("no ")) return true;\n', 2),
        ('const std::string& text = status.message();\nreturn text.contains("queue");\n', 2),
        ('const std::string_view text(result.status().message());\n\nreturn text.ends_with("full");\n', 3),
        ('return status.message() == "not found";\n', 1),
        ("if (IsOutOfMemory(load.status().message())) return 507;\n", 1),
        ("return kText != status.message();\n", 1),
        ('return status\n    ->message()\n    .rfind("x", 0) == 0;\n', 2),
    ],
)
def test_a_search_is_found(tmp_path, code, line):
    done = check(tree(tmp_path, "src/serving/a.cc", code))
    assert done.returncode == 1
    assert done.stdout == f"src/serving/a.cc:{line}: searches the text of a status\n"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("src/a.cc", 'return InvalidArgument(name + ": " + status.message());\n'),
        ("src/a.cc", 'body = status.message();\nname.find("x");\n'),
        ("src/a.cc", "if (status.reason() == Reason::kQueueFull) return;\n"),
        ("src/a_test.cc", 'EXPECT_TRUE(status.message().find("x") != npos);\n'),
    ],
)
def test_what_is_none_passes(tmp_path, path, code):
    assert check(tree(tmp_path, path, code)).returncode == 0


def test_this_repository_has_none():
    done = check(SCRIPT.parent.parent)
    assert done.returncode == 0, done.stdout
