# SPDX-License-Identifier: Apache-2.0
"""scripts/check_patched.py, by which scripts/static_deps.sh knows that it builds Debian's sources, finds what lacks a patch."""

import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import check_patched

ROOT = pathlib.Path(check_patched.__file__).parents[1]
FIRST = "--- a/greeting.c\n+++ b/greeting.c\n@@ -1,2 +1,2 @@\n-one\n+two\n end\n"
SECOND = "--- a/greeting.c\n+++ b/greeting.c\n@@ -1,2 +1,2 @@\n-two\n+three\n end\n"  # of what the first leaves


@pytest.fixture
def tree(tmp_path):
    """A source as `tar` leaves it: with the patches beside the files that they are for."""
    patches = tmp_path / "thing-1.0/debian/patches"
    patches.mkdir(parents=True)
    (patches.parent / "source").mkdir()
    (patches.parent / "source/format").write_text("3.0 (quilt)\n")
    (patches / "series").write_text("# why\nfirst.patch -p1\n\nsecond.patch\n")
    (patches / "first.patch").write_text(FIRST)
    (patches / "second.patch").write_text(SECOND)
    (tmp_path / "thing-1.0/greeting.c").write_text("one\nend\n")
    return tmp_path / "thing-1.0"


def apply(tree, text):
    subprocess.run(["patch", "-s", "-p1", "-d", tree], input=text, text=True, timeout=60, check=True)


def test_a_tree_without_its_patches_is_refused(tree):
    assert "second.patch is not applied" in check_patched.fault(tree)


def test_a_tree_without_its_last_patch_is_refused(tree):
    apply(tree, FIRST)
    assert "second.patch is not applied" in check_patched.fault(tree)


def test_what_a_record_claims_does_not_count(tree):
    (tree / ".pc").mkdir()
    (tree / ".pc/applied-patches").write_text("first.patch\nsecond.patch\n")
    assert "second.patch is not applied" in check_patched.fault(tree)


def test_a_patched_tree_passes_and_stays_as_it_is(tree):
    apply(tree, FIRST)
    apply(tree, SECOND)
    assert check_patched.fault(tree) is None
    assert (tree / "greeting.c").read_text() == "three\nend\n"


def test_a_tree_without_patches_passes_and_one_without_debian_does_not(tree):
    (tree / "debian/patches/series").unlink()
    assert check_patched.fault(tree) is None
    (tree / "debian/source/format").unlink()
    assert "debian/source/format is not there" in check_patched.fault(tree)


def test_static_deps_builds_nothing_of_sources_that_lack_a_patch(tree, tmp_path):
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin/apt-get"  # unpacks as `tar` does, into the folder in which it is called
    fake.write_text(f'#!/bin/sh\ncase "$*" in *" source "*) cp -r "{tree}" . ;; esac\n')
    fake.chmod(0o755)
    done = subprocess.run(
        [ROOT / "scripts/static_deps.sh", tmp_path / "prefix"], env=dict(os.environ, PATH=f"{fake.parent}:{os.environ['PATH']}"),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "second.patch is not applied" in done.stderr
    assert not (tmp_path / "prefix/done").exists()
