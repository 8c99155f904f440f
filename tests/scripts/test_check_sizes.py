# SPDX-License-Identifier: Apache-2.0
"""scripts/check_sizes.py counts the lines of functions, and takes nothing else for one."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import check_sizes

LONG = "  Step();\n" * 90


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("int One() { return 1; }\n", [("One", 1, 1)]),
        ("\nvoid Two(int a,\n         int b = {}) {\n}\n", [("Two", 2, 3)]),
        ("class A {\n  void Three() {\n    if (x) {\n    }\n  }\n};\n", [("Three", 2, 4)]),
        ("A::A(int a)\n    : a_{a} {\n}\n", [("A::A", 1, 3)]),
        ("namespace a {\nconstexpr int kList[] = {\n  1, 2,\n};\nstruct B {\n  int c;\n};\n}\n", []),
        ('const auto kText = R"(f() {)";\n// g() {\nint n = 1\'000;\nvoid Four() {\n}\n', [("Four", 4, 2)]),
        ("#define M(x) \\\n  f(x) {\nvoid Five() {\n}\n", [("Five", 3, 2)]),
    ],
)
def test_functions_are_found(text, found):
    assert check_sizes.cpp_functions(text) == found


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        ("a.cc", f"void Long() {{\n{LONG}}}\n", "src/a.cc Long"),
        ("a.py", "def long():\n" + "    step()\n" * 90, "src/a.py long"),
        ("a.h", "int x;\n" * 601, "src/a.h"),
        ("a.cu", "int x;\n" * 601, "src/a.cu"),
    ],
)
def test_what_is_too_long_is_named(tmp_path, name, text, key):
    (tmp_path / name).write_text(text)
    assert list(check_sizes.too_long(tmp_path / name, f"src/{name}")) == [key]


def test_kernels_may_have_long_functions(tmp_path):
    (tmp_path / "a.cu").write_text(f"__global__ void Kernel() {{\n{LONG}}}\n")
    assert check_sizes.too_long(tmp_path / "a.cu", "src/a.cu") == {}
