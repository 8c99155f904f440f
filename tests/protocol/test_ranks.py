# SPDX-License-Identifier: Apache-2.0
"""A model whose ranks are processes: answers as of one process, and what becomes of a group that loses a rank.

Engines of several ranks: test_rank_engines.py.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest
import requests
import tritonclient.grpc as triton
from free_ports import free_port
from live_server import DEMO, START_TIMEOUT_S, ports_in, start_server
from llm_client import wait_until
from rank_group import INFLIGHT, PROMPTS, answers, generate, ranks
from release_repositories import write_repository

GONE_WITHIN_S = 5


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    server = start_server(tmp_path_factory.mktemp("one"))
    yield answers(server.http)
    assert server.stop() == 0


@pytest.mark.parametrize("sizes", [(2, 1), (1, 2), (2, 2)])
def test_processes_answer_as_one_does(tmp_path, expected, sizes):
    with ranks(tmp_path, sizes) as group:
        assert answers(group.url()) == expected
        client = triton.InferenceServerClient(group.url("grpc"))
        assert client.is_server_ready() and client.is_model_ready("ensemble")
        client.close()
        group.processes[0].send_signal(signal.SIGTERM)
        assert group.exit_codes(START_TIMEOUT_S) == [0] * len(group.processes), group.log()


def test_a_model_may_be_unloaded_and_loaded_again(tmp_path, expected):
    write_repository(tmp_path / "models", 11, engine_dir=DEMO, tokenizer_dir=DEMO, decoupled_mode="True")
    flags = ["--model-repository", tmp_path / "models", "--model-control-mode=explicit", "--load-model=ensemble"]
    with ranks(tmp_path, (2, 1), *flags, model=None) as group:
        for _ in range(2):
            assert generate(group.url(), PROMPTS[0], bad_words="", stop_words="").json()["text_output"].endswith(expected[0])
            for act, body in (("unload", {"parameters": {"unload_dependents": True}}), ("load", {})):
                control = f"http://{group.url()}/v2/repository/models/ensemble/{act}"
                answer = requests.post(control, json=body, timeout=60)
                assert answer.ok, answer.text
        assert group.log(1).count("this rank computes") == 3


def test_layers_of_different_windows_have_pools_on_all_ranks(tmp_path):
    """Of a window of 16 tokens beside layers that see all; a stage of two may have more layers of the one than of the other."""
    fill = {"engine_dir": DEMO, "tokenizer_dir": DEMO, "decoupled_mode": "True", "max_attention_window_size": "0,16"}
    repository = write_repository(tmp_path / "models", 19, **fill)
    flags = ["--model-repository", repository, "--max-batch-size", 8, "--max-num-tokens", 48]
    alone = tmp_path / "alone"
    alone.mkdir()
    server = start_server(alone, None, *flags)
    one = answers(server.http)
    assert server.stop() == 0
    assert "kv_groups=2" in (alone / "log").read_text()
    for sizes in ((2, 1), (1, 2)):
        folder = tmp_path / f"{sizes[0]}x{sizes[1]}"
        folder.mkdir()
        with ranks(folder, sizes, *flags, model=None) as group:
            assert answers(group.url()) == one
            assert "kv_groups=2" in group.logs[0].read_text()


def test_ranks_compute_in_a_sandbox(tmp_path, expected):
    with ranks(tmp_path, (2, 1), "--sandbox=best-effort") as group:
        assert answers(group.url()) == expected
        assert all("the sandbox is in force" in log.read_text() for log in group.logs)


def test_a_signal_ends_a_rank_that_waits_for_others(tmp_path):
    with ranks(tmp_path, (2, 1), start=False) as group:
        group.processes[1].kill()
        group.processes[1].wait()
        wait_until(lambda: "meets the others" in group.log(0))
        group.processes[0].send_signal(signal.SIGTERM)
        assert group.processes[0].wait(GONE_WITHIN_S) != 0


@pytest.mark.parametrize("sizes", [(2, 1), (2, 2)])
def test_mpirun_starts_the_ranks(tmp_path, expected, sizes):
    ports = tmp_path / "ports.json"
    command = [
        "mpirun", "--allow-run-as-root", "--oversubscribe", "-n", sizes[0] * sizes[1],
        INFLIGHT, "serve", DEMO, "--device=cpu", "--dtype=float32", "--max-kv-tokens=32768",
        "--http-port=0", "--grpc-port=0", "--metrics-port=0", "--port-file", ports,
        "--tensor-parallel-size", sizes[0], "--pipeline-parallel-size", sizes[1],
    ]  # fmt: skip
    with open(tmp_path / "log", "wb") as log:
        launcher = subprocess.Popen(
            [str(word) for word in command], stdout=log, stderr=subprocess.STDOUT,
            env=os.environ | {"MASTER_PORT": str(free_port())},
        )  # fmt: skip
    try:
        wait_until(lambda: launcher.poll() is not None or ports_in(ports))
        assert launcher.poll() is None, (tmp_path / "log").read_text()[-3000:]
        assert answers(f"127.0.0.1:{ports_in(ports)['http']}") == expected
        children = pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
        environments = {int(pid): pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") for pid in children}
        [leader] = [pid for pid, words in environments.items() if b"OMPI_COMM_WORLD_RANK=0" in words]
        os.kill(leader, signal.SIGTERM)
        assert launcher.wait(START_TIMEOUT_S) == 0, (tmp_path / "log").read_text()[-3000:]
    finally:
        launcher.kill()


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_a_rank_that_dies_ends_the_group(tmp_path, lost):
    with ranks(tmp_path, (2, 2)) as group:
        with requests.post(
            f"http://{group.url()}/v2/models/ensemble/generate_stream",
            json={"text_input": "Once upon a time", "max_tokens": 900, "stream": True, "end_id": -1}, stream=True, timeout=60,
        ) as stream:  # fmt: skip
            lines = stream.iter_lines()
            next(lines)
            begin = time.monotonic()
            group.processes[lost].kill()
            with contextlib.suppress(requests.RequestException):
                rest = "".join(line.decode() for line in lines)
                assert "error" in rest or lost == 0
        codes = group.exit_codes(GONE_WITHIN_S)
        assert time.monotonic() - begin < GONE_WITHIN_S
        assert codes.pop(lost) == -signal.SIGKILL and all(code not in (0, -signal.SIGKILL) for code in codes)
        for rank in set(range(4)) - {lost}:
            assert f"rank {lost}" in group.log(rank), group.log(rank)


def test_a_rank_that_dies_while_nothing_is_asked_ends_the_group_too(tmp_path):
    with ranks(tmp_path, (1, 2)) as group:
        group.processes[1].kill()
        assert group.exit_codes(GONE_WITHIN_S)[0] not in (0, -signal.SIGKILL)


def test_a_rank_that_hangs_ends_the_group(tmp_path):
    with ranks(tmp_path, (2, 1)) as group:
        group.processes[1].send_signal(signal.SIGSTOP)
        assert group.processes[0].wait(30) not in (0, -signal.SIGKILL)
        assert "rank 1" in group.log(0)


def test_too_few_and_too_many_processes_are_an_error_everywhere(tmp_path):
    with ranks(tmp_path, (2, 1), count=3, start=False) as group:
        group.assert_all_failed()
        for rank in range(3):
            assert "are 2 ranks, torchrun started 3 processes" in group.log(rank)


def test_ranks_with_other_files_are_refused(tmp_path):
    folders = [tmp_path / f"host{rank}" for rank in range(2)]
    for folder in folders:
        shutil.copytree(DEMO, folder / "model", ignore=shutil.ignore_patterns("*.py"))
    with open(folders[1] / "model" / "config.json", "a") as config:
        config.write("\n")
    with ranks(tmp_path, (2, 1), model="model", folders=folders, start=False) as group:
        group.processes[0].wait(START_TIMEOUT_S)
        assert "rank 1 has other files in" in group.log(0), group.log()
        assert "copy the model to its host again" in group.log(0)


def test_a_rank_whose_model_is_missing_says_so_at_the_leader(tmp_path):
    folders = [tmp_path / f"host{rank}" for rank in range(2)]
    shutil.copytree(DEMO, folders[0] / "model", ignore=shutil.ignore_patterns("*.py"))
    folders[1].mkdir()
    with ranks(tmp_path, (2, 1), model="model", folders=folders, start=False) as group:
        group.assert_all_failed()
        assert "rank 1: " in group.log(0)
