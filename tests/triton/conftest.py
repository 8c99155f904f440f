# SPDX-License-Identifier: Apache-2.0
"""The same repository in NVIDIA's server with our plug-in, and in ours."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "protocol"))

from live_server import start_server
from real_triton import DEMO, make_repository, start_triton, why_not


def pytest_collection_modifyitems(items):
    here = str(pathlib.Path(__file__).parent)
    reason = why_not()
    for item in items:
        if reason and str(item.path).startswith(here):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    return make_repository(tmp_path_factory.mktemp("repository") / "models")


@pytest.fixture(scope="session")
def triton(tmp_path_factory, repository):
    """Ends with status 0 on SIGTERM or the run fails."""
    server = start_triton(tmp_path_factory.mktemp("triton"), repository, "--log-verbose=0")
    server.model_dir = DEMO
    yield server
    assert server.process.poll() is None, server.log.read_text(errors="replace")[-4000:]
    assert server.stop() == 0, server.log.read_text(errors="replace")[-4000:]


@pytest.fixture(scope="session")
def ours(tmp_path_factory, repository):
    server = start_server(tmp_path_factory.mktemp("ours"), None, "--model-repository", repository)
    server.model_dir = DEMO
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]
