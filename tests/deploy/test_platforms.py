# SPDX-License-Identifier: Apache-2.0
"""Platforms that start Triton's image: KServe's command of it, and a gateway with a path of its own before each route.

E2E TIR's endpoints are such (docs.e2enetworks.com, "TIR", "Inference", "Triton"): a model repository in /mnt/models,
clients that send a bearer token for the gateway. The command is that of the runtime `kserve-tritonserver`
(kserve/kserve/config/runtimes/kserve-tritonserver.yaml).
"""

import http.server
import subprocess
import threading

import numpy as np
import pytest
import requests
import tritonclient.http as triton
from live_server import DEMO, START_TIMEOUT_S, ports_in
from llm_client import wait_until
from rank_group import INFLIGHT
from release_repositories import write_repository

PREFIX = "/project/p-1/endpoint/is-2"
TOKEN = "token-of-the-gateway"


def make_gateway(upstream):
    """A server that asks for the token, takes PREFIX away, and hands everything else on."""

    class Gateway(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one(self):
            length = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(length)
            if self.headers.get("Authorization") != f"Bearer {TOKEN}" or not self.path.startswith(PREFIX):
                return self.answer(401, {}, b"")
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            url = f"http://{upstream}{self.path.removeprefix(PREFIX)}"
            done = requests.request(self.command, url, data=body, headers=headers, timeout=60)
            return self.answer(done.status_code, done.headers, done.content)

        do_GET = do_POST = handle_one

        def answer(self, status, headers, body):
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection", "content-encoding"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    return server


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    """host:port and path of an endpoint."""
    work = tmp_path_factory.mktemp("platform")
    models, ports = work / "models", work / "ports.json"
    write_repository(models, 11, engine_dir=DEMO, tokenizer_dir=DEMO, decoupled_mode="False")
    (work / "tritonserver").symlink_to(INFLIGHT)
    command = [work / "tritonserver", f"--model-store={models}", "--grpc-port=0", "--http-port=0", "--metrics-port=0",
               "--allow-grpc=true", "--allow-http=true", "--http-address=127.0.0.1", "--grpc-address=127.0.0.1",
               "--device=cpu", "--max-kv-tokens=32768", f"--port-file={ports}"]  # fmt: skip
    with open(work / "log", "wb") as log:
        process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: ports_in(ports), timeout_s=START_TIMEOUT_S)
        gateway = make_gateway(f"127.0.0.1:{ports_in(ports)['http']}")
        yield f"127.0.0.1:{gateway.server_address[1]}{PREFIX}"
        gateway.shutdown()
        gateway.server_close()
        process.terminate()
        assert process.wait(60) == 0, (work / "log").read_text()[-3000:]
    finally:
        process.kill()
        process.wait()


def test_the_published_client_infers_through_the_gateway(endpoint):
    headers = {"Authorization": f"Bearer {TOKEN}"}
    inputs = []
    for name, values in (("text_input", np.array([["The fox"]], object)), ("max_tokens", np.array([[4]], np.int32)),
                         ("bad_words", np.array([[""]], object)), ("stop_words", np.array([[""]], object))):  # fmt: skip
        inputs.append(triton.InferInput(name, values.shape, "BYTES" if values.dtype == object else "INT32"))
        inputs[-1].set_data_from_numpy(values)
    with triton.InferenceServerClient(endpoint) as client:
        assert client.is_server_ready(headers=headers) and client.is_model_ready("ensemble", headers=headers)
        assert client.get_model_metadata("ensemble", headers=headers)["name"] == "ensemble"
        text = client.infer("ensemble", inputs, headers=headers).as_numpy("text_output")
        assert text.item().decode().startswith("The fox")


def test_a_token_of_the_gateway_is_no_key_of_the_server(endpoint):
    """The header goes on to the server, which was given no keys and leaves it alone."""
    body = {"text_input": "The fox", "max_tokens": 2, "bad_words": "", "stop_words": ""}
    url = f"http://{endpoint}/v2/models/ensemble/generate"
    assert requests.post(url, json=body, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60).ok
    assert requests.post(url, json=body, timeout=60).status_code == 401
