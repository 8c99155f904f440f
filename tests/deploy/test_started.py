# SPDX-License-Identifier: Apache-2.0
"""Servers as KServe, a LeaderWorkerSet and Slurm start them: their command lines and variables, calls, and their end."""

import os
import pathlib
import re
import signal
import stat
import subprocess

import requests
from free_ports import free_port
from live_server import DEMO, ROOT, START_TIMEOUT_S, ports_in, start_server
from llm_client import wait_until
from manifests import check_arguments, lws, of_kind, runtime_container, without
from rank_group import INFLIGHT, generate

SLURM = ROOT / "deploy/slurm/serve.sbatch"


def test_a_server_is_what_kserve_starts(tmp_path):
    """The command line of the runtime, as the platform fills it in; then its probes and calls of both protocols."""
    runtime = of_kind("kserve.yaml", "ServingRuntime")[0]
    container = runtime_container(runtime)
    words = [word.replace("{{.Name}}", "llama") for word in container["args"]]
    words = without(words, "--model", "--http-port", "--http-address", "--exit-delay-secs")
    server = start_server(tmp_path, DEMO, *words)
    try:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert requests.get(f"http://{server.http}{container[probe]['httpGet']['path']}", timeout=30).status_code == 200
        assert requests.get(f"http://{server.http}/v2", timeout=30).json()["name"]
        names = [model["id"] for model in requests.get(f"http://{server.http}/v1/models", timeout=30).json()["data"]]
        assert "llama" in names
        body = {"model": "llama", "prompt": "The fox", "max_tokens": 2}
        answer = requests.post(f"http://{server.http}/v1/completions", json=body, timeout=60)
        assert answer.json()["usage"]["completion_tokens"] == 2
        assert server.grpc is None
    finally:
        assert server.stop() == 0


def start(command, log, **environment):
    with open(log, "wb") as out:
        return subprocess.Popen(
            [str(word) for word in command], stdout=out, stderr=subprocess.STDOUT,
            env=os.environ | {name: str(value) for name, value in environment.items()},
        )  # fmt: skip


