# SPDX-License-Identifier: Apache-2.0
"""scripts/changelog.py: entries of changelog/ by kind, and their move to CHANGELOG.md at a release."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import changelog


@pytest.fixture
def project(tmp_path):
    files = {
        "CHANGELOG.md": "# Changelog\n\n" + changelog.PLACE + "\n## 0.1.0 (2026-01-02)\n\n### Added\n\n- The beginning.\n",
        "include/inflight/version.h": 'inline constexpr char kVersion[] = "0.2.0";\n',
        "changelog/fixed/b.md": "- One.\n- Two,\n  in lines.\n",
        "changelog/added/a.md": "A thing that takes\ntwo lines.\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


ENTRIES = "\n### Added\n\n- A thing that takes\n  two lines.\n\n### Fixed\n\n- One.\n- Two,\n  in lines.\n"
BEFORE = "\n## 0.1.0 (2026-01-02)\n\n### Added\n\n- The beginning.\n"


def test_what_comes_next_is_unreleased(project):
    assert changelog.collected(project) == "# Changelog\n\n## Unreleased\n" + ENTRIES + BEFORE


def test_a_release_moves_the_entries_under_its_version_and_day(project):
    changelog.release(project, "2026-03-04")
    text = (project / "CHANGELOG.md").read_text()
    assert text == "# Changelog\n\n" + changelog.PLACE + "\n## 0.2.0 (2026-03-04)\n" + ENTRIES + BEFORE
    assert list(project.glob("changelog/*/*")) == []
    (project / "changelog/added/c.md").write_text("More.\n")
    with pytest.raises(SystemExit, match=r"has 0\.2\.0 already"):
        changelog.release(project, "2026-03-05")


def test_another_kind_is_refused(project):
    (project / "changelog/improved").mkdir()
    (project / "changelog/improved/x.md").write_text("Faster.\n")
    with pytest.raises(SystemExit, match="changelog/improved: the kinds are added, changed, deprecated, removed, fixed"):
        changelog.collected(project)


def test_the_changelog_of_this_project_can_be_collected():
    assert changelog.collected().count("\n- ") > 100
