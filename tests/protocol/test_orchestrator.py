# SPDX-License-Identifier: Apache-2.0
"""Orchestrator mode: one server whose models of two ranks have processes of their own, each model alone with its losses."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess

import pytest
import requests
from free_ports import free_port
from live_server import DEMO, ROOT, START_TIMEOUT_S, ports_in, serving, start_error, start_server
from llm_client import wait_until
from rank_group import INFLIGHT
from release_repositories import write_repository
from test_two_models import add_draft
from tokenizers import Tokenizer

MODELS = ["tensorrt_llm", "other_llm"]
RANKS = ["--tensor-parallel-size", "2"]
TEXT = "Once upon a time"
UPSTREAMS = "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker"


def write_models(root, worker=UPSTREAMS, other=DEMO, **fill):
    """Two LLMs of release 0.13, of which the ensemble has the first."""
    repository = write_repository(
        root / "models", 13, without=["tensorrt_llm_bls"], engine_dir=DEMO, tokenizer_dir=DEMO, decoupled_mode="True",
        triton_backend="tensorrtllm", **fill,
    )  # fmt: skip
    config = repository / MODELS[0] / "config.pbtxt"
    assert UPSTREAMS in config.read_text()
    config.write_text(config.read_text().replace(UPSTREAMS, str(worker)))
    add_draft(repository, MODELS[1], other)
    return repository


@contextlib.contextmanager
def orchestrating(folder, repository, *options, spawns="1"):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRTLLM_ORCHESTRATOR", "1")
        patch.setenv("TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES", spawns)
        with serving(folder, repository, *RANKS, *options) as server:
            yield server


def ask(server, model, **parameters):
    ids = Tokenizer.from_file(str(DEMO / "tokenizer.json")).encode(TEXT).ids
    body = {"input_ids": ids, "input_lengths": len(ids), "request_output_len": 30, **parameters}
    return requests.post(f"http://{server.http}/v2/models/{model}/generate", json=body, timeout=60)


def output_of(server, model):
    answer = ask(server, model)
    assert answer.ok, answer.text
    return answer.json()["output_ids"]


def is_ready(server, model=None):
    path = f"models/{model}" if model else "health"
    return requests.get(f"http://{server.http}/v2/{path}/ready", timeout=30).ok


def control(server, act, model):
    body = {"parameters": {"unload_dependents": True}} if act == "unload" else {}
    return requests.post(f"http://{server.http}/v2/repository/models/{model}/{act}", json=body, timeout=60)


def workers(server):
    """{model: process} of the workers that run, by their command lines."""
    found = {}
    children = pathlib.Path(f"/proc/{server.process.pid}/task").glob("*/children")
    for child in (int(pid) for path in children for pid in path.read_text().split()):
        with contextlib.suppress(OSError):
            words = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0")
            if words[1:2] == ["worker"]:
                found[words[2].partition("/")[0]] = child
    return found


def exists(process):
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, 0)
        return True
    return False


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Of one rank."""
    folder = tmp_path_factory.mktemp("alone")
    with serving(folder, write_models(folder)) as server:
        assert not workers(server)
        return output_of(server, MODELS[0])


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("both")
    with orchestrating(folder, write_models(folder), "--model-control-mode=explicit", "--load-model=*") as server:
        yield server


def test_models_of_two_ranks_answer_side_by_side(server, expected):
    running = workers(server)
    assert sorted(running) == sorted(MODELS)
    for _ in range(2):
        for model in MODELS:
            assert output_of(server, model) == expected
    assert workers(server) == running


def test_unload_ends_the_workers_and_load_starts_others(server, expected):
    before = workers(server)
    assert control(server, "unload", MODELS[1]).ok
    wait_until(lambda: not exists(before[MODELS[1]]))
    assert workers(server) == {MODELS[0]: before[MODELS[0]]}
    assert output_of(server, MODELS[0]) == expected
    assert control(server, "load", MODELS[1]).ok
    assert output_of(server, MODELS[1]) == expected
    after = workers(server)
    assert sorted(after) == sorted(MODELS) and after[MODELS[1]] != before[MODELS[1]]


