# SPDX-License-Identifier: Apache-2.0
"""Several servers and several models on one machine, and the test tools that the guides only name."""

import contextlib
import itertools
import json
import re
import shutil
import socket
import socketserver
import subprocess
import threading

import pytest
from folders import wait_for
from free_ports import free_ports
from tiny_models import make_gpt2

PROMPTS = "--dataset ci/L0_backend_trtllm/simple_data.json --max-input-len 500"
FILL = """
python3 tools/fill_template.py -i models/preprocessing/config.pbtxt tokenizer_dir:$ROOT/engine,triton_max_batch_size:8
python3 tools/fill_template.py -i models/postprocessing/config.pbtxt tokenizer_dir:$ROOT/engine,triton_max_batch_size:8
python3 tools/fill_template.py -i models/ensemble/config.pbtxt triton_max_batch_size:8
python3 tools/fill_template.py -i models/tensorrt_llm/config.pbtxt triton_max_batch_size:8,engine_dir:$ROOT/engine,\
batching_strategy:inflight_fused_batching,decoupled_mode:False,max_queue_delay_microseconds:0
"""


def prepare(folder, build_flags="", **llm):
    """A repository in `models` of a tiny GPT-2, without BLS; `llm` are further keys of the LLM."""
    make_gpt2(folder.root / "gpt2")
    folder.sh(f"trtllm-build --checkpoint_dir gpt2 --output_dir engine {build_flags}")
    folder.sh("cp -r all_models/inflight_batcher_llm models")
    shutil.rmtree(folder.root / "models/tensorrt_llm_bls")
    further = ",".join(f"{key}:{value}" for key, value in llm.items())
    folder.sh(FILL.rstrip() + (f",{further}\n" if further else "\n"))
    return folder


def launch(folder, http, grpc, metrics, *flags, check=True):
    """What the launcher says, and its status; the server goes on."""
    done = folder.sh(
        f"python3 scripts/launch_triton_server.py --model_repo=$ROOT/models --http_port {http} --grpc_port {grpc}"
        f" --metrics_port {metrics} {' '.join(flags)} >> server.log 2> launcher.log", check=check,
    )  # fmt: skip
    return done.returncode, (folder.root / "launcher.log").read_text()


class Proxy:
    """A port before several; connections go to them in turn."""

    def __init__(self, ports):
        turn, lock = itertools.cycle(ports), threading.Lock()
        self.num_connections = dict.fromkeys(ports, 0)

        def forward(source, target):
            try:
                while data := source.recv(65536):
                    target.sendall(data)
            except OSError:
                pass
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        class Handler(socketserver.BaseRequestHandler):
            def handle(handler):
                with lock:
                    port = next(turn)
                    self.num_connections[port] += 1
                with socket.create_connection(("127.0.0.1", port)) as server:
                    back = threading.Thread(target=forward, args=(server, handler.request))
                    back.start()
                    forward(handler.request, server)
                    back.join()

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


def test_two_servers_behind_a_proxy(folder):
    """Leader mode of the guide: one repository, two launchers with ports of their own."""
    prepare(folder)
    launch(folder, folder.http, folder.grpc, folder.metrics)
    folder.wait_until_ready()
    status, text = launch(folder, folder.http, *free_ports(2), check=False)
    assert status == 1
    [process] = re.findall(r"tritonserver already runs on one of these ports: process (\d+);", text)
    others = free_ports(3)
    launch(folder, *others)
    folder.wait_until_ready(others[2])
    proxy = Proxy([folder.http, others[0]])
    try:
        for _ in proxy.num_connections:  # a client keeps its connection
            output = folder.sh(
                f"python3 tools/inflight_batcher_llm/end_to_end_test.py {PROMPTS} -u localhost:{proxy.port} -c 4"
            ).stdout
            assert "[INFO] Functionality test succeed." in output
    finally:
        proxy.close()
    assert all(proxy.num_connections.values())
    assert int(process) in folder.stop_servers()


