# SPDX-License-Identifier: Apache-2.0
"""Web pages of other hosts: what a browser sends for them changes nothing, asks nothing, and reads nothing under another name."""

import http.client
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
import requests
import tritonclient.http
from live_server import start_error, start_server

ECHO = {"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "BYTES", "data": ["echo"]}]}
EVIL = {"Origin": "http://evil.example"}
JSON = {"Content-Type": "application/json"}
SIMPLE_TYPES = ["text/plain", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
# What a page could want of the server, with a body that would have an effect.
CALLS = {
    "/v2/logging": {"log_verbose_level": 3},
    "/v2/debug/profile": {"duration_ms": 1},
    "/v2/trace/setting": {"trace_rate": "1"},
    "/v2/models/identity/trace/setting": {"trace_rate": "1"},
    "/v2/repository/models/identity/load": {},
    "/v2/repository/models/identity/unload": {},
    "/v2/systemsharedmemory/region/r/register": {"key": "/r", "offset": 0, "byte_size": 8},
    "/v2/systemsharedmemory/unregister": {},
    "/v2/cudasharedmemory/unregister": {},
    "/v2/models/identity/infer": ECHO,
}


def serve(path, repository, *options):
    return start_server(
        path, None, "--model-repository", repository, "--model-control-mode=explicit", "--load-model=identity",
        "--allow-client-shm=true", "--allow-grpc=false", *options, max_kv_tokens=None,
    )  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory, repository):
    running = serve(tmp_path_factory.mktemp("pages"), repository, "--http-allowed-host", "ui.example")
    yield running
    assert running.stop() == 0


def ask(address, path, headers, body, method="POST"):
    """(status, text) with these headers alone, as a browser and not as `requests` sends them."""
    connection = http.client.HTTPConnection(*address.split(":"), timeout=30)
    try:
        data = None if body is None else json.dumps(body).encode()
        connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
        for name, value in {**headers, **({} if data is None else {"Content-Length": len(data)})}.items():
            connection.putheader(name, value)
        connection.endheaders(data)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def state(server):
    address = f"http://{server.http}/v2"
    index = requests.post(f"{address}/repository/index", timeout=30).json()
    return [
        requests.get(f"{address}/{path}", timeout=30).json() for path in ("logging", "trace/setting", "systemsharedmemory/status")
    ] + sorted((model["name"], model.get("state")) for model in index)


@pytest.mark.parametrize("path", CALLS)
def test_a_page_of_another_host_is_refused(server, path):
    before = state(server)
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", f"http://{server.http}.evil.example"):
        for content_type in [*SIMPLE_TYPES, "application/json"]:
            status, text = ask(server.http, path, {"Origin": origin, "Content-Type": content_type}, CALLS[path])
            assert status == 403, (origin, content_type, text)
            assert json.loads(text)["error"].startswith(f"Origin: got '{origin}'") and "--http-allowed-host" in text
    # An empty body, as of `fetch(url, {method: "POST", mode: "no-cors"})`.
    assert ask(server.http, path, EVIL, None)[0] == 403
    assert ask(server.http, path, {"Sec-Fetch-Site": "cross-site"}, None)[0] == 403
    assert state(server) == before


@pytest.mark.parametrize("path", [path for path in CALLS if not path.endswith("infer")])
def test_what_changes_the_server_comes_as_json_from_a_browser(server, path):
    """Also of the server's own pages: `Sec-Fetch-Site: none` is what the address bar sends, and bookmarks."""
    before = state(server)
    for headers in ({"Origin": f"http://{server.http}"}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
        for content_type in SIMPLE_TYPES:
            status, text = ask(server.http, path, {**headers, "Content-Type": content_type}, CALLS[path])
            assert status == 403 and f"Content-Type: got '{content_type}'" in text, headers
        assert ask(server.http, path, headers, CALLS[path])[0] == 403, headers
    assert state(server) == before


def test_what_no_browser_sends_may_have_any_type(server):
    """The line of the old guides is `curl -d`, whose type is that of forms; test_tritonserver.py has it under that name."""
    for level in (1, 0):
        done = subprocess.run(
            ["curl", "-sS", "--fail", f"http://{server.http}/v2/logging", "-d", json.dumps({"log_verbose_level": level})],
            capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
        assert json.loads(done.stdout)["log_verbose_level"] == level
    for content_type in (*SIMPLE_TYPES, "text/xml"):
        assert ask(server.http, "/v2/logging", {"Content-Type": content_type}, {"log_verbose_level": 0})[0] == 200


def test_clients_that_are_no_pages_and_allowed_pages_are_served(server):
    own = f"http://{server.http}"
    settings = {"log_verbose_level": 0}
    for headers in ({}, JSON, {**JSON, "Origin": own}, {**JSON, "Origin": "https://ui.example"}):
        assert ask(server.http, "/v2/logging", headers, settings)[0] == 200, headers
        assert ask(server.http, "/v2/models/identity/infer", headers, ECHO)[0] == 200, headers
    for content_type in (*SIMPLE_TYPES, "application/octet-stream", "text/xml"):
        assert ask(server.http, "/v2/models/identity/infer", {"Content-Type": content_type}, ECHO)[0] == 200
    done = subprocess.run(
        ["curl", "-sS", "--fail", f"{own}/v2/models/identity/infer", "-d", json.dumps(ECHO)],
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["outputs"][0]["data"] == ["echo"]
    with tritonclient.http.InferenceServerClient(server.http) as client:
        tensor = tritonclient.http.InferInput("INPUT0", [1], "BYTES")
        tensor.set_data_from_numpy(np.array([b"binary"], dtype=object))
        assert client.infer("identity", [tensor]).as_numpy("OUTPUT0").tolist() == [b"binary"]
        client.update_log_settings(settings)
        client.update_trace_settings(settings={"trace_rate": "1000"})
        client.load_model("identity")
        client.get_model_repository_index()
        client.unregister_system_shared_memory()


def test_a_server_of_this_machine_is_called_by_names_that_it_knows(server):
    """DNS rebinding: a page whose name first leads to its author, then here, has one Origin and Host."""
    page = f"evil.example:{server.http.split(':')[1]}"
    for place, path in ((server.http, "/v2/logging"), (server.http, "/v2/health/live"), (server.metrics, "/metrics")):
        status, text = ask(place, path, {"Host": page}, None, "GET")
        assert status == 403 and f"Host: got '{page}'" in text and "--http-allowed-host NAME" in text
        for host in ("127.0.0.1", "localhost:1", "[::1]", "ui.example"):
            assert ask(place, path, {"Host": host}, None, "GET")[0] == 200, host
    status, text = ask(server.http, "/v2/logging", {"Host": page, "Origin": f"http://{page}", **JSON}, CALLS["/v2/logging"])
    assert status == 403 and "Host: got" in text


def test_names_of_an_open_server_are_known_when_they_are_given(tmp_path, repository):
    """What others call a machine is not known to it; Host and Origin still have to agree."""
    for name in ("open", "named"):
        (tmp_path / name).mkdir()
    running = serve(tmp_path / "open", repository, "--http-address=0.0.0.0")
    assert ask(running.http, "/v2/logging", {"Host": "llm.example"}, None, "GET")[0] == 200
    assert ask(running.http, "/v2/logging", {"Host": "llm.example", **JSON, **EVIL}, {})[0] == 403
    assert ask(running.http, "/v2/logging", {"Host": "llm.example", **JSON, "Origin": "https://llm.example"}, {})[0] == 200
    assert running.stop() == 0
    running = serve(tmp_path / "named", repository, "--http-address=0.0.0.0", "--http-allowed-host=llm.example")
    assert ask(running.http, "/v2/logging", {"Host": "llm.example"}, None, "GET")[0] == 200
    assert ask(running.http, "/v2/logging", {"Host": "evil.example"}, None, "GET")[0] == 403
    assert running.stop() == 0


def test_an_allowed_host_is_a_bare_name(repository):
    program = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
    command = [program, "serve", "--model-repository", repository, "--http-allowed-host", "http://ui.example", "--http-port=0"]
    assert "--http-allowed-host: got 'http://ui.example'" in start_error([*command, "--allow-grpc=false"])