def test_a_worker_that_is_killed_ends_its_model_alone(server, expected):
    stream = requests.post(
        f"http://{server.http}/v2/models/{MODELS[1]}/generate_stream", stream=True, timeout=60,
        json={"input_ids": [5, 6, 7], "input_lengths": 3, "request_output_len": 900, "streaming": True},
    )  # fmt: skip
    with stream:
        lines = stream.iter_lines()
        next(lines)
        os.kill(workers(server)[MODELS[1]], signal.SIGKILL)
        rest = "".join(line.decode() for line in lines)
    lost = f"model {MODELS[1]}/1: rank 1 is gone"
    assert lost in rest
    wait_until(lambda: not is_ready(server, MODELS[1]))
    refused = ask(server, MODELS[1])
    assert refused.status_code == 503 and lost in refused.json()["error"], refused.text
    assert is_ready(server, MODELS[0]) and output_of(server, MODELS[0]) == expected
    assert requests.get(f"http://{server.http}/v2/health/live", timeout=30).ok
    log = server.log.read_text()
    assert re.search(rf"a worker has ended.*{MODELS[1]}/1.*rank 1 of 2.*signal 9", log), log[-3000:]
    assert control(server, "unload", MODELS[1]).ok and control(server, "load", MODELS[1]).ok
    assert output_of(server, MODELS[1]) == expected


def test_a_worker_that_dies_while_nothing_is_asked_is_missed_too(server, expected):
    os.kill(workers(server)[MODELS[1]], signal.SIGKILL)
    wait_until(lambda: not is_ready(server, MODELS[1]))
    assert is_ready(server, MODELS[0])
    assert control(server, "unload", MODELS[1]).ok and control(server, "load", MODELS[1]).ok
    assert output_of(server, MODELS[1]) == expected


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_server(tmp_path, monkeypatch, end):
    monkeypatch.setenv("TRTLLM_ORCHESTRATOR", "1")
    server = start_server(tmp_path, None, "--model-repository", write_models(tmp_path), *RANKS)
    running = workers(server)
    assert sorted(running) == sorted(MODELS)
    server.process.send_signal(end)
    assert server.process.wait(START_TIMEOUT_S) == (0 if end == signal.SIGTERM else -end)
    wait_until(lambda: not any(map(exists, running.values())))


def test_models_of_one_rank_have_no_workers(tmp_path, monkeypatch, expected):
    monkeypatch.setenv("TRTLLM_ORCHESTRATOR", "1")
    with serving(tmp_path, write_models(tmp_path)) as server:
        assert output_of(server, MODELS[1]) == expected
        assert not workers(server)


def test_an_engine_has_its_own_ranks(tmp_path, monkeypatch, expected):
    for words in (
        ("convert", "--model_dir", DEMO, "--output_dir", tmp_path / "checkpoint", "--dtype", "float32", "--pp_size", 2),
        ("build", "--checkpoint_dir", tmp_path / "checkpoint", "--output_dir", tmp_path / "engine"),
    ):
        subprocess.run([INFLIGHT, *map(str, words)], check=True, capture_output=True, timeout=60)
    monkeypatch.setenv("TRTLLM_ORCHESTRATOR", "1")
    with serving(tmp_path, write_models(tmp_path, other=tmp_path / "engine")) as server:
        assert list(workers(server)) == [MODELS[1]]
        for model in MODELS:
            assert output_of(server, model) == expected


# --- the worker's path ---


@pytest.mark.parametrize(
    ("path", "what"), [("/nosuch/worker", "which is no file"), ("/bin/true", "which is not the server's own program")]
)
def test_another_worker_is_refused(tmp_path, path, what):
    repository = write_models(tmp_path, worker=path)
    error = start_error(
        [INFLIGHT, "serve", "--model-repository", repository, "--device=cpu", *RANKS], TRTLLM_ORCHESTRATOR="1"
    )
    assert f"executor_worker_path: got '{path}', {what}" in error


def test_a_link_to_the_server_is_a_worker(tmp_path, expected):
    link = tmp_path / "worker"
    link.symlink_to(INFLIGHT)
    with orchestrating(tmp_path, write_models(tmp_path, worker=link)) as server:
        assert sorted(workers(server)) == sorted(MODELS)
        assert output_of(server, MODELS[1]) == expected
        assert re.search(rf"executor_worker_path +{link} +file +honoured", server.log.read_text())


def test_a_sandbox_starts_no_workers(tmp_path):
    error = start_error(
        [INFLIGHT, "serve", "--model-repository", write_models(tmp_path), "--device=cpu", "--sandbox=best-effort",
         "--sandbox-read", DEMO, *RANKS],
        TRTLLM_ORCHESTRATOR="1",
        ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0",  # which needs another process
    )  # fmt: skip
    assert "--sandbox: no process is started in it" in error and "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES=0" in error


