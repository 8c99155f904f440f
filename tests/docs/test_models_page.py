# SPDX-License-Identifier: Apache-2.0
"""The table of docs/models.md is what the program says, and each of its cells has a test."""

import sys

import pytest
from command import INFLIGHT, ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import models_page


@pytest.fixture(scope="module")
def read():
    return models_page.read(INFLIGHT.parent)


def test_the_table_is_what_the_program_and_its_tests_say(read):
    text = models_page.DOCUMENT.read_text()
    assert text == models_page.page_with(text, models_page.section(*read)), "scripts/models_page.py BIN_DIR --write"


def test_each_cell_has_a_test(read):
    table, tests = read
    assert [cell for cell in models_page.supported(table) if not tests.get(cell)] == []


def test_tests_are_of_what_is_supported(read):
    """But for GGUF files of Mistral, which call themselves llama."""
    table, tests = read
    more = {("MistralForCausalLM", backend, "GGUF") for backend in ("cpu", "cuda")}
    assert set(tests) - set(models_page.supported(table)) == more