def test_several_models_in_one_server(folder):
    """Orchestrator mode: copies of the LLM's directory, and a client that spreads its requests."""
    prepare(folder)
    folder.sh('cp models/tensorrt_llm models/tensorrt_llm_2 -r; sed -i \'s/"tensorrt_llm"/"tensorrt_llm_2"/\' models/*_2/*.pbtxt')
    launch(folder, folder.http, folder.grpc, folder.metrics, "--multi-model")
    folder.wait_until_ready()
    output = folder.sh(
        "python3 tools/inflight_batcher_llm/benchmark_core_model.py -i grpc -u localhost:$GRPC --max-input-len 500"
        " --tensorrt-llm-model-name tensorrt_llm_2 --op-stats-csv stats.csv --dump-perfetto-trace"
        " dataset --dataset ci/L0_backend_trtllm/simple_data.json --tokenizer-dir engine"
    ).stdout
    rows = dict(re.findall(r"^\| +(.+?) +\| +([\d.]+) +\|$", output, re.MULTILINE))
    assert rows["Total requests"] == "13.00" and rows["Avg. InFlight requests"] == "0.00"
    assert set(rows) >= {"Requests/Sec", "OP tokens/sec", "Avg. latency (ms)", "P99 latency (ms)", "P90 latency (ms)",
                         "Avg. IP tokens per request", "Avg. OP tokens per request", "Total latency (ms)"}  # fmt: skip
    for line in (
        "Warm up for benchmarking.",
        "Start benchmarking on 13 prompts.",
        "Total Latency: ",
        "Total request latencies: ",
    ):
        assert f"[INFO] {line}" in output
    assert len((folder.root / "stats.csv").read_text().splitlines()) == 2
    assert len(json.loads((folder.root / "prfetto_dump.json").read_text())) == 13
    page = folder.sh("curl -s localhost:$METRICS/metrics").stdout
    served = dict(re.findall(r'nv_inference_request_success\{model="(tensorrt_llm\w*)",version="1"\} (\d+)', page))
    assert served == {"tensorrt_llm": "12", "tensorrt_llm_2": "11"}  # of 10 requests to warm up and 13


# The server's program on CPUs, whatever the machine has: the launcher has no flag for it.
ON_CPUS = """#!/bin/sh
exec "$ROOT/bin/tritonserver" --device=cpu "$@"
"""
FILL_OTHER = """
cp models/tensorrt_llm models/tensorrt_llm_2 -r
sed -i 's/"tensorrt_llm"/"tensorrt_llm_2"/' models/tensorrt_llm_2/config.pbtxt
python3 tools/fill_template.py -i models/tensorrt_llm/config.pbtxt 'gpu_device_ids:0\\,1'
python3 tools/fill_template.py -i models/tensorrt_llm_2/config.pbtxt 'gpu_device_ids:2\\,3'
"""


def num_workers(folder):
    """Processes of ranks that the servers of this folder have started."""
    done = folder.sh("for pid in $(pgrep -f '^[^ ]* worker tensorrt_llm' || true); do readlink /proc/$pid/cwd; done")
    return done.stdout.splitlines().count(str(folder.root))


def test_several_models_on_gpus_of_their_own_behind_a_proxy(folder):
    """Orchestrator mode of the guide, twice: each model names its GPUs, for which processes on CPUs stand in here."""
    prepare(folder, "--tp_size 2", max_tokens_in_paged_kv_cache=2560)
    folder.sh(FILL_OTHER)
    program = folder.root / "on_cpus"
    program.write_text(ON_CPUS)
    program.chmod(0o755)
    others = free_ports(3)
    for ports in ((folder.http, folder.grpc, folder.metrics), others):
        launch(folder, *ports, "--multi-model", f"--tritonserver {program}")
        folder.wait_until_ready(ports[2])
    ignored = re.findall(r"gpu_device_ids +(\S+) +file +ignored: --device says where models run", folder.log())
    assert sorted(ignored) == ["0,1", "0,1", "2,3", "2,3"]
    assert num_workers(folder) == 4
    proxy = Proxy([folder.http, others[0]])
    try:
        for _ in proxy.num_connections:
            output = folder.sh(
                f"python3 tools/inflight_batcher_llm/end_to_end_test.py {PROMPTS} -u localhost:{proxy.port} -c 4"
            ).stdout
            assert "[INFO] Functionality test succeed." in output
    finally:
        proxy.close()
    assert all(proxy.num_connections.values())
    page = folder.sh("curl -s localhost:$METRICS/metrics").stdout
    assert 'nv_trt_llm_request_metrics{model="tensorrt_llm_2",request_type="max",version="1"}' in page
    folder.stop_servers()
    assert num_workers(folder) == 0


