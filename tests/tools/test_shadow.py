# SPDX-License-Identifier: Apache-2.0
"""`inflight shadow` (docs/shadow.md) with two servers, one of which is changed on purpose."""

import http.server
import json
import os
import pathlib
import re
import signal
import subprocess
import threading

import pytest
import requests

INFLIGHT = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"


class Server(http.server.ThreadingHTTPServer):
    """Answers as `answers` say, by path: (status, media type, body or list of events)."""

    def __init__(self, answers):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = answers
        self.seen = []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.command, self.path, self.headers.get("X-Key"), body))
        status, media_type, answer = self.server.answers[self.path]
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        if isinstance(answer, str):
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer.encode())
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in [*answer, ""]:
            self.wfile.write(f"{len(event):x}\r\n{event}\r\n".encode())

    do_POST = do_PUT = do_GET

    def log_message(self, *args):
        pass


def text(value):
    return (200, "application/json", json.dumps({"text_output": value}))


def events(*values):
    return (200, "text/event-stream", [f"data: {json.dumps({'text_output': value})}\n\n" for value in values])


ANSWERS = {
    "/same": (200, "application/json", '{"a": 1, "b": [1.0, 2.0]}'),
    "/text": text("The capital of France is Paris."),
    "/stream": events("a", " b", " c"),
    "/status": (200, "application/json", "{}"),
    "/tensors": (200, "application/json", '{"outputs": [{"name": "OUT", "datatype": "INT32", "shape": [2], "data": [1, 2]}]}'),
}
CHANGED = {
    "/same": (200, "application/json", '{"b": [1.00001, 2], "a": 1}'),
    "/text": text("The capital of France is Lyon."),
    "/stream": events("a b", " d"),
    "/status": (503, "application/json", "{}"),
    "/tensors": (200, "application/json", '{"outputs": [{"name": "OUT", "datatype": "INT32", "shape": [2], "data": [1, 3]}]}'),
}


@pytest.fixture
def servers():
    with Server(ANSWERS) as old, Server(CHANGED) as new:
        yield old, new
        old.shutdown()
        new.shutdown()


def shadow(old, new, *options, stdin=None):
    command = [str(word) for word in (INFLIGHT, "shadow", "--old", old, "--new", new, *options)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)


def lines(*paths):
    return "".join(json.dumps({"path": path, "body": {"n": 1}, "headers": {"X-Key": "k"}}) + "\n" for path in paths)


def test_differences_are_told_by_their_kind(servers, tmp_path):
    old, new = servers
    (tmp_path / "requests").write_text(lines(*ANSWERS))
    done = shadow(old.url, new.url, "--requests", tmp_path / "requests", "--report", tmp_path / "report")
    assert done.returncode == 1
    out = done.stdout.splitlines()
    assert out[:-2] == [
        '2 POST /text: text text_output[25]: old "apital of France is Paris." new "apital of France is Lyon."',
        '3 POST /stream: text text[4]: old "a b c" new "a b d"',
        "3 POST /stream: finish events: old 3 new 2",
        "4 POST /status: status: old 200 new 503",
        "5 POST /tensors: tensors outputs.OUT.data[1]: old 2 new 3",
        "5 requests: 1 equal, 4 different (status 1, tensors 1, text 2, finish 1), 0 without an answer",
    ]
    assert re.fullmatch(r"old: to the first byte \d+\.\d ms .*; whole \d+\.\d ms .*", out[-2])
    assert "4 of 5 requests are answered otherwise" in done.stderr
    report = [json.loads(line) for line in (tmp_path / "report").read_text().splitlines()]
    assert [line["path"] for line in report] == list(ANSWERS)
    assert report[0]["differences"] == []
    assert report[3]["old"]["status"] == 200 and report[3]["new"]["status"] == 503
    assert report[4]["differences"] == [{"kind": "tensors", "place": "outputs.OUT.data[1]", "old": "2", "new": "3"}]
    assert old.seen == new.seen == [("POST", path, "k", b'{"n":1}') for path in ANSWERS]


