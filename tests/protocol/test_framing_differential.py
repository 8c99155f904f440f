# SPDX-License-Identifier: Apache-2.0
"""Where a request ends, as this server and nginx see it: generated messages with the framing of HTTP/1.1 (RFC 9112).

Each connection brings a few requests with bodies and then a last one of another kind. Where both servers come to the last
one they have answered as many before it: what one takes for a body the other never takes for a request. nginx is the
opponent, since it is what most proxies are; it need not accept what we refuse, nor we what it refuses.
"""

import json
import os
import random
import re
import shutil
import socket
import subprocess
import time

import pytest
from free_ports import free_port
from light_models import write_light_repository
from live_server import start_server

NUM_CONNECTIONS = int(os.environ.get("INFLIGHT_FRAMING_CONNECTIONS", "3000"))
SEED = 23
NGINX = shutil.which("nginx", path="/usr/sbin:" + os.environ.get("PATH", ""))
GARBAGE = b"\0" * 500 + b"\r\n\r\n"  # ends what waits for more
LAST = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
PATIENCE_S = 20

# What we accept and nginx refuses: tabs around a value, and lines that go on with white space, which RFC 9112 allows a server
# to read (section 5, OWS; section 5.2).
OURS_ALONE = re.compile(rb":[ \t]*\t|\t\r\n|\n[ \t]")


def pick(rng, usual, *odd):
    """Mostly the usual form: a message with one oddity tells more than one with ten."""
    return usual if rng.random() < 0.96 else rng.choice(odd)


def chunk_size(rng, size):
    forms = [
        "{:X}",
        "0{:x}",
        "0x{:x}",
        "+{:x}",
        " {:x}",
        "{:x} ",
        "{:x}\t",
        "{:x};a=b",
        '{:x};a="b;"',
        "{:x} ;a",
        "-{:x}",
        "{:x}g",
    ]
    return pick(rng, "{:x}", *forms).format(size).encode()


def line_end(rng):
    return pick(rng, b"\r\n", b"\n", b"\r", b"\r\r\n")


def chunked(rng, body):
    out = b""
    while body:
        count = rng.randint(max(1, len(body) // 3), len(body))
        out += chunk_size(rng, count) + line_end(rng) + body[:count] + line_end(rng)
        body = body[count:]
    out += pick(rng, b"0", b"00", b"0;x", b"-0", b"") + line_end(rng)
    return out + pick(rng, b"", b"X: y\r\n", b"Content-Length: 50\r\n", b"X\r\n") + line_end(rng)


def lengths(rng, size):
    text = pick(rng, "{}", "+{}", " {}", "{} ", "0{}", "{},{}", "{}, {}", "0x{}", "-{}", "{}_0", "{}\t", "{};", "")
    return text.replace("{}", str(size)).encode()


def coding(rng):
    return pick(
        rng, b"chunked", b"Chunked", b"CHUNKED", b" chunked", b"chunked ", b"\tchunked", b"chunked,chunked", b"gzip, chunked",
        b"chunked, gzip", b"identity", b"xchunked", b"chunked;q=1", b'"chunked"', b"chunked\x0b", b"",
    )  # fmt: skip


def name(rng, text):
    return pick(rng, text, text.lower(), text.upper(), text + b" ", b" " + text, text.replace(b"-", b"_"), text + b"\t")


def request(rng):
    body = rng.choice([b"{}", b" " * 3 + b"{}", b"{}" + b" " * 40, b"{}" + LAST, b""])
    fields = [b"Host: localhost"] * pick(rng, 1, 0, 2)
    framing = pick(rng, rng.choice(["length", "chunked"]), "both", "none", "twice")
    if framing in ("length", "both", "twice"):
        fields.append(name(rng, b"Content-Length") + b": " + lengths(rng, len(body)))
    if framing == "twice":
        fields.append(b"Content-Length: " + lengths(rng, rng.choice([len(body), 0, 1])))
    if framing in ("chunked", "both"):
        fields.append(name(rng, b"Transfer-Encoding") + b":" + pick(rng, b" ", b"", b"\t") + coding(rng))
    rng.shuffle(fields)
    version = pick(rng, b"HTTP/1.1", b"HTTP/1.0", b"HTTP/1.2", b"http/1.1", b"HTTP/1.1 ")
    head = b"POST /v2/logging " + version + b"\r\n" + b"".join(field + line_end(rng) for field in fields) + line_end(rng)
    return head + (chunked(rng, body) if framing in ("chunked", "both") else body)


def exchange(port, data):
    """The bodies of what is answered until the server closes or has nothing more to say."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        received = b""
        try:
            connection.sendall(data + GARBAGE)
            while part := connection.recv(65536):
                received += part
        except (ConnectionResetError, BrokenPipeError):
            pass
    answers = []
    while b"\r\n\r\n" in received:
        head, received = received.split(b"\r\n\r\n", 1)
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        size = int(fields.get(b"content-length", b"0"))
        answers.append((int(head.split()[1]), received[:size]))
        received = received[size:]
    return answers


def num_before_the_last(answers, is_last):
    """None where the server did not come to it."""
    if not answers or not is_last(answers[-1]):
        return None
    return len(answers) - 1


@pytest.fixture(scope="module")
def nginx(tmp_path_factory):
    if NGINX is None:
        pytest.skip("this machine has no nginx to compare with (scripts/install_deps.sh ci)")
    folder = tmp_path_factory.mktemp("nginx")
    port = free_port()
    temporary = "".join(f"{kind}_temp_path {folder};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(f"""
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off; keepalive_requests 1000; lingering_close off; {temporary}
  server {{
    listen 127.0.0.1:{port};
    location = /v2 {{ return 200 "last"; }}
    location / {{ return 200 "other"; }}
  }}
}}
""")
    process = subprocess.Popen([NGINX, "-c", folder / "nginx.conf", "-p", folder], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            assert time.monotonic() < deadline and process.poll() is None, (folder / "error.log").read_text()
            time.sleep(0.02)
    yield port
    process.terminate()
    process.wait()


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    repository = write_light_repository(folder / "models")
    server = start_server(folder, None, "--model-repository", repository, max_kv_tokens=None)
    yield int(server.http.rsplit(":", 1)[1])
    server.stop()


def is_our_last(answer):
    status, body = answer
    return status == 200 and "extensions" in json.loads(body or b"{}")


def test_both_see_as_many_requests_in_the_same_bytes(own, nginx):
    rng = random.Random(SEED)
    num_agreed = num_refused = num_ours_alone = 0
    for _ in range(NUM_CONNECTIONS):
        data = b"".join(request(rng) for _ in range(rng.randint(1, 3))) + LAST
        ours = num_before_the_last(exchange(own, data), is_our_last)
        theirs = num_before_the_last(exchange(nginx, data), lambda answer: answer == (200, b"last"))
        if ours is None:
            num_refused += 1
        elif theirs is None:
            num_ours_alone += 1
            assert OURS_ALONE.search(data), data
        else:
            assert ours == theirs, data
            num_agreed += 1
    print(f"{num_agreed} connections read alike, {num_refused} refused by us, {num_ours_alone} by nginx alone")
    assert num_agreed > NUM_CONNECTIONS // 10 and num_refused > NUM_CONNECTIONS // 10