def test_a_gpu_that_is_not_there_is_named(folder):
    """Where the command line does not say that models run on CPUs."""
    prepare(folder, gpu_device_ids=4000)
    launch(folder, folder.http, folder.grpc, folder.metrics, "--multi-model")
    wait_for(folder.root / "server.log", "gpu_device_ids: got 4000")


@pytest.fixture
def crowded(folder_of):
    """A release with max_queue_size, whose engine takes one request at a time."""
    folder = prepare(folder_of("0.13"), max_queue_size=2, triton_backend="tensorrtllm", max_num_sequences=1)
    folder.sh("trtllm-build --checkpoint_dir gpt2 --output_dir engine --max_batch_size 1")
    launch(folder, folder.http, folder.grpc, folder.metrics)
    folder.wait_until_ready()
    return folder


def test_the_queue_refuses_what_is_too_much(crowded):
    tool = "python3 tools/inflight_batcher_llm/test_max_queue_size.py --request-output-len 900 --end-id 1 --pad-id 1"
    for flags in ("-p http -u localhost:$HTTP", "-p grpc -u localhost:$GRPC"):
        done = crowded.sh(f"{tool} {flags} --num-requests 8")
        refused = int(re.match(r"(\d+) of 8 requests were refused by the queue", done.stdout)[1])
        assert 1 <= refused <= 6
    done = crowded.sh(f"{tool} -p http -u localhost:$HTTP --num-requests 1", check=False)
    assert done.returncode == 1 and "the queue refused none" in done.stderr


def test_speculation_by_the_client(folder):
    """The loop gives what the target gives alone; an engine that was built for no drafts refuses them."""
    prepare(folder)
    launch(folder, folder.http, folder.grpc, folder.metrics)
    folder.wait_until_ready()
    tool = (
        f"python3 tools/inflight_batcher_llm/speculative_decoding_test.py --url-target localhost:$GRPC"
        f" --url-draft localhost:$GRPC {PROMPTS} -o 6"
    )
    output = folder.sh(f"{tool} --num-draft-tokens 0").stdout
    assert output.splitlines() == [*(f"{number}: Outputs match" for number in range(13)), "failed/total: 0/13"]
    done = folder.sh(tool, check=False)
    assert done.returncode == 1 and "exceeds maximum draft tokens length (0)" in done.stderr
    client = "python3 inflight_batcher_llm/client/e2e_grpc_speculative_decoding_client.py --url-target localhost:$GRPC -o 6"
    texts = [folder.sh(line).stdout for line in (
        f"{client} -p 'Once upon a time' --num-draft-tokens 0",
        "python3 inflight_batcher_llm/client/end_to_end_grpc_client.py -u localhost:$GRPC -p 'Once upon a time' -o 6",
    )]  # fmt: skip
    assert f"[b'{texts[0].rstrip(chr(10))}']\n" == texts[1]


def test_drafts_are_judged_by_an_engine_that_was_built_for_them(folder_of):
    folder = prepare(folder_of("0.11"), "--max_draft_len 5 --speculative_decoding_mode draft_tokens_external")
    launch(folder, folder.http, folder.grpc, folder.metrics)
    folder.wait_until_ready()
    tool = (
        f"python3 tools/inflight_batcher_llm/speculative_decoding_test.py --url-target localhost:$GRPC"
        f" --url-draft localhost:$GRPC {PROMPTS} -o 12 --num-draft-tokens 4"
    )
    assert folder.sh(tool).stdout.splitlines()[-1] == "failed/total: 0/13"
    client = (
        "python3 inflight_batcher_llm/client/e2e_grpc_speculative_decoding_client.py --url-target localhost:$GRPC -o 12"
        " -p 'Once upon a time' --num-draft-tokens 4"
    )
    plain = folder.sh(client).stdout
    assert folder.sh(f"{client} --return-draft-model-draft-logits").stdout == plain
    shown = folder.sh(f"{client} --return-target-model-accepted-token-logits").stdout.splitlines()
    assert shown[-1] == plain.splitlines()[-1]
    rows = [int(re.match(r"Logits of accepted tokens: \((\d+), \d+\)", line)[1]) for line in shown[:-1]]
    assert sum(rows) == 12 and max(rows) == 5, "the draft is the target: all are accepted"


