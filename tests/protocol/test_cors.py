# SPDX-License-Identifier: Apache-2.0
"""Pages of other origins (CORS), HEAD and OPTIONS: what a browser is told, by the rules of the Fetch standard."""

import http.server
import os
import pathlib
import socket
import threading

import pytest
import requests
from browser import Browser, needs_chromium
from live_server import start_error, start_server

UI = "https://ui.example"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
INFER = {"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "BYTES", "data": ["hello"]}]}
OURS = ["/v1/models", "/health", "/version", "/docs", "/openapi.json", "/page/page.css", "/metrics"]


def serve(path, repository, *options):
    path.mkdir()
    return start_server(
        path, None, "--model-repository", repository, "--allow-grpc=false", "--http-metrics=true", *options, max_kv_tokens=None
    )


@pytest.fixture(scope="module")
def closed(tmp_path_factory, repository):
    server = serve(tmp_path_factory.mktemp("cors") / "closed", repository)
    yield f"http://{server.http}"
    assert server.stop() == 0


@pytest.fixture(scope="module")
def opened(tmp_path_factory, repository):
    """For one origin by its name, in a mode that has something to change."""
    server = serve(
        tmp_path_factory.mktemp("cors") / "opened", repository, f"--cors-origin={UI}", "--cors-origin=http://localhost:3000",
        "--model-control-mode=explicit", "--load-model=identity",
    )  # fmt: skip
    yield f"http://{server.http}"
    assert server.stop() == 0


@pytest.fixture(scope="module")
def starred(tmp_path_factory, repository):
    server = serve(
        tmp_path_factory.mktemp("cors") / "starred", repository, "--cors-origin=*", "--model-control-mode=explicit",
        "--load-model=identity",
    )  # fmt: skip
    yield f"http://{server.http}"
    assert server.stop() == 0


def cors(answer):
    return {name.lower(): value for name, value in answer.headers.items() if name.lower().startswith("access-control-")}


def test_a_foreign_origin_gets_no_header_and_no_preflight(closed, opened):
    for server, origin in ((closed, UI), (opened, "https://evil.example"), (opened, "http://ui.example"), (opened, "null")):
        for path in ("/v1/models", "/v2/health/live", "/nowhere"):
            assert cors(requests.get(server + path, headers={"Origin": origin}, timeout=30)) == {}, path
        for path in ("/v1/chat/completions", "/v2/models/identity/infer"):
            answer = requests.options(server + path, headers={"Origin": origin, **PREFLIGHT}, timeout=30)
            assert answer.status_code == 403 and cors(answer) == {}
            assert f"got '{origin}'" in answer.json()["error"] and "--cors-origin" in answer.json()["error"]
        answer = requests.post(f"{server}/v2/models/identity/infer", json=INFER, headers={"Origin": origin}, timeout=30)
        assert answer.status_code == 403 and cors(answer) == {}


def test_an_allowed_origin_is_told_so(opened):
    answer = requests.options(f"{opened}/v1/chat/completions", headers={"Origin": UI, **PREFLIGHT}, timeout=30)
    assert answer.status_code == 204 and answer.content == b""
    told = cors(answer)
    assert told["access-control-allow-origin"] == UI and "Origin" in answer.headers["Vary"]
    assert "POST" in told["access-control-allow-methods"] and int(told["access-control-max-age"]) > 0
    assert told["access-control-allow-headers"] == PREFLIGHT["Access-Control-Request-Headers"]
    assert "access-control-allow-credentials" not in told
    for path, status in (("/v1/models", 200), ("/v2/health/live", 200), ("/nowhere", 404), ("/v1/nothing", 404)):
        answer = requests.get(opened + path, headers={"Origin": "http://localhost:3000"}, timeout=30)
        assert answer.status_code == status
        assert cors(answer)["access-control-allow-origin"] == "http://localhost:3000", path
    answer = requests.post(f"{opened}/v2/models/identity/infer", json=INFER, headers={"Origin": UI}, timeout=30)
    assert answer.status_code == 200 and cors(answer)["access-control-allow-origin"] == UI
    assert {"Inflight-Seed", "Inflight-Warning"} <= set(cors(answer)["access-control-expose-headers"].split(", "))
    assert requests.post(f"{opened}/v2/repository/models/identity/load", json={}, headers={"Origin": UI}, timeout=30).ok


def test_errors_and_streams_have_the_headers_too(opened):
    answer = requests.post(f"{opened}/v1/chat/completions", data=b"{", headers={"Origin": UI}, timeout=30)
    assert answer.status_code == 400 and cors(answer)["access-control-allow-origin"] == UI
    answer = requests.post(f"{opened}/v2/models/none/infer", data=b" " * 200_000, headers={"Origin": UI}, timeout=30)
    assert answer.status_code in (400, 404) and cors(answer)["access-control-allow-origin"] == UI  # by its head alone
    assert cors(requests.get(f"{opened}/v1/models", timeout=30)) == {}  # no page asks


def test_a_star_lets_any_page_ask_and_none_change(starred):
    for origin in (UI, "null"):
        answer = requests.options(f"{starred}/v1/chat/completions", headers={"Origin": origin, **PREFLIGHT}, timeout=30)
        assert answer.status_code == 204 and cors(answer)["access-control-allow-origin"] == "*"
        answer = requests.post(f"{starred}/v2/models/identity/infer", json=INFER, headers={"Origin": origin}, timeout=30)
        assert answer.status_code == 200 and cors(answer)["access-control-allow-origin"] == "*"
        answer = requests.post(f"{starred}/v2/repository/models/identity/unload", json={}, headers={"Origin": origin}, timeout=30)
        assert answer.status_code == 403 and f"Origin: got '{origin}'" in answer.text


def test_an_origin_that_is_none_ends_the_start(repository, tmp_path):
    program = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
    command = [program, "serve", "--model-repository", repository, "--allow-grpc=false", "--http-port=0", "--metrics-port=0"]
    for origin in ("ui.example", "https://ui.example/", "https://*.example"):
        assert f"--cors-origin: got '{origin}'" in start_error([*command, "--cors-origin", origin])


@pytest.mark.parametrize("path", OURS)
def test_a_get_has_head_and_options(closed, path):
    get = requests.get(closed + path, timeout=30)
    head = requests.head(closed + path, timeout=30)
    assert head.status_code == get.status_code == 200
    assert head.content == b"" and head.headers["Content-Type"] == get.headers["Content-Type"]
    if path not in ("/metrics", "/page/page.css"):  # the one changes, the other comes packed
        assert head.headers["Content-Length"] == str(len(get.content)) or "Content-Encoding" in get.headers
    options = requests.options(closed + path, timeout=30)
    assert (options.status_code, options.content) == (204, b"") and "Content-Length" not in options.headers
    assert options.headers["Allow"] == "GET, HEAD, OPTIONS"


def test_a_wrong_method_is_told_the_right_ones(closed):
    answer = requests.put(f"{closed}/v1/models", timeout=30)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD, OPTIONS")
    assert requests.options(f"{closed}/v1/chat/completions", timeout=30).headers["Allow"] == "POST, OPTIONS"
    assert requests.head(f"{closed}/v1/chat/completions", timeout=30).status_code == 405


def test_the_contract_of_triton_has_neither(closed):
    """As recorded: /v2 and /v2/health/live answer HEAD with 405, unknown paths with 404."""
    for path, status in (("/v2", 405), ("/v2/health/live", 405), ("/nothing", 404), ("/", 404)):
        for method in ("HEAD", "OPTIONS"):
            answer = requests.request(method, closed + path, timeout=30)
            assert answer.status_code == status, (method, path)
    answer = requests.get(f"{closed}/", timeout=30)
    assert (answer.status_code, answer.text) == (404, '{"error":"Not Found"}')


def test_a_connection_goes_on_after_an_answer_without_a_body(closed):
    host, port = closed.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        for request in ("OPTIONS /health", "HEAD /health", "GET /health"):
            connection.sendall(f"{request} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            got = b""
            while not got.endswith(b"\r\n\r\n"):
                got += connection.recv(4096)
            assert got.startswith(b"HTTP/1.1 20"), request
            if request.startswith("OPTIONS"):
                assert b"content-length" not in got.lower()


@needs_chromium
def test_a_browser_keeps_the_rules(tmp_path, repository):
    """The same request by a page of another origin, to a server that names it and to one that does not."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>elsewhere</title>")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as elsewhere:
        threading.Thread(target=elsewhere.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        origin = f"http://127.0.0.1:{elsewhere.server_port}"
        allowed = serve(tmp_path / "allowed", repository, f"--cors-origin={origin}")
        other = serve(tmp_path / "other", repository, "--cors-origin=https://ui.example")
        browser = Browser(tmp_path / "profile")
        ask = """fetch('http://{0}/v2/models/identity/infer', {{method: 'POST', body: JSON.stringify({1}),
                 headers: {{'Content-Type': 'application/json', Authorization: 'Bearer none'}}}})
                 .then((a) => a.json()).then((a) => a.outputs[0].data[0], (e) => e.name)"""
        try:
            with browser.tab() as tab:
                tab.open(origin)
                assert tab.value(ask.format(allowed.http, INFER)) == "hello"
                assert tab.value(ask.format(other.http, INFER)) == "TypeError"
        finally:
            browser.close()
            elsewhere.shutdown()
        assert allowed.stop() == 0 and other.stop() == 0
