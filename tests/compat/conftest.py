# SPDX-License-Identifier: Apache-2.0
"""Folders of the back-end's guides, whose servers end with the test."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tools"))  # upstream_layout
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "object_store"))  # stand_ins

from folders import install


@pytest.fixture
def folder(tmp_path):
    """A folder of release 0.10."""
    made = install(tmp_path / "tensorrtllm_backend")
    yield made
    made.stop_servers()


@pytest.fixture
def folder_of(tmp_path):
    """Makes a folder of a release."""
    made = []

    def make(release):
        made.append(install(tmp_path / f"backend-{release}", "--release", release))
        return made[-1]

    yield make
    for one in made:
        one.stop_servers()