# Starts the ranks of its command line as mpirun does, and ends with them.
MPIRUN = """#!/usr/bin/env python3
import os, subprocess, sys
words = [word for word in sys.argv[1:] if word not in ("--allow-run-as-root", "--oversubscribe")]
ranks = [part.split("\\0") for part in "\\0".join(words).strip("\\0:").split("\\0:\\0")]
started = []
for rank, command in enumerate(ranks):
    environment = {**os.environ, "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(len(ranks))}
    with open(f"rank{rank}.log", "w") as log:
        started.append(subprocess.Popen(command[4:], env=environment, stdout=log, stderr=log))
started[0].wait()
for process in started[1:]:
    process.terminate()
    process.wait()
"""
ASK = """curl -s localhost:$HTTP/v2/models/ensemble/generate -d '{"text_input": "What is", "max_tokens": 4}'"""


def test_ranks_above_0_wait(folder):
    """The launcher and a stand-in for mpirun: each rank is the same program with the same ports."""
    prepare(folder)
    spy = folder.root / "bin/mpirun"
    spy.write_text(MPIRUN)
    spy.chmod(0o755)
    launch(folder, folder.http, folder.grpc, folder.metrics, "--world_size 2")  # of "-n 1 -x MASTER_PORT PROGRAM ..."
    wait_for(folder.root / "rank0.log", "Started Metrics Service")
    wait_for(folder.root / "rank1.log", "Rank 1 of 2 waits")
    assert json.loads(folder.sh(ASK).stdout)["text_output"].startswith("What is")
    assert len(folder.stop_servers()) == 2


def test_two_launchers_of_ranks(folder):
    """Leader mode of the guide: an engine for two ranks, which two launchers start at the same time."""
    prepare(folder, "--tp_size 2")
    others = free_ports(3)
    launch(folder, folder.http, folder.grpc, folder.metrics, "--world_size 2")
    launch(folder, *others, "--world_size 2")
    folder.wait_until_ready()
    folder.wait_until_ready(others[2])
    assert folder.log().count("this rank computes") == 2
    answers = {folder.sh(ASK, HTTP=str(port)).stdout for port in (folder.http, others[0])}
    assert len(answers) == 1 and "What is" in answers.pop()
    # The first signals are rank 0's of each: the others end with it.
    assert len(folder.stop_servers()) == 4


@pytest.mark.parametrize("world_size", [1, 3])
def test_an_engine_of_ranks_in_other_worlds(folder, world_size):
    prepare(folder, "--tp_size 2")
    launch(folder, folder.http, folder.grpc, folder.metrics, f"--world_size {world_size}")
    if world_size == 1:  # threads
        folder.wait_until_ready()
        assert "the model runs on several ranks" in folder.log() and "this rank computes" not in folder.log()
        assert json.loads(folder.sh(ASK).stdout)["text_output"].startswith("What is")
        folder.stop_servers()
        return
    errors = folder.root / "launcher.log"
    wait_for(errors, "mpirun detected that one or more processes exited with non-zero status")
    text = "is an engine for 2 ranks (tensor parallel 2, pipeline parallel 1), Open MPI started 3 processes"
    assert text in errors.read_text()
    assert folder.stop_servers() == []


def start_tasks(folder, **environment):
    """Two tasks of a Slurm job; the log of task N is rankN.log."""
    flags = f"--http-port={folder.http} --grpc-port={folder.grpc} --metrics-port={folder.metrics}"
    task = f"bash scripts/tensorrt_llm_triton.sh {flags}"
    of_task = "SLURM_PROCID={0} SLURM_LOCALID={0} {1} > rank{0}.log 2>&1 &"
    return subprocess.Popen(
        ["bash", "-c", " ".join(of_task.format(rank, task) for rank in (1, 0)) + " wait"],
        cwd=folder.root, env={
            **folder.environment, "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_NODEID": "0",
            "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_STEP_NODELIST": "localhost",
            "MODEL_REPO": str(folder.root / "models"), **environment,
        },
    )  # fmt: skip


def test_tasks_of_a_slurm_job_compute_their_ranks(folder):
    prepare(folder, "--tp_size 2")
    job = start_tasks(folder, MASTER_PORT=str(free_ports(1)[0]))
    try:
        wait_for(folder.root / "rank0.log", "Started Metrics Service")
        assert "this rank computes" in (folder.root / "rank1.log").read_text()
        assert json.loads(folder.sh(ASK).stdout)["text_output"].startswith("What is")
    finally:
        folder.stop_servers()
        job.wait(60)


