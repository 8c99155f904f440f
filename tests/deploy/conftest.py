# SPDX-License-Identifier: Apache-2.0
"""Where the tests of deploy/ find what runs the server; Helm, schemas, and a server for all tests of a file."""

import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "protocol"))
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "object_store"))  # stand_ins

import requests
from certificates import make_certificates
from chart import load_helm
from live_server import DEMO, start_server
from manifests import load_schemas


@pytest.fixture(scope="session")
def helm():
    """Helm's own library, as the module helm_python."""
    return load_helm()


@pytest.fixture(scope="session")
def schemas():
    """{version: schemas of Kubernetes' objects}."""
    return load_schemas()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Two authorities, a server and clients."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    """A server of the demo model that has answered a request."""
    server = start_server(tmp_path_factory.mktemp("demo"), DEMO)
    body = {"text_input": "The fox", "max_tokens": 3}
    assert requests.post(f"http://{server.http}/v2/models/ensemble/generate", json=body, timeout=60).ok
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="session")
def families(demo):
    """Series and labels of its metrics page: {name: {label, ...}}."""
    found = {}
    for line in requests.get(f"http://{demo.metrics}/metrics", timeout=30).text.splitlines():
        if not line.startswith("#"):
            name, labels = re.match(r"([\w:]+)(?:\{(.*)\})? ", line).groups()
            found.setdefault(name, set()).update(re.findall(r"(\w+)=", labels or ""))
    return found
