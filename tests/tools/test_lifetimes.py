# SPDX-License-Identifier: Apache-2.0
"""What the compiler refuses: code that reads what its owner has left. The build's own compiler and options are asked."""

import json
import os
import pathlib
import shlex
import subprocess

import pytest

BUILD = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]).parent
TABLE = '#include "serving/repository/model_table.h"\nusing namespace inflight::serving;\n'
TABLE_OF = "HeldTable Current();\n"


def compiler():
    """The command that compiles sources of the repository's room, without its files."""
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    command = next(c for c in commands if "serving_repository.dir" in c["command"])
    words = shlex.split(command["command"])
    end = words.index("-o")
    return words[:end], command["directory"]


def errors(source):
    words, directory = compiler()
    done = subprocess.run(
        [*words, "-fsyntax-only", "-x", "c++", "-"], input=source, cwd=directory, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode == 0) == ("error:" not in done.stderr), done.stderr
    return done.stderr


def test_a_table_that_nobody_holds_is_not_looked_into():
    """A function for each way into it, on a line of its own, which errors are told of."""
    count = "size_t n = 0; for (auto& m : TABLE->MODELS()) n += sizeof m; return n; }\n"
    held = "size_t Count_MODELS() { const HeldTable table = Current(); " + count.replace("TABLE", "table")
    loose = "size_t Count_MODELS() { " + count.replace("TABLE", "Current()")
    ways = ("llms", "models", "entries")
    assert errors(TABLE + TABLE_OF + "".join(held.replace("MODELS", way) for way in ways)) == ""
    refused = errors(TABLE + TABLE_OF + "".join(loose.replace("MODELS", way) for way in ways)).splitlines()
    first = (TABLE + TABLE_OF).count("\n") + 1
    for line in range(first, first + len(ways)):
        told = [text for text in refused if f"<stdin>:{line}:" in text]
        assert any("error:" in text and "deleted" in text and "operator->" in text for text in told), refused


@pytest.mark.parametrize("body", [
    "std::string_view F() { std::string_view v = std::string(100, 'a'); return v; }",
    "const char* F() { char local[4] = {}; return local; }",
    "struct S { const std::string& r; S() : r(std::string()) {} };",
    "struct S { const int& r; S(int v) : r(v) {} };",
])  # fmt: skip
def test_what_outlives_its_owner_is_an_error(body):
    words, _ = compiler()
    if not any("clang" in pathlib.Path(word).name for word in words):
        pytest.skip("this build is g++'s, which does not warn of these; CI's asan build is clang's and runs it")
    refused = errors("#include <string>\n#include <string_view>\n" + body)
    assert "dangling" in refused or "return-stack-address" in refused or "binds to a temporary" in refused, refused
