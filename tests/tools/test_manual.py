# SPDX-License-Identifier: Apache-2.0
"""Manual pages: what mandoc finds wrong with them, and that they say of each option what docs/configuration.md says."""

import re
import shutil
import subprocess

import pytest
from command import documented_flags, error, run

needs_mandoc = pytest.mark.skipif(not shutil.which("mandoc"), reason="this machine has no mandoc (scripts/install_deps.sh ci)")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("man") / "man1"
    run("man", "--output-dir", folder)
    return {path.name.removesuffix(".1"): path for path in folder.iterdir()}


def commands():
    return re.findall(r"^  (\S.*?)  +\S", run("--help").stdout, re.MULTILINE)


def test_each_command_has_a_page(pages):
    assert set(pages) == {"inflight"} | {f"inflight-{name.replace(' ', '-')}" for name in commands()}
    assert pages["inflight-bench-load"].read_text() == run("man", "bench", "load").stdout
    assert pages["inflight"].read_text() == run("man").stdout


def test_a_page_names_the_options_that_have_an_effect(pages):
    for name, flags in documented_flags().items():
        text = pages[f"inflight-{name.replace(' ', '-')}"].read_text().replace("\\-", "-")
        assert set(re.findall(r"^\\fB(--[a-z0-9-]+)\\fR", text, re.MULTILINE)) == flags | {"--config", "--help"}, name


@needs_mandoc
def test_mandoc_finds_nothing_wrong(pages):
    done = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", *map(str, pages.values())],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    found = [line for line in done.stdout.splitlines() if "missing date" not in line]  # they carry the version, no day
    assert found == []


@needs_mandoc
def test_a_page_reads_as_the_help_does(pages):
    shown = subprocess.run(
        ["mandoc", "-T", "ascii", "-O", "width=400", pages["inflight-serve"]],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    text = " ".join(re.sub(".\b", "", shown).split())  # overstrikes are bold and underlined
    options = re.findall(r"^  (--\S+)(?: [A-Z]+)?\s+(\S.*(?:\n {30,}.*)*)", run("serve", "--help-all").stdout, re.MULTILINE)
    assert len(options) > 100
    for flag, meaning in options:
        assert flag in text and " ".join(meaning.split()) in text, flag


def test_other_names_are_refused():
    assert error("man", "serv") == "inflight: unknown command 'serv'; did you mean 'serve'?"
    assert "--output-dir writes all pages" in error("man", "serve", "--output-dir", "/tmp")
