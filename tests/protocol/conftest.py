# SPDX-License-Identifier: Apache-2.0
"""One running server for all black-box tests of the protocols."""

import pathlib
import sys
import uuid

import pytest
import tritonclient.grpc as triton
from tritonclient.utils import shared_memory

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.append(str(pathlib.Path(__file__).parents[1] / "tools"))  # safetensors_rows

from certificates import make_certificates
from light_models import write_light_repository
from live_server import start_server


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """The demo model in float32; ends with status 0 on SIGTERM or the run fails."""
    running = start_server(tmp_path_factory.mktemp("server"))
    yield running
    assert running.process.poll() is None, f"the server ended by itself:\n{running.log.read_text()[-4000:]}"
    assert running.stop() == 0, running.log.read_text()[-4000:]


@pytest.fixture(scope="session")
def plain(server):
    """`server`, where a test compares another one with it."""
    return server


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Two authorities, a server and clients."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Models that take no time."""
    return write_light_repository(tmp_path_factory.mktemp("light"))


@pytest.fixture
def client(server):
    """The published client of gRPC."""
    with triton.InferenceServerClient(server.grpc) as c:
        yield c


@pytest.fixture
def regions():
    """Makes regions of shared memory of this process, and takes them away."""
    made = []

    def make(byte_size):
        name = f"inflight_{uuid.uuid4().hex[:12]}"
        made.append(shared_memory.create_shared_memory_region(name, name, byte_size, create_only=True))
        return name, made[-1]

    yield make
    for region in made:
        shared_memory.destroy_shared_memory_region(region)
