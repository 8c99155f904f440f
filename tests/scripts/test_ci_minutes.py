# SPDX-License-Identifier: Apache-2.0
"""scripts/ci_minutes.py names what grew beyond the table of docs/testing.md, and writes a table that the lint takes."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import check_prose
import ci_minutes


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """What a run of these parts prints, in seconds and of them building, and the document."""
    document = tmp_path / "testing.md"
    document.write_text(f"# Testing\n\n{ci_minutes.BEGIN}{ci_minutes.END}\nThe rest.\n")
    monkeypatch.setattr(ci_minutes, "DOCUMENT", document)

    def get(parts, *options):
        minutes = tmp_path / "minutes.tsv"
        minutes.write_text("".join(f"{name}\t{seconds}\t{build}\n" for name, (seconds, build) in parts.items()))
        monkeypatch.setattr(sys, "argv", ["ci_minutes.py", str(minutes), *options])
        assert ci_minutes.main() == 0
        return capsys.readouterr().out, document.read_text()

    return get


def test_what_is_written_is_read_again_and_passes_the_lint(run):
    _, text = run({"lint": (30, 0), "tests": (600, 300)}, "--write")
    assert text.startswith("# Testing\n\n") and text.endswith("\nThe rest.\n")
    assert ci_minutes.reference() == (ci_minutes.machine(), {"lint": (0.5, 0.0), "tests": (10.0, 5.0)})
    assert check_prose.faults_of("docs/testing.md", text) == []


def test_a_part_that_grew_is_named(run):
    run({"lint": (30, 0), "tests": (600, 300)}, "--write")
    out, _ = run({"lint": (38, 0), "tests": (700, 300)})
    assert out.count("warning: ") == 1 and "warning: tests took 11.7 minutes, 17% over the 10.0 " in out
    out, _ = run({"lint": (30, 0), "tests": (659, 300)})
    assert out.endswith("No part grew by more than 10 %.\n")


def test_a_warm_cache_leaves_building_out(run):
    run({"tests": (600, 300)}, "--write")
    out, _ = run({"tests": (380, 20)}, "--cache", "warm")
    assert "warning: tests without its build took 6.0 minutes, 20% over the 5.0 " in out