def test_a_worker_is_nothing_without_a_server():
    done = subprocess.run([INFLIGHT, "worker"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1 and "inflight worker is for servers in orchestrator mode" in done.stderr


# --- processes of a launcher ---


def launched(folder, count, *options, **environment):
    """Processes as torchrun starts them; the first is the server."""
    port, processes = free_port(), []
    for rank in range(count):
        group = {"RANK": rank, "WORLD_SIZE": count, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": count,
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TRTLLM_ORCHESTRATOR": 1, **environment}  # fmt: skip
        command = [INFLIGHT, "serve", "--device=cpu", "--dtype=float32", "--max-kv-tokens=32768", "--http-port=0",
                   "--grpc-port=0", "--metrics-port=0", "--port-file", folder / "ports.json", *RANKS, *options]  # fmt: skip
        with open(folder / f"log{rank}", "wb") as log:
            processes.append(subprocess.Popen(
                [str(word) for word in command], stdout=log, stderr=subprocess.STDOUT,
                env=os.environ | {name: str(value) for name, value in group.items()},
            ))  # fmt: skip
    return processes


class Address:
    def __init__(self, ports):
        self.http = f"127.0.0.1:{ports_in(ports)['http']}"


def test_processes_of_a_launcher_are_given_out(tmp_path, expected):
    repository = write_models(tmp_path, participant_ids="1,2")
    path = repository / MODELS[1] / "config.pbtxt"
    path.write_text(path.read_text().replace('"1,2"', '"3,4"'))
    options = ["--model-repository", repository, "--model-control-mode=explicit", *(f"--load-model={m}" for m in MODELS)]
    processes = launched(tmp_path, 5, *options, TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES=0)
    try:
        ports = tmp_path / "ports.json"
        wait_until(lambda: processes[0].poll() is not None or ports_in(ports))
        assert processes[0].poll() is None, (tmp_path / "log0").read_text()[-3000:]
        server = Address(ports)
        for model in MODELS:
            assert output_of(server, model) == expected
        for _ in range(2):
            assert control(server, "unload", MODELS[0]).ok
            assert control(server, "load", MODELS[0]).ok
            assert output_of(server, MODELS[0]) == expected
        assert [(tmp_path / f"log{i}").read_text().count("this rank computes") for i in range(5)] == [0, 0, 3, 0, 1]
        processes[0].send_signal(signal.SIGTERM)
        assert [process.wait(START_TIMEOUT_S) for process in processes] == [0] * 5
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("spawns", "error"),
    [
        (0, "participant_ids: got '', must be one for each of 2 ranks, of the 2 processes that the launcher started"),
        (1, "TRTLLM_ORCHESTRATOR: got 1, so that one server starts the ranks of its models, and torchrun started 2 processes"),
    ],
)
def test_processes_that_nobody_names_are_an_error(tmp_path, spawns, error):
    processes = launched(
        tmp_path, 2, "--model-repository", write_models(tmp_path), TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES=spawns
    )
    try:
        assert processes[0].wait(START_TIMEOUT_S) == 1
        processes[1].wait(START_TIMEOUT_S)
        assert error in (tmp_path / "log0").read_text()
    finally:
        for process in processes:
            process.kill()


def test_participants_are_of_a_launcher(tmp_path):
    error = start_error(
        [INFLIGHT, "serve", "--model-repository", write_models(tmp_path, participant_ids="1,2"), "--device=cpu", *RANKS]
    )
    assert "participant_ids: got 1,2, and no processes of a launcher are given out" in error


# --- the script ---


def test_the_launchers_line_starts_such_a_server(tmp_path, expected):
    program = tmp_path / "tritonserver"
    program.symlink_to(INFLIGHT)
    repository = write_models(tmp_path)
    # What the script has no flag for.
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(
        f'#!/bin/sh\nexec {program} --device=cpu --dtype=float32 --max-kv-tokens=32768 --port-file={tmp_path}/ports.json'
        f' --tensor-parallel-size=2 --http-address=127.0.0.1 "$@" > {tmp_path}/log 2>&1\n'
    )
    wrapper.chmod(0o755)
    ports = [free_port() for _ in range(3)]
    subprocess.run(
        ["python3", ROOT / "compat/layout/scripts/launch_triton_server.py", "--multi-model", "--no-mpi",
         f"--model_repo={repository}", f"--tritonserver={wrapper}", f"--http_port={ports[0]}",
         f"--grpc_port={ports[1]}", f"--metrics_port={ports[2]}"],
        check=True, timeout=60,
    )  # fmt: skip
    file = tmp_path / "ports.json"
    try:
        wait_until(lambda: ports_in(file))
        server = Address(file)
        for model in MODELS:
            assert output_of(server, model) == expected
        assert (tmp_path / "log").read_text().count("this rank computes") == len(MODELS)
    finally:
        for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if str(repository) in entry.read_bytes().decode(errors="replace"):
                    os.kill(int(entry.parent.name), signal.SIGTERM)
