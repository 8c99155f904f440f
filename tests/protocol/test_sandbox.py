# SPDX-License-Identifier: Apache-2.0
"""`--sandbox on`: the real server serves, loads, traces and shares memory, and reaches nothing that its options do not name."""

import contextlib
import ctypes
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import time
import uuid

import pytest
import requests
import tritonclient.http as triton
import zmq
from certificates import make_certificates
from light_models import write_light_repository
from live_server import DEMO, is_sanitized, start_error, start_server
from test_administration import ask
from test_shadow_of import shadowing
from tritonclient.utils import shared_memory

LIBC = ctypes.CDLL(None, use_errno=True)
LANDLOCK_CREATE_RULESET = 444  # on every architecture
PATIENCE_S = 30
ECHO = {"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "BYTES", "data": ["echo"]}]}

pytestmark = [
    pytest.mark.skipif(
        LIBC.syscall(LANDLOCK_CREATE_RULESET, None, 0, 1) <= 0,
        reason="this machine has no Landlock (Linux 5.13), so that nothing is shown of --sandbox",
    ),
    pytest.mark.skipif(is_sanitized(), reason="sanitizers read and map what a sandbox refuses; CI's release build runs it"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Models to serve, and a tokenizer elsewhere."""
    path = tmp_path_factory.mktemp("sandbox")
    repository = write_light_repository(path / "repository")
    (repository / "words/1").mkdir(parents=True)
    (repository / "words/1/model.py").touch()
    for folder in (path / "elsewhere", path / "allowed", repository / "linked"):
        folder.mkdir()
        for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
            shutil.copy(DEMO / name, folder / name)
    (repository / "linked/tokenizer.json").unlink()
    (repository / "linked/tokenizer.json").symlink_to("/etc/passwd")
    return path


def serve(place, name, *options):
    """A server with a folder of its own: for temporary files too, since /tmp is where this test keeps what is refused."""
    folder = place / name
    (folder / "temporary").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder / "temporary"))
        return start_server(
            folder, DEMO, "--model-repository", place / "repository", "--model-control-mode=explicit", "--load-model=identity",
            "--sandbox-read", place / "allowed", "--allow-client-shm=true", "--trace-config", f"triton,file={folder}/trace.json",
            "--trace-config", "level=TIMESTAMPS", "--trace-config", "rate=1",
            "--trace-config", "triton,log-frequency=1", *options,
        )  # fmt: skip


@pytest.fixture(scope="module")
def server(place):
    running = serve(place, "on", "--sandbox", "on")
    yield running
    assert running.stop() == 0


def post(server, path, body=None):
    return requests.post(f"http://{server.http}/v2/{path}", json=body, timeout=60)


def load_words(server, repository, tokenizer_dir):
    """The answer to a load of model `words`, whose file says where its tokenizer is."""
    config = requests.get(f"http://{server.http}/v2/models/preprocessing/config", timeout=30).json()
    lines = ['backend: "python"', "max_batch_size: 8"]
    for kind in ("input", "output"):
        for tensor in config[kind]:
            optional = "optional: true" if tensor.get("optional") else ""
            fields = f'name: "{tensor["name"]}" data_type: {tensor["data_type"]} dims: {tensor["dims"]}'
            lines.append(f"{kind} {{ {fields} {optional} }}")
    lines.append(f'parameters {{ key: "tokenizer_dir" value {{ string_value: "{tokenizer_dir}" }} }}')
    (repository / "words/config.pbtxt").write_text("\n".join(lines))
    return post(server, "repository/models/words/load")


def test_the_kernel_says_that_it_is_in_force(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    assert re.search(r"^NoNewPrivs:\t1$", status, re.MULTILINE)
    threads = list(pathlib.Path(f"/proc/{server.process.pid}/task").iterdir())
    assert len(threads) > 2
    for thread in threads:
        assert re.search(r"^Seccomp:\t2$", (thread / "status").read_text(), re.MULTILINE)
    assert "the sandbox is in force" in server.log.read_text()


def test_it_infers_loads_unloads_and_traces(place, server):
    answer = post(server, "models/ensemble/generate", {"text_input": "What is 12 + 30?", "max_tokens": 4})
    assert answer.ok, answer.text
    for _ in range(2):
        assert post(server, "repository/models/identity/unload").ok
        assert post(server, "repository/models/identity/load").ok
        assert post(server, "models/identity/infer", ECHO).json()["outputs"][0]["data"] == ["echo"]
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
    assert "nv_cpu_memory_total_bytes" in page
    deadline = time.monotonic() + PATIENCE_S
    while not list((place / "on").glob("trace.json*")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    config = requests.get(f"http://{server.http}/v2/models/identity/config", timeout=30).json()
    files = {"config": json.dumps(config), "file:1/model.bin": "AAAA"}  # kept in the folder for temporary files
    answer = post(server, "repository/models/identity/load", {"parameters": files})
    assert answer.ok, answer.text


def test_clients_share_memory_that_is_theirs(server):
    name, data = f"sandbox_{uuid.uuid4().hex}", b"shared"
    size = 4 + len(data)
    region = shared_memory.create_shared_memory_region(name, f"/{name}", size)
    try:
        pathlib.Path(f"/dev/shm/{name}").write_bytes(struct.pack("<I", len(data)) + data)
        with triton.InferenceServerClient(server.http) as client:
            client.register_system_shared_memory(name, f"/{name}", size)
            tensor = triton.InferInput("INPUT0", [1], "BYTES")
            tensor.set_shared_memory(name, size)
            assert client.infer("identity", [tensor]).as_numpy("OUTPUT0").tolist() == [data]
            client.unregister_system_shared_memory(name)
    finally:
        shared_memory.destroy_shared_memory_region(region)


def test_a_load_reaches_what_the_options_name_and_nothing_else(place, server):
    answer = load_words(server, place / "repository", place / "allowed")
    assert answer.ok, answer.text
    for folder in (place / "elsewhere", place / "repository/linked", "/etc", "/root"):
        answer = load_words(server, place / "repository", folder)
        assert not answer.ok, folder
        assert "root:x:" not in answer.text
    assert "Permission denied" in server.log.read_text()
    assert post(server, "models/identity/infer", ECHO).ok


def test_it_makes_the_socket_of_administration_and_takes_it_away(place):
    folder = place / "run"
    folder.mkdir()
    server = serve(place, "socket", "--sandbox", "on", "--admin-socket", folder / "s")
    assert ask(folder / "s", "GET", "/v2/logging")[0] == 200
    assert server.stop() == 0
    assert list(folder.iterdir()) == []


def test_events_go_over_sockets_of_a_folder(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    running = start_server(
        tmp_path, DEMO, "--sandbox", "on", f"--kv-events-endpoint=ipc://{folder}/events",
        f"--kv-events-replay-endpoint=ipc://{folder}/replay", "--kv-events-topic=kv",
    )  # fmt: skip
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.linger = 0
        socket.rcvtimeo = PATIENCE_S * 1000
        socket.subscribe("kv")
        socket.connect(f"ipc://{folder}/events")
        assert post(running, "models/ensemble/generate", {"text_input": "12 + 30 " * 40, "max_tokens": 4}).ok
        while not socket.poll(100):  # events before the subscription was there are not sent again
            assert post(running, "models/ensemble/generate", {"text_input": f"{time.time()} " * 40, "max_tokens": 4}).ok
        assert socket.recv_multipart()[0] == b"kv"
    assert running.stop() == 0


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_the_authority_that_the_environment_names_is_read(tmp_path_factory, monkeypatch, name):
    """To call a server of it: one that is shadowed."""
    folder, authority = tmp_path_factory.mktemp("shadow"), tmp_path_factory.mktemp("authority")
    certificates = make_certificates(tmp_path_factory.mktemp("certificates"))
    root = authority / "root.crt"
    shutil.copy(certificates.root.certificate, root)
    subprocess.run(["openssl", "rehash", authority], check=True, capture_output=True)
    pair = certificates.server
    of_tls = ["--http-use-ssl", "--http-server-cert", pair.certificate, "--http-server-key", pair.key]
    old = start_server(tmp_path_factory.mktemp("old"), DEMO, *of_tls)
    monkeypatch.setenv(name, str(root if name == "SSL_CERT_FILE" else authority))
    with shadowing(folder, f"https://{old.http}", "--http-port=0", "--allow-grpc=false", "--sandbox=on") as (ports, out):
        url = f"http://127.0.0.1:{ports['shadow']}/v2/models/ensemble/generate"
        answer = requests.post(url, json={"text_input": "12 + 30", "max_tokens": 4}, timeout=60)
        assert answer.ok, answer.text
    assert old.stop() == 0
    assert "1 requests: 1 equal" in out.read_text()


def test_keys_that_are_replaced_are_read(place):
    keys = place / "keys"
    keys.mkdir()
    (keys / "file").write_text("first\n")
    running = serve(place, "keyed", "--sandbox", "on", "--api-key-file", keys / "file")
    url = f"http://{running.http}/v2/models/identity/infer"

    def status(key):
        return requests.post(url, json=ECHO, headers={"Authorization": f"Bearer {key}"}, timeout=30).status_code

    with contextlib.ExitStack() as stack:
        stack.callback(running.stop)
        assert (status("first"), status("second")) == (200, 401)
        (keys / "new").write_text("second\n")
        (keys / "new").rename(keys / "file")
        deadline = time.monotonic() + PATIENCE_S
        while status("second") != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_a_model_of_the_hubs_cache_is_read_through_its_links(tmp_path, monkeypatch):
    cached = tmp_path / "hub/models--org--demo"
    for folder in ("blobs", "snapshots/c0ffee", "refs"):
        (cached / folder).mkdir(parents=True)
    (cached / "refs/main").write_text("c0ffee")
    for file in DEMO.iterdir():
        if file.is_file():
            shutil.copy(file, cached / "blobs" / file.name)
            (cached / "snapshots/c0ffee" / file.name).symlink_to(f"../../blobs/{file.name}")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    running = start_server(tmp_path, "org/demo", "--sandbox", "on")
    answer = post(running, "models/ensemble/generate", {"text_input": "What is 12 + 30?", "max_tokens": 4})
    assert running.stop() == 0
    assert answer.ok, answer.text


@pytest.mark.parametrize("is_of_hub", [False, True])
def test_a_draft_model_is_read(tmp_path, monkeypatch, is_of_hub):
    folder = tmp_path / ("hub/models--org--draft/snapshots/c0ffee" if is_of_hub else "draft")
    shutil.copytree(DEMO, folder)
    if is_of_hub:
        (tmp_path / "hub/models--org--draft/refs").mkdir()
        (tmp_path / "hub/models--org--draft/refs/main").write_text("c0ffee")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    running = start_server(tmp_path, DEMO, "--sandbox", "on", "--draft-model", "org/draft" if is_of_hub else folder)
    answer = post(running, "models/ensemble/generate", {"text_input": "What is 12 + 30?", "max_tokens": 4})
    assert running.stop() == 0
    assert answer.ok, answer.text


def test_the_folder_of_the_program_is_not_read(place, monkeypatch):
    """A program may lie in somebody's home."""
    shutil.copy(pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight", place / "elsewhere")
    monkeypatch.setenv("INFLIGHT_BIN_DIR", str(place / "elsewhere"))
    running = serve(place, "beside", "--sandbox", "on")
    answer = load_words(running, place / "repository", place / "elsewhere")
    assert running.stop() == 0
    assert not answer.ok, answer.text


def test_what_is_to_be_read_is_there(tmp_path):
    program = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
    error = start_error([program, "serve", DEMO, "--sandbox", "on", "--sandbox-read", tmp_path / "absent"])
    assert f"--sandbox-read: got '{tmp_path}/absent', which is not there" in error


def test_without_it_the_same_loads_succeed(place):
    """So that the refusals above are the sandbox's."""
    running = serve(place, "off")
    try:
        assert load_words(running, place / "repository", place / "elsewhere").ok
        status = pathlib.Path(f"/proc/{running.process.pid}/status").read_text()
        assert re.search(r"^Seccomp:\t0$", status, re.MULTILINE) or "Seccomp:\t2" in pathlib.Path("/proc/self/status").read_text()
    finally:
        assert running.stop() == 0


# --- kernels that have less ---


def without_landlock():
    """In a child: the system call fails as on a kernel that does not have it."""
    code = [
        (0x20, 0, 0, 0),  # load the number
        (0x15, 0, 1, LANDLOCK_CREATE_RULESET),
        (0x06, 0, 0, 0x00050000 | 38),  # refuse with ENOSYS
        (0x06, 0, 0, 0x7FFF0000),  # allow
    ]
    program = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in code))
    filters = struct.pack("<HxxxxxxQ", len(code), ctypes.addressof(program))
    assert LIBC.prctl(38, 1, 0, 0, 0) == 0  # no_new_privs
    assert LIBC.prctl(22, 2, filters, 0, 0) == 0  # a filter of system calls


def test_a_kernel_without_landlock_is_refused(tmp_path, monkeypatch):
    program = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: run(*args, preexec_fn=without_landlock, **kwargs))
    error = start_error([program, "serve", DEMO, "--sandbox", "on"])
    assert "--sandbox on: this kernel has no Landlock" in error
    assert "--sandbox best-effort" in error


def test_best_effort_takes_what_there_is_and_says_what_is_not(place, monkeypatch):
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **kwargs: popen(*args, preexec_fn=without_landlock, **kwargs))
    running = serve(place, "less", "--sandbox", "best-effort")
    with contextlib.ExitStack() as stack:
        stack.callback(running.stop)
        assert "the sandbox is not whole" in running.log.read_text()
        assert post(running, "models/identity/infer", ECHO).ok
        assert load_words(running, place / "repository", place / "elsewhere").ok  # nothing keeps it from files
