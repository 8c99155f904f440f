# SPDX-License-Identifier: Apache-2.0
"""`inflight bench load` against the real server: its counts equal the server's, errors come by kind."""

import http.server
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

import pytest
import requests

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/protocol"))

from live_server import start_server  # noqa: E402

INFLIGHT = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = start_server(tmp_path_factory.mktemp("server"))
    yield running
    assert running.stop() == 0


def load(address, *options, check=True):
    command = [INFLIGHT, "bench", "load", address, "--json", "-", *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if check:
        assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done


def counted(server, model):
    stats = requests.get(f"http://{server.http}/v2/models/{model}/stats", timeout=30).json()["model_stats"][0]
    return stats["inference_stats"]["success"]["count"]


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm"])
@pytest.mark.parametrize("protocol", ["generate-stream", "generate", "infer", "grpc"])
def test_every_request_is_answered_with_all_its_tokens(server, protocol, model):
    before = counted(server, model)
    report, _ = load(
        server.grpc if protocol == "grpc" else server.http,
        "--protocol",
        protocol,
        "--model",
        model,
        "--num-requests",
        12,
        "--num-warmup",
        3,
        "--concurrency",
        4,
        "--input-len",
        9,
        "--output-len",
        11,
    )
    assert report["num_requests"] == report["num_answered"] == 12 and report["errors"] == {}
    assert report["num_tokens"] == 12 * 11
    assert counted(server, model) - before >= 15  # responses of a stream count one each
    assert report["end_to_end_ms"]["count"] == 12
    assert report["tokens_per_s"] == pytest.approx(132 / report["wall_s"])
    assert 0 < report["client_cpu_s"] < report["wall_s"] * 2
    if protocol in {"generate-stream", "grpc"}:
        assert report["ttft_ms"]["count"] == 12 and report["inter_response_ms"]["count"] == 12 * 10
        assert report["ttft_ms"]["p50"] <= report["end_to_end_ms"]["p50"]
    else:
        assert report["ttft_ms"] is None
    for spread in (report["end_to_end_ms"], report["send_delay_ms"]):
        assert spread["p50"] <= spread["p90"] <= spread["p99"] <= spread["max"]


def test_no_request_is_sent_before_it_is_due(server):
    """The gaps themselves have a unit test."""
    report, _ = load(server.http, "--request-rate", 200, "--num-requests", 100, "--output-len", 1, "--input-len", 2, "--seed", 5)
    assert report["num_answered"] == 100
    assert report["wall_s"] > 0.25  # 100 gaps of 5 ms; a server of any speed cannot be asked earlier


@pytest.mark.parametrize(("concurrency", "options"), [(3, ()), (1, ("--request-rate", 500))])
def test_as_many_requests_are_under_way_as_asked(concurrency, options):
    lock, together = threading.Lock(), threading.Barrier(concurrency)
    under_way, most = 0, 0

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            nonlocal under_way, most
            self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                under_way += 1
                most = max(most, under_way)
            together.wait(60)  # fewer at once never get on
            time.sleep(0.05)  # one too many would come now
            body = b'{"model_name": "ensemble", "model_version": "1", "text_output": "x"}'
            with lock:
                under_way -= 1
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        report, _ = load(
            f"127.0.0.1:{listener.server_port}",
            "--protocol",
            "generate",
            "--input",
            "text",
            "--num-requests",
            9,
            "--concurrency",
            concurrency,
            *options,
        )
        listener.shutdown()
    assert report["num_answered"] == 9
    assert most == concurrency


def test_prompts_come_from_a_file_round_and_round(server, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text('Once upon a time\n\n{"text_input": "Hello", "max_tokens": 3}\n')
    report, _ = load(server.http, "--prompts", path, "--num-requests", 4, "--output-len", 5)
    assert report["num_tokens"] == 2 * 5 + 2 * 3


def test_faulty_prompts_name_file_and_line(server, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text('fine\n{"text": "x"}\n')
    command = [INFLIGHT, "bench", "load", server.http, "--prompts", path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "prompts.txt line 2: 'text'" in done.stderr


def test_errors_are_counted_by_kind(server):
    report, done = load(server.http, "--model", "no_such_model", "--input", "text", "--num-requests", 3, check=False)
    assert done.returncode == 1 and "no request was answered" in done.stderr
    [(kind, count)] = report["errors"].items()
    assert count == 3 and kind.startswith("HTTP 4")


def test_nobody_listening_is_an_error():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        report, done = load(f"127.0.0.1:{port}", "--num-requests", 2, check=False)
    assert done.returncode == 1
    assert sum(report["errors"].values()) == 2


def test_client_gives_up_a_silent_server_and_survives_a_closing_one():
    """A listener that never answers its first connection and closes the second."""
    listener = socket.create_server(("127.0.0.1", 0))
    held = []

    def serve():
        held.append(listener.accept()[0])
        listener.accept()[0].close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    report, _ = load(f"127.0.0.1:{listener.getsockname()[1]}", "--num-requests", 2, "--timeout-ms", 500, check=False)
    thread.join(30)
    listener.close()
    assert set(report["errors"]) >= {"timeout of the client"}
    assert sum(report["errors"].values()) == 2


def test_table_is_for_people(server):
    command = [INFLIGHT, "bench", "load", server.http, "--num-requests", "2", "--output-len", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    for word in ("first token", "whole answer", "tokens/s", "client CPU", "p99"):
        assert word in done.stdout