# As much of Slurm as the script asks for: sbatch takes its flags from the script, srun starts its tasks and waits.
SBATCH = """#!/usr/bin/env python3
import os, re, subprocess, sys
script = open(sys.argv[-1]).read()
flags = dict(re.findall(r"^#SBATCH (-\\w|--[\\w-]+)[ =](.*)$", script, re.MULTILINE))
os.makedirs(os.path.dirname(flags["-o"]), exist_ok=True)
environment = {**os.environ, "SLURM_JOB_ID": "7", "SLURM_NTASKS_PER_NODE": flags["--ntasks-per-node"]}
with open(flags["-o"], "w") as out, open(flags["-e"], "w") as errors:
    subprocess.Popen(["bash", sys.argv[-1]], env=environment, stdout=out, stderr=errors, stdin=subprocess.DEVNULL)
print("Submitted batch job 7")
"""
SRUN = """#!/usr/bin/env python3
import os, subprocess, sys
words = sys.argv[1:]
assert words[0] == "--mpi=pmix", words
output = words[words.index("--output") + 1]
command = words[words.index("--output") + 2 :]
count = os.environ["SLURM_NTASKS_PER_NODE"]
tasks = []
for rank in range(int(count)):
    environment = {**os.environ, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NTASKS": count,
                   "SLURM_STEP_ID": "0", "SLURM_NODEID": "0", "SLURM_STEP_TASKS_PER_NODE": count,
                   "SLURM_STEP_NODELIST": "localhost"}
    with open(output.replace("%t", str(rank)), "w") as log:
        tasks.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
sys.exit(max(task.wait() for task in tasks))
"""
WITH_PORTS = """#!/bin/sh
exec "$ROOT/bin/tritonserver" --http-port=$HTTP --grpc-port=$GRPC --metrics-port=$METRICS "$@"
"""


def test_a_job_that_is_submitted(folder):
    """sbatch tensorrt_llm_triton.sub, with as many tasks as the engine has ranks."""
    prepare(folder, "--tp_size 2")
    for name, text in (("bin/sbatch", SBATCH), ("bin/srun", SRUN), ("with_ports", WITH_PORTS)):
        (folder.root / name).write_text(text)
        (folder.root / name).chmod(0o755)
    done = folder.sh(
        """
        sed -i 's/--ntasks-per-node=8/--ntasks-per-node=2/' scripts/tensorrt_llm_triton.sub
        export SCRIPTS=$ROOT/scripts MODEL_REPO=$ROOT/models TRITONSERVER=$ROOT/with_ports
        sbatch scripts/tensorrt_llm_triton.sub
        """,
        MASTER_PORT=str(free_ports(1)[0]),
    )
    assert done.stdout == "Submitted batch job 7\n"
    logs = folder.root / "logs"
    wait_for(logs / "tensorrt_llm_0.out", "Started Metrics Service")
    assert "this rank computes" in (logs / "tensorrt_llm_1.out").read_text()
    assert json.loads(folder.sh(ASK).stdout)["text_output"].startswith("What is")
    assert len(folder.stop_servers()) == 2
    assert (logs / "tensorrt_llm.error").read_text() == ""


def test_a_job_without_its_variables_says_which(folder):
    """The first that the script needs, on its standard error."""
    for name, text in (("bin/sbatch", SBATCH), ("bin/srun", SRUN)):
        (folder.root / name).write_text(text)
        (folder.root / name).chmod(0o755)
    folder.sh("sbatch scripts/tensorrt_llm_triton.sub")
    wait_for(folder.root / "logs/tensorrt_llm.error", "SCRIPTS, the directory of tensorrt_llm_triton.sh, is not set")


def test_tasks_of_a_slurm_job(folder):
    """Each task executes one script; Slurm tells them apart."""
    prepare(folder)
    job = start_tasks(folder)
    try:
        wait_for(folder.root / "rank0.log", "Started Metrics Service")
        wait_for(folder.root / "rank1.log", "Rank 1 of 2 waits")
        assert json.loads(folder.sh(ASK).stdout)["text_output"].startswith("What is")
    finally:
        folder.stop_servers()
        job.wait(60)
