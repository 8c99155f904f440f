#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of docs/models.md: which family runs on which backend in which format of weights, and which test says so.

usage: .venv/bin/python scripts/models_page.py BIN_DIR [--write | --tests]

What is supported and what is refused is `inflight families`, which asks what opening a model asks. Tests are those that
golden_test and pytest list, and of GPUs the models that the tests' sources name: COVERS says which test is of which format.
--write puts the table into the page; --tests prints the tests of each cell.
"""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests/golden/data"
DOCUMENT = ROOT / "docs/models.md"
BEGIN = "<!-- families and formats: scripts/models_page.py --write -->\n"
END = "<!-- end of families and formats -->\n"
LABELS = {"W8A16": "int8", "W4A16": "int4", "W8A16_GPTQ": "int8 groups", "W4A16_GPTQ": "int4 groups",
          "FP8_PER_CHANNEL_PER_TOKEN": "FP8"}  # fmt: skip
BACKENDS = {"cpu": "CPU", "cuda": "CUDA"}
PYTHON_TESTS = ["test_gguf.py", "test_gguf_experts.py", "test_packed_families.py"]
# "model" is a golden one, "family" an architecture, "format" a name of `inflight families`. A test whose name has no format
# is of those of the third column.
COVERS: list[tuple[str, str, list[str]]] = [
    ("cpu", r"GoldenTest\.Float32LogitsEqualTransformers/(?P<model>\w+)", ["float32"]),
    ("cpu", r"FormatGoldenTest\.LogitsFollowTransformers/(?P<format>[A-Za-z0-9_]+?)_(?P<model>[a-z]\w+)", []),
    ("cpu", r"test_gguf\.py::test_greedy_ids_are_those_of_transformers\[(?P<model>\w+)\]", ["GGUF"]),
    ("cuda", r"test_gguf\.py::test_an_engine_for_gpus_is_that_of_the_hugging_face_model\[(?P<model>\w+)\]", ["GGUF"]),
    ("cuda", r"test_gguf_experts\.py::\w+\[(?P<model>qwen2_moe\w+|smollm3\w+)\]", ["GGUF"]),
    ("cpu", r"test_gguf_experts\.py::\w+\[(?P<model>qwen2_moe\w+|smollm3\w+)\]", ["GGUF"]),
    ("cpu", r"test_packed_weights_are_those_of_the_plain_model\[(?P<format>[a-z0-9-]+?)-(?P<family>\w+)\]", []),
    ("cuda", r"test_packed_weights_are_those_of_the_plain_model\[(?P<format>[a-z0-9-]+?)-(?P<family>\w+)\]", []),
    ("cuda", r"cuda_golden_test\.cc/(?P<model>\w+)", ["bfloat16", "float16"]),
    ("cuda", r"cuda_float32_test\.cc/(?P<model>\w+)", ["float32"]),
    ("cuda", r"cuda_integer_test\.cc/(?P<model>\w+)", ["W8A16", "W4A16"]),
    ("cuda", r"cuda_formats_test\.cc/(?P<model>\w+)",
     ["W8A16", "W4A16", "W8A16_GPTQ", "W4A16_GPTQ", "FP8_PER_CHANNEL_PER_TOKEN"]),
    ("cuda", r"cuda_expert_formats_test\.cc/(?P<model>\w+)", ["W8A16", "W8A16_GPTQ", "FP8_PER_CHANNEL_PER_TOKEN"]),
    ("cuda", r"cuda_int4_experts_test\.cc/(?P<model>\w+)", ["W4A16", "W4A16_GPTQ"]),
    ("cuda", r"cuda_fp8_test\.cc/(?P<model>\w+)", ["FP8_PER_CHANNEL_PER_TOKEN"]),
]  # fmt: skip
GPU_TESTS = sorted({pattern.split(r"\.")[0] + ".cc" for _, pattern, _ in COVERS if pattern.startswith("cuda_")})
Json = dict[str, typing.Any]
Cell = tuple[str, str, str]  # architecture, backend, format


def printed(bin_dir: pathlib.Path, *command: str | pathlib.Path) -> str:
    """What a command prints, whatever tests the environment leaves out."""
    chosen = ("GTEST_FILTER", "INFLIGHT_GOLDEN_MODELS", "PYTEST_ADDOPTS")
    env = {name: value for name, value in os.environ.items() if name not in chosen} | {"INFLIGHT_BIN_DIR": str(bin_dir)}
    return subprocess.run([*map(str, command)], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env).stdout


def golden_tests(bin_dir: pathlib.Path) -> list[str]:
    names, suite = [], ""
    for line in printed(bin_dir, bin_dir / "golden_test", "--gtest_list_tests").splitlines():
        if line.startswith(" "):
            names.append(suite + line.split("#")[0].strip())
        else:
            suite = line.split("#")[0].strip()
    return names


def python_tests(bin_dir: pathlib.Path) -> list[str]:
    files = [ROOT / "tests/tools" / name for name in PYTHON_TESTS]
    return printed(bin_dir, sys.executable, "-m", "pytest", "--collect-only", "-q", *files).splitlines()


def gpu_tests(models: set[str]) -> list[str]:
    """FILE/MODEL for each golden model that a test of GPUs names."""
    folder = ROOT / "tests/golden"
    return [f"{name}/{model}" for name in GPU_TESTS for model in sorted(models)
            if f'"{model}"' in (folder / name).read_text()]  # fmt: skip


def families_of_models(table: Json) -> dict[str, str]:
    """{golden model: its family}."""
    family_of = {name: row["architecture"] for row in table["families"] for name in [row["architecture"], *row["composites"]]}
    configs = {path.parent.name: json.loads(path.read_text()) for path in GOLDEN.glob("*/config.json")}
    return {name: family_of[config["architectures"][0]] for name, config in configs.items()}


def tests_of_cells(table: Json, bin_dir: pathlib.Path) -> dict[Cell, list[str]]:
    models = families_of_models(table)
    names = golden_tests(bin_dir) + python_tests(bin_dir) + gpu_tests(set(models))
    tests = collections.defaultdict(list)
    for name in names:
        for backend, pattern, formats in COVERS:
            if not (found := re.search(rf"\b{pattern}$", name)):
                continue
            groups = found.groupdict()
            family = groups.get("family") or models[groups["model"]]
            for format_name in formats or [groups["format"]]:
                tests[family, backend, format_name].append(name)
    return tests


def cells(table: Json) -> list[tuple[Cell, str]]:
    """Each cell, and the words by which it is refused; none where it is supported."""
    return [
        ((row["architecture"], backend, each["name"]), row["refused"][backend].get(each["name"], ""))
        for row in table["families"]
        for backend in table["backends"]
        for each in table["formats"]
    ]


def supported(table: Json) -> list[Cell]:
    return [cell for cell, words in cells(table) if not words]


def aligned(rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(widths), *lines[1:]]) + "\n"


def family_table(table: Json, tests: dict[Cell, list[str]], fields: list[str]) -> str:
    """A row for each family; neighbouring formats that are alike in all of them share a column."""
    architectures = [row["architecture"] for row in table["families"]]
    runs = set(supported(table))

    def text(architecture: str, format_name: str) -> str:
        backends = [(BACKENDS[name], (architecture, name, format_name)) for name in table["backends"]]
        return ", ".join(label if tests.get(cell) else f"({label})" for label, cell in backends if cell in runs) or "no"

    columns: list[list] = []  # its formats, its texts
    for row in table["formats"]:
        if row["field"] not in fields:
            continue
        texts = [text(architecture, row["name"]) for architecture in architectures]
        label = LABELS.get(row["name"], row["name"])
        label = f"`{label}`" if row["field"] == "quant_method" else label
        if columns and columns[-1][1] == texts:
            columns[-1][0] += f", {label}"
        else:
            columns.append([label, texts])
    rows = [["`architectures`", *(label for label, _ in columns)]]
    rows += [[f"`{name}`", *(texts[i] for _, texts in columns)] for i, name in enumerate(architectures)]
    return aligned(rows)


def refusals(table: Json) -> str:
    """What is refused, by the words that say so; of several families or formats their names stand in capitals."""
    model_types = {row["architecture"]: row["model_type"] for row in table["families"]}
    alike: dict[str, tuple[set[str], set[str], set[str]]] = {}
    for (architecture, backend, format_name), words in cells(table):
        if not words:
            continue
        for what, name in (("FAMILY", architecture), ("TYPE", model_types[architecture]), ("FORMAT", format_name)):
            words = re.sub(rf"\b(?<!-){re.escape(name)}\b(?= (?:are|does|for)\b|\"?, )", what, words, count=1)
        row = alike.setdefault(words, (set(), set(), set()))
        for names, name in zip(row, (format_name, backend, architecture), strict=True):
            names.add(name)
    rows = [["weights", "on", "families", "refused by"]]
    for words, (formats, backends, families) in alike.items():
        in_order = [LABELS.get(row["name"], row["name"]) for row in table["formats"] if row["name"] in formats]
        on = [label for name, label in BACKENDS.items() if name in backends]
        of = [f"`{name}`" for name in model_types if name in families]
        most = len(of) > len(model_types) / 2
        others = [f"`{name}`" for name in model_types if name not in families]
        who = "all" if not others else f"all but {', '.join(others)}" if most else ", ".join(of)
        for what, names in (("FAMILY", families), ("FORMAT", formats), ("TYPE", {model_types[name] for name in families})):
            words = words.replace(what, *names) if len(names) == 1 else words
        rows.append([", ".join(in_order), ", ".join(on), who, words])
    return "".join("| " + " | ".join(row) + " |\n" + ("|---|---|---|---|\n" if row is rows[0] else "") for row in rows)


def section(table: Json, tests: dict[Cell, list[str]]) -> str:
    runs = supported(table)
    untested = [cell for cell in runs if not tests.get(cell)]
    tested = "Each has a test.\n\n"
    if untested:
        num_tested = len(runs) - len(untested)
        tested = f"{num_tested} of them have a test; the {len(untested)} in brackets\nrun without a test of their own.\n\n"
    return (
        f"{len(runs)} formats of a family on a backend are supported. {tested}"
        "Weights in floats, and as `--quant-algo` gives them:\n\n"
        + family_table(table, tests, ["dtype", "quant_algo"])
        + "\nWeights as they are published, in directories by their `quant_method`, and in GGUF files:\n\n"
        + family_table(table, tests, ["quant_method", "gguf"])
        + "\nWhat is refused, and the words that say so:\n\n"
        + refusals(table)
    )


def page_with(text: str, made: str) -> str:
    return text.split(BEGIN)[0] + BEGIN + made + END + text.split(END)[1]


def read(bin_dir: pathlib.Path) -> tuple[Json, dict[Cell, list[str]]]:
    table = json.loads(printed(bin_dir, bin_dir / "inflight", "families"))
    return table, tests_of_cells(table, bin_dir)


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    table, tests = read(pathlib.Path(sys.argv[1]).resolve())
    if "--tests" in sys.argv:
        for cell in supported(table):
            print("\t".join([*cell, *(tests.get(cell, [])[:1] or ["-"])]))
        return 0
    text = DOCUMENT.read_text()
    made = page_with(text, section(table, tests))
    if "--write" in sys.argv:
        DOCUMENT.write_text(made)
    elif made != text:
        print(f"{DOCUMENT.relative_to(ROOT)} is out of date: scripts/models_page.py BIN_DIR --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
