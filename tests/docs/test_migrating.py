# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/migrating.md: keys by release against release_repositories.py and `inflight inspect`, and what stands in
place of the lines that build and fetch against the programs and the folder that they name."""

import itertools
import re

import pytest
from command import DEMO, ROOT, run
from install import NAMES, number_of
from release_repositories import (
    ALWAYS,
    BLS_PARAMETERS,
    LLM_PARAMETERS,
    POSTPROCESSING_PARAMETERS,
    PREPROCESSING_PARAMETERS,
    RELEASES,
    names,
    write_repository,
)

PAGE = (ROOT / "docs/migrating.md").read_text()
TABLES = {
    "tensorrt_llm": LLM_PARAMETERS, "preprocessing": PREPROCESSING_PARAMETERS, "postprocessing": POSTPROCESSING_PARAMETERS,
    "tensorrt_llm_bls": BLS_PARAMETERS,
}  # fmt: skip


def rows(heading):
    """The cells of the first table below a heading."""
    text = PAGE.split(f"\n### {heading}\n")[1].split("\n#")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def codes(cell):
    return re.findall(r"`([^`]+)`", cell)


def name_of(release):
    return next(name for name in NAMES if number_of(name) == release)


def spans():
    """{(model, key): (first, last release)} of the tables; a key may have a row for each of its values."""
    found = {}
    for model, table in TABLES.items():
        for key, _, first, last in table:
            known = found.get((model, key), (first, last))
            found[model, key] = (min(first, known[0]), max(last, known[1]))
    return found


def said(first, last):
    if last == ALWAYS:
        return f"from {name_of(first)}"
    return name_of(first) if first == last else f"{name_of(first)} to {name_of(last)}"


def test_keys_by_release_are_those_of_the_templates():
    written = {}
    for model, releases, keys, _ in rows("Keys of the files, by release"):
        for key in codes(keys):
            assert (model.strip("`"), key) not in written, key
            written[model.strip("`"), key] = releases
    expected = {row: said(*span) for row, span in spans().items() if span != (min(RELEASES), ALWAYS)}
    assert written == expected


def test_a_key_that_is_named_as_another_one_s_successor_is_that():
    """The release after the last of one is the first of the other."""
    pairs = {("worker_path", "executor_worker_path"), ("max_kv_cache_length", "max_attention_window_size"),
             ("visual_model_path", "multimodal_model_path")}  # fmt: skip
    table = {key: (model, note) for model, _, keys, note in rows("Keys of the files, by release") for key in codes(keys)}
    of = {key: span for (_, key), span in spans().items()}
    following = dict(itertools.pairwise(RELEASES))
    for before, after in pairs:
        assert codes(table[before][1])[0] == after and codes(table[after][1]) == [before]
        assert table[before][0] == table[after][0] and following[of[before][1]] == of[after][0]


@pytest.mark.parametrize("release", [5, 6, 7, 9, 12, 19, 30])
def test_inspect_knows_the_keys_of_a_release(tmp_path, release):
    root = write_repository(tmp_path / "models", release, engine_dir=DEMO, tokenizer_dir=DEMO, decoupled_mode="True")
    shown = run("inspect", root).stdout
    known = set(re.findall(r"^ +(\S+) +.* (?:file|default|auto) +(?:honoured|ignored|refused)", shown, re.MULTILINE))
    keys = {key for model, table in TABLES.items() for key in names(table, release) if (root / model).exists()}
    assert keys - known == set()


def test_what_replaces_lines_that_build_and_fetch_is_there(tmp_path):
    table = rows("What the guides build and fetch")
    assert len(table) > 12
    told = [code for _, instead in table for code in codes(instead)]
    commands = {code.split()[1] for code in told if code.startswith("inflight ")}
    assert commands >= {"compat", "pull", "convert", "build"}
    helped = run("help").stdout
    for command in commands:
        assert re.search(rf"^ +{command}\b", helped, re.MULTILINE), command
    folder = tmp_path / "DIR"
    run("compat", "install", folder)
    for place in ("ci/L0_backend_trtllm/simple_data.json", "tensorrt_llm/examples"):
        assert place in told and (folder / place).exists()
    assert "deploy/container/Dockerfile" in told and (ROOT / "deploy/container/Dockerfile").is_file()
    lfs = [path for path in folder.rglob("*") if path.is_file() and path.read_bytes().startswith(b"version https://git-lfs")]
    assert lfs == []
