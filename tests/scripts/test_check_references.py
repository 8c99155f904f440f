# SPDX-License-Identifier: Apache-2.0
"""scripts/check_references.py finds each kind of reference that leads nowhere, and nothing else."""

import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/check_references.py"

PAGE = """# Page

## Top-p, and its decay

## Twice
## Twice

See [below](#twice-1), [itself](page.md#top-p-and-its-decay), [code](../src/part/block.h) and [elsewhere](https://example.org/x.md).
Upstream's are `NVIDIA/TensorRT-LLM/cpp/kernels/penalty.cu` and `cpp/tensorrt_llm/kernels/penalty.cu`; `src/part/*.h`,
`src/part/block.{h,cc}` and `src/part/block` are ours, and so is src/part.

```
[not a link](nowhere.md)
```
"""
HEADER = """// SPDX-License-Identifier: Apache-2.0
// A block (docs/page.md, "Top-p, and
// its decay"); block.cc has the rest, part/block.h is this file. zlib.h is a library's.
#include <zlib.h>
constexpr char kText[] = "// docs/in_a_text.md, https://github.com/spec/v1";
"""
SCRIPT_FILE = '''# Reads src/part/block.h.
"""Looks at docs/page.md, "Twice"."""
TEXT = "docs/of_a_text.md"
'''


def check(root: pathlib.Path, files: dict[str, str]) -> tuple[int, list[str]]:
    """Exit status and lines for a repository of these files, besides those that are right."""
    right = {
        "docs/page.md": PAGE,
        "src/part/block.h": HEADER,
        "src/part/block.cc": "",
        "tools/look.py": SCRIPT_FILE,
        "changelog/added/page.md": "A [page](docs/page.md#twice) in place of docs/gone.md.\n",
    }
    for name, text in {**right, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    result = subprocess.run([sys.executable, str(SCRIPT), str(root)], capture_output=True, text=True, check=False)
    assert result.stderr == ""
    return result.returncode, result.stdout.strip().split("\n")


def test_what_leads_somewhere_is_no_finding(tmp_path):
    assert check(tmp_path, {}) == (0, ["references: 5 files, all there"])


@pytest.mark.parametrize(
    ("name", "text", "finding"),
    [
        ("docs/other.md", "[text](gone.md)\n", "docs/other.md:1: link to gone.md: there is no docs/gone.md"),
        ("docs/other.md", "\n[text](page.md#gone)\n", "docs/other.md:2: link to page.md#gone: docs/page.md has no such heading"),
        ("docs/other.md", "[text](#gone)\n", "docs/other.md:1: link to #gone: docs/other.md has no such heading"),
        ("changelog/fixed/other.md", "[text](page.md)\n", "changelog/fixed/other.md:1: link to page.md: there is no page.md"),
        ("docs/other.md", 'docs/page.md, "Gone"\n', 'docs/other.md:1: docs/page.md has no heading "Gone"'),
        (
            "src/other.cc",
            'int x;  // as docs/page.md,\n        // "Gone with it" says\n',
            'src/other.cc:1: docs/page.md has no heading "Gone with it"',
        ),
        ("src/other.cc", "/* Formulas:\n * docs/gone.md */\n", "src/other.cc:2: there is no docs/gone.md"),
        ("src/other.cu", "// A\n// B: src/gone/\n", "src/other.cu:2: there is no src/gone/"),
        ("src/other.h", "// part/gone.h\n", "src/other.h:1: there is no part/gone.h"),
        ("src/other.h", "// gone/zlib.h\n", "src/other.h:1: there is no gone/zlib.h"),
        ("src/other.h", "// The rest is gone.cc's.\n", "src/other.h:1: there is no gone.cc"),
        ("src/other.h", "// tests/*_gone.py\n", "src/other.h:1: there is no tests/*_gone.py"),
        ("src/other.h", "// src/part/block.{h,cu}\n", "src/other.h:1: there is no src/part/block.cu"),
        ("tools/other.py", '"""Makes docs/gone.md."""\n', "tools/other.py:1: there is no docs/gone.md"),
        ("tools/other.py", "X = 1  # bench/gone.py\n", "tools/other.py:1: there is no bench/gone.py"),
        ("scripts/other.sh", "#!/bin/sh\n# scripts/gone.sh\n", "scripts/other.sh:2: there is no scripts/gone.sh"),
        ("src/other.h", "// book/gone.md 1.2\n", "src/other.h:1: there is no book/gone.md"),
        ("src/other.h", "// as gone.md says\n", "src/other.h:1: there is no gone.md"),
        ("docs/other.md", "See gone.md.\n", "docs/other.md:1: there is no gone.md"),
        ("src/other.h", "// as Triton (spec 1.6)\n", "src/other.h:1: name the heading, not the number of a section"),
        ("src/other.h", "// \u00a74 of the page\n", "src/other.h:1: name the heading, not the number of a section"),
    ],
)
def test_what_leads_nowhere_is_found(tmp_path, name, text, finding):
    assert check(tmp_path, {name: text}) == (1, [finding])


def test_named_files_alone(tmp_path):
    check(tmp_path, {"docs/a.md": "[a](gone.md)\n", "docs/b.md": "[b](gone.md)\n"})
    command = [sys.executable, str(SCRIPT), str(tmp_path), "docs/b.md"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, "docs/b.md:1: link to gone.md: there is no docs/gone.md\n")