def end(processes, first=None):
    """All end well when the first gets SIGTERM."""
    (first or processes[0]).send_signal(signal.SIGTERM)
    try:
        return [process.wait(START_TIMEOUT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_pods_of_a_leader_worker_set_compute_one_model(tmp_path):
    """Two processes with the variables of kubernetes-sigs/lws/api/leaderworkerset/v1/leaderworkerset_types.go."""
    template = lws()
    words = without(template["leaderTemplate"]["spec"]["containers"][0]["args"],
                    "--model", "--http-address", "--grpc-address", "--exit-delay-secs")  # fmt: skip
    ports, port = tmp_path / "ports.json", free_port()
    command = [INFLIGHT, "serve", "--model", DEMO, *words, "--dtype=float32", "--max-kv-tokens=32768",
               "--http-port=0", "--grpc-port=0", "--metrics-port=0", "--port-file", ports]  # fmt: skip
    processes = [
        start(command, tmp_path / f"log{index}", LWS_GROUP_SIZE=template["size"], LWS_WORKER_INDEX=index,
              LWS_LEADER_ADDRESS="127.0.0.1", MASTER_PORT=port)
        for index in range(template["size"])
    ]  # fmt: skip
    try:
        wait_until(lambda: ports_in(ports), timeout_s=START_TIMEOUT_S)
        url = f"127.0.0.1:{ports_in(ports)['http']}"
        assert generate(url, "The fox").ok
    finally:
        # The kubelet signals all pods of a group that goes; workers wait for rank 0.
        for process in processes[1:]:
            process.send_signal(signal.SIGTERM)
        codes = end(processes)
    assert codes == [0, 0], (tmp_path / "log0").read_text()[-3000:]


SRUN = r"""#!/usr/bin/env bash
# Stands for srun: a task for each of --ntasks, with the variables of srun(1), "OUTPUT ENVIRONMENT VARIABLES".
for word in "$@"; do case $word in --ntasks=*) tasks=${word#*=} ;; esac; done
while [[ $1 == --* ]]; do shift; done
trap 'kill -TERM "${pids[@]}"' TERM
for ((rank = 0; rank < tasks; rank++)); do
  SLURM_STEP_ID=0 SLURM_PROCID=$rank SLURM_NTASKS=$tasks SLURM_STEP_NUM_TASKS=$tasks SLURM_NODEID=$rank SLURM_LOCALID=0 \
    SLURM_STEP_TASKS_PER_NODE="1(x$tasks)" "$@" & pids+=($!)
done
status=0
for pid in "${pids[@]}"; do while kill -0 "$pid" 2>/dev/null; do wait "$pid"; status=$?; done; done
exit $status
"""
SCONTROL = """#!/bin/sh
[ "$1 $2" = 'show hostnames' ] && echo 127.0.0.1 && echo other
"""


def slurm_programs(folder):
    """A folder with stand-ins of Slurm's programs, and the server's."""
    folder.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "inflight").symlink_to(INFLIGHT)
    return f"{folder}:{os.environ['PATH']}"


def test_a_job_of_slurm_is_a_model_on_its_nodes(tmp_path):
    ports = tmp_path / "ports.json"
    words = [SLURM, DEMO, "--dtype=float32", "--max-kv-tokens=32768", "--grpc-port=0", "--metrics-port=0", "--port-file", ports]
    job = start(words, tmp_path / "log", PATH=slurm_programs(tmp_path / "bin"), SLURM_JOB_NUM_NODES=2, SLURM_JOB_ID=1234,
                SLURM_JOB_NODELIST="127.0.0.1,other", MASTER_PORT=free_port(), PORT=0, ADDRESS="127.0.0.1")  # fmt: skip
    try:
        wait_until(lambda: ports_in(ports), timeout_s=START_TIMEOUT_S)
        assert generate(f"127.0.0.1:{ports_in(ports)['http']}", "The fox").ok
    finally:
        codes = end([job])
    log = (tmp_path / "log").read_text()
    assert codes == [0], log[-3000:]
    assert log.count("Started HTTPService") == 1, log[-3000:]  # the other task is a rank of the same server


def test_a_job_of_slurm_on_gpus_keeps_to_one_node(tmp_path):
    path = slurm_programs(tmp_path / "bin")
    base = {"PATH": path, "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "127.0.0.1", "SLURM_GPUS_ON_NODE": "4"}
    (tmp_path / "bin/srun").write_text('#!/bin/sh\necho "$@"\n')
    done = subprocess.run([SLURM, "MODEL", "--max-queue-size=9"], env=base | {"SLURM_JOB_NUM_NODES": "1"},
                          capture_output=True, text=True, timeout=30, check=True)  # fmt: skip
    words = done.stdout.splitlines()[-1].split()
    command = words[words.index("inflight") :]
    assert command[:4] == ["inflight", "serve", "--model", "MODEL"] and "--ntasks=1" in words
    assert {"--device=cuda", "--tensor-parallel-size=4", "--max-queue-size=9"} <= set(command)
    check_arguments(command[4:])
    done = subprocess.run([SLURM, "MODEL"], env=base | {"SLURM_JOB_NUM_NODES": "2"}, capture_output=True, text=True, timeout=30,
                          check=False)  # fmt: skip
    assert done.returncode == 1 and "--nodes 1" in done.stderr


def test_a_job_of_slurm_has_time_to_drain():
    text = SLURM.read_text()
    assert stat.S_IMODE(pathlib.Path(SLURM).stat().st_mode) & stat.S_IXUSR
    before = int(re.search(r"#SBATCH --signal=TERM@(\d+)", text)[1])
    assert int(re.search(r"EXIT_TIMEOUT:-(\d+)", text)[1]) < before
