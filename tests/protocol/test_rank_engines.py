# SPDX-License-Identifier: Apache-2.0
"""Engines of several ranks: served by threads and by processes as the model itself is; what does not fit together."""

import os
import re
import shutil
import signal
import subprocess

import pytest
from free_ports import free_port
from live_server import DEMO, START_TIMEOUT_S, ports_in, start_error, start_server
from llm_client import wait_until
from rank_group import INFLIGHT, PROMPTS, answers, generate, ranks
from release_repositories import write_repository

SIZES = [(2, 1), (1, 2), (2, 2)]


def inflight(*words):
    done = subprocess.run([str(word) for word in (INFLIGHT, *words)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    """The demo model for each number of ranks, as the commands of the guides make it."""
    made = {}
    for tp, pp in SIZES:
        work = tmp_path_factory.mktemp(f"tp{tp}pp{pp}")
        sizes = ("--tp_size", tp, "--pp_size", pp)
        inflight("convert", "--model_dir", DEMO, "--output_dir", work / "ckpt", "--dtype", "float32", *sizes)
        inflight("build", "--checkpoint_dir", work / "ckpt", "--output_dir", work / "engine", "--max_beam_width", 2)
        made[tp, pp] = work / "engine"
    return made


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    server = start_server(tmp_path_factory.mktemp("one"))
    yield answers(server.http)
    assert server.stop() == 0


@pytest.mark.parametrize("sizes", SIZES)
def test_threads_of_one_process_are_the_ranks(tmp_path, engines, expected, sizes):
    server = start_server(tmp_path, engines[sizes])
    assert answers(server.http) == expected
    assert server.stop() == 0
    assert "the model runs on several ranks" in server.log.read_text()


@pytest.mark.parametrize("says_sizes", [False, True])
def test_each_process_reads_its_own_file(tmp_path, engines, expected, says_sizes):
    """On hosts that have no more than it, and the tokenizer where rank 0 is."""
    hosts = [tmp_path / f"host{rank}" for rank in range(2)]
    for rank, host in enumerate(hosts):
        (host / "model").mkdir(parents=True)
        for file in engines[2, 1].iterdir():
            if file.name in ("config.json", f"rank{rank}.engine") or (rank == 0 and file.suffix != ".engine"):
                shutil.copy(file, host / "model")
    with ranks(tmp_path, (2, 1), model="model", folders=hosts, says_sizes=says_sizes) as group:
        assert answers(group.url()) == expected
        assert "this rank computes" in group.log(1)
        group.processes[0].send_signal(signal.SIGTERM)
        assert group.exit_codes(START_TIMEOUT_S) == [0, 0], group.log()


def start_by_mpirun(tmp_path, ports, count, *arguments):
    command = [
        "mpirun", "--allow-run-as-root", "--oversubscribe", "-n", count, INFLIGHT, "serve", "--device=cpu",
        "--max-kv-tokens=32768", "--http-port=0", "--grpc-port=0", "--metrics-port=0", "--port-file", ports, *arguments,
    ]  # fmt: skip
    with open(tmp_path / "log", "wb") as log:
        return subprocess.Popen(
            [str(word) for word in command], stdout=log, stderr=subprocess.STDOUT,
            env=os.environ | {"MASTER_PORT": str(free_port())},
        )  # fmt: skip


def test_mpirun_starts_the_ranks_of_a_repository(tmp_path, engines, expected):
    repository, ports = tmp_path / "models", tmp_path / "ports.json"
    write_repository(repository, 11, engine_dir=engines[1, 2], tokenizer_dir=DEMO, decoupled_mode="True")
    launcher = start_by_mpirun(tmp_path, ports, 2, "--model-repository", repository)
    try:
        wait_until(lambda: launcher.poll() is not None or ports_in(ports))
        assert launcher.poll() is None, (tmp_path / "log").read_text()[-3000:]
        url = f"127.0.0.1:{ports_in(ports)['http']}"
        answer = generate(url, PROMPTS[0], bad_words="", stop_words="").json()["text_output"]
        assert answer.endswith(expected[0])
        assert "this rank computes" in (tmp_path / "log").read_text()
    finally:
        launcher.terminate()
        launcher.wait(START_TIMEOUT_S)


def test_a_launchers_number_that_is_not_the_engines_ends_all(tmp_path, engines):
    launcher = start_by_mpirun(tmp_path, tmp_path / "ports.json", 3, engines[2, 2])
    assert launcher.wait(START_TIMEOUT_S) != 0
    log = (tmp_path / "log").read_text()
    assert "is an engine for 4 ranks (tensor parallel 2, pipeline parallel 2), Open MPI started 3 processes" in log
    with ranks(tmp_path, (2, 1), count=4, model=engines[2, 1], says_sizes=False, start=False) as group:
        group.assert_all_failed()
        for rank in range(4):
            assert "is an engine for 2 ranks" in group.log(rank)


def test_other_sizes_than_the_engines_are_refused_with_both_numbers(tmp_path, engines):
    engine = engines[2, 1]
    ports = ("--http-port=0", "--grpc-port=0", "--metrics-port=0", "--device=cpu")
    error = start_error([INFLIGHT, "serve", engine, *ports, "--tensor-parallel-size=4"])
    assert f"tensor_parallel_size: got 4, {engine} is an engine for 2; leave it out" in error
    error = start_error([INFLIGHT, "serve", engine, *ports, "--tensor-parallel-size=1"])
    assert f"tensor_parallel_size: got 1, {engine} is an engine for 2" in error
    with ranks(tmp_path, (2, 2), model=engine, start=False) as group:
        group.assert_all_failed()
        assert f"pipeline_parallel_size: got 2, {engine} is an engine for 1" in group.log(0)


def of_version_99(model):
    file = model / "rank1.engine"
    data = file.read_bytes()
    file.write_bytes(data[:16] + (99).to_bytes(4, "little") + data[20:])


def of_another_configuration(model):
    with open(model / "config.json", "a") as config:
        config.write("\n")


WRONG_FILES = [
    (lambda model: (model / "rank1.engine").unlink(), "rank1.engine is missing, config.json's mapping has 2 ranks"),
    (lambda model: shutil.copy(model / "rank0.engine", model / "rank1.engine"), "is not the file that config.json was written"),
    (of_version_99, "rank1.engine: engine format version 99"),
]


@pytest.mark.parametrize(("damage", "error"), [*WRONG_FILES, (of_another_configuration, "rank 1 has other files in")])
def test_what_is_wrong_with_a_ranks_files_is_said_by_rank_0(tmp_path, engines, damage, error):
    hosts = [tmp_path / f"host{rank}" for rank in range(2)]
    for host in hosts:
        shutil.copytree(engines[2, 1], host / "model")
    damage(hosts[1] / "model")
    with ranks(tmp_path, (2, 1), model="model", folders=hosts, says_sizes=False, start=False) as group:
        group.assert_all_failed()
        assert error in group.log(0) and "rank 1" in group.log(0)


@pytest.mark.parametrize(("damage", "error"), WRONG_FILES)
def test_wrong_files_end_the_start_of_threads_too(tmp_path, engines, damage, error):
    shutil.copytree(engines[2, 1], tmp_path / "model")
    damage(tmp_path / "model")
    done = subprocess.run(
        [INFLIGHT, "serve", tmp_path / "model", "--device=cpu", "--http-port=0", "--grpc-port=0", "--metrics-port=0"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and error in done.stderr


def test_inspect_says_the_ranks(engines):
    text = inflight("inspect", engines[2, 2], "--device", "cpu")
    assert "ranks         4, each with a file: tensor parallel 2, pipeline parallel 2\n" in text
    assert "heads 4 (kv 2)" in text
    in_all = float(re.search(r"^ranks      4, in all (\S+) GiB$", text, re.MULTILINE)[1])
    of_ranks = re.findall(r"^  rank (\d)   (\S+) MiB: weights (\S+),", text, re.MULTILINE)
    assert [rank for rank, _, _ in of_ranks] == ["0", "1", "2", "3"]
    assert sum(float(total) for _, total, _ in of_ranks) / 1024 == pytest.approx(in_all, abs=0.01)
    for rank, _, weights in of_ranks:
        size = (engines[2, 2] / f"rank{rank}.engine").stat().st_size
        assert float(weights) == pytest.approx(size / 2**20, abs=0.1)


def test_a_second_model_of_as_many_ranks_is_refused(tmp_path, engines):
    repository = tmp_path / "models"
    for suffix, sizes in (("", (2, 1)), ("_other", (1, 2))):
        write_repository(
            repository, 11, suffix=suffix, engine_dir=engines[sizes], tokenizer_dir=DEMO, decoupled_mode="True"
        )  # fmt: skip
    options = ("--model-repository", repository)
    with ranks(tmp_path, (2, 1), *options, model=None, says_sizes=False, start=False) as group:
        group.assert_all_failed()
        assert "and one model at a time: unload that one first" in group.log(0) and "--merge-ranks" in group.log(0)


def test_models_of_one_rank_are_rank_0s(tmp_path, engines, expected):
    """Beside an engine for two ranks: each computes what it is for."""
    repository = tmp_path / "models"
    write_repository(repository, 11, engine_dir=engines[2, 1], tokenizer_dir=DEMO, decoupled_mode="True")
    write_repository(repository, 11, suffix="_whole", engine_dir=DEMO, tokenizer_dir=DEMO, decoupled_mode="True")
    with ranks(tmp_path, (2, 1), "--model-repository", repository, model=None, says_sizes=False) as group:
        body = {"bad_words": "", "stop_words": ""}
        found = {
            model: generate(group.url(), PROMPTS[0], model=model, **body).json()["text_output"]
            for model in ("ensemble", "ensemble_whole")
        }
        assert set(found.values()) == {found["ensemble"]} and found["ensemble"].endswith(expected[0])


def test_a_rank_whose_host_lacks_the_model_ends_and_says_so(tmp_path, engines):
    hosts = [tmp_path / f"host{rank}" for rank in range(2)]
    shutil.copytree(engines[2, 1], hosts[0] / "model")
    hosts[1].mkdir()
    with ranks(tmp_path, (2, 1), model="model", folders=hosts, says_sizes=False, start=False) as group:
        assert group.processes[1].wait(START_TIMEOUT_S) == 1
        assert "model is not there for rank 1: copy the model to its host" in group.log(1)