def test_equal_servers_are_equal(servers):
    old, _ = servers
    done = shadow(old.url, old.url, "--requests=-", "--concurrency=3", stdin=lines(*ANSWERS, *ANSWERS))
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("10 requests: 10 equal, 0 different, 0 without an answer\n")


def test_rules_are_the_user_s(servers):
    old, new = servers
    strict = shadow(old.url, new.url, "--requests=-", "--tolerance=0", stdin=lines("/same"))
    assert "body b[0]: old 1.0 new 1.00001" in strict.stdout
    ignoring = shadow(old.url, new.url, "--requests=-", "--ignore=text_output", stdin=lines("/text"))
    assert ignoring.returncode == 0


def test_a_server_that_does_not_answer_is_told(servers):
    old, _ = servers
    done = shadow(old.url, "http://127.0.0.1:1", "--requests=-", stdin=lines("/same"))
    assert done.returncode == 1
    assert done.stdout.startswith("1 POST /same: new: no answer: Connection refused\n")


def test_clients_get_the_old_server_s_answers_and_are_recorded(servers, tmp_path):
    old, new = servers
    command = [INFLIGHT, "shadow", "--old", old.url, "--new", new.url, "--port=0", "--record", tmp_path / "record"]
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    port = int(re.fullmatch(r"listening at 127\.0\.0\.1:(\d+)\n", process.stdout.readline()).group(1))
    url = f"http://127.0.0.1:{port}"
    assert requests.get(f"{url}/nowhere", timeout=30).status_code == 502  # where the servers close the connection
    told = [process.stdout.readline() for _ in range(2)]  # before the next one, since what ends first is told first
    answer = requests.post(f"{url}/text", data=b"\xff\x00", headers={"X-Key": "k"}, timeout=30)
    assert answer.json() == {"text_output": "The capital of France is Paris."}
    assert answer.headers["Content-Type"] == "application/json"
    told.append(process.stdout.readline())
    stream = requests.get(f"{url}/stream", timeout=30)
    assert stream.text == "".join(ANSWERS["/stream"][2])
    told += [process.stdout.readline() for _ in range(2)]
    process.send_signal(signal.SIGTERM)
    out = "".join(told) + process.stdout.read()
    assert process.wait(60) == 1
    assert "2 POST /text: text text_output[25]" in out
    assert "3 requests: 0 equal, 2 different (text 2, finish 1), 1 without an answer" in out
    recorded = [json.loads(line) for line in (tmp_path / "record").read_text().splitlines()]
    assert [(line["method"], line["path"]) for line in recorded] == [("GET", "/nowhere"), ("POST", "/text"), ("GET", "/stream")]
    assert recorded[1]["body_base64"] == "/wA="
    assert recorded[1]["headers"]["X-Key"] == "k"
    again = shadow(old.url, old.url, "--requests", tmp_path / "record")
    assert again.stdout.splitlines()[-3].startswith("3 requests: 2 equal")


def test_a_server_is_needed():
    done = subprocess.run([INFLIGHT, "shadow", "--old=http://a"], capture_output=True, text=True, timeout=60, check=False)
    assert "--new is needed" in done.stderr


@pytest.mark.parametrize("options, message", [
    (["--requests=-", "--new=localhost"], "--new: 'localhost' is no url"),
    ([], "one of --requests, --port and --grpc-port is needed"),
    (["--requests=-", "--port=0"], "one of --requests, --port and --grpc-port is needed"),
    (["--grpc-port=0"], "--grpc-port listens to clients over gRPC, and --old is a server over HTTP"),
    (["--requests=-", "--record=x"], "--record is for requests of --port and --grpc-port"),
    (["--requests=/nowhere"], "--requests: cannot open '/nowhere'"),
    (["--requests=-"], "--requests: line 1: path: got 'x'"),
])  # fmt: skip
def test_what_is_wrong_is_said(options, message):
    done = shadow("http://127.0.0.1:1", "http://127.0.0.1:1", *options, stdin='{"path": "x"}\n')
    assert done.returncode == 1
    assert message in done.stderr
