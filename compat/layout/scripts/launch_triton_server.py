#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts tritonserver on a model repository and ends at once; the server runs on until it gets a signal (pkill tritonserver).

With mpirun in PATH --world_size starts so many processes by it, as the original does: of an engine for so many ranks each
computes its part; of an engine for one rank those above rank 0 wait. Without mpirun, and by default, one process is started,
whose threads are the engine's ranks. With --multi-model that one starts processes for the ranks of each engine, or with
--disable-spawn-processes takes those of mpirun, by their participant_ids.
"""

import argparse
import contextlib
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys

LEADER_PORT = "MASTER_PORT"  # of the environment: where ranks meet
ORCHESTRATOR = ("TRTLLM_ORCHESTRATOR", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES")
HERE = pathlib.Path(__file__).resolve().parent
INSTALLED = "/opt/tritonserver/bin/tritonserver"
PORTS = {"http-port": 8000, "grpc-port": 8001, "metrics-port": 8002}


def parse_arguments():
    parser = argparse.ArgumentParser(description="Starts tritonserver on a model repository.")
    parser.add_argument("--world_size", type=int, default=1, help="ranks of the engine")
    parser.add_argument("--tritonserver", help=f"the server's program (default: {INSTALLED}, else bin/ here, else PATH)")
    parser.add_argument("--grpc_port", type=int, default=PORTS["grpc-port"], help="port of gRPC")
    parser.add_argument("--http_port", type=int, default=PORTS["http-port"], help="port of HTTP")
    parser.add_argument("--metrics_port", type=int, default=PORTS["metrics-port"], help="port of the metrics page")
    parser.add_argument("--force", "-f", action="store_true", help="start although a server has one of the ports")
    parser.add_argument("--log", action="store_true", help="rank 0 logs all details to --log-file")
    parser.add_argument("--log-file", default="triton_log.txt", help="file of --log")
    parser.add_argument("--model_repo", default=str(HERE.parent / "all_models/gpt"), help="the model repository")
    parser.add_argument("--tensorrt_llm_model_name", default="tensorrt_llm", help="models of ranks above 0, a comma list")
    parser.add_argument("--multi-model", action="store_true", help="several LLMs in one server process; world size 1")
    parser.add_argument("--disable-spawn-processes", action="store_true", help="with --multi-model: any world size")
    parser.add_argument("--oversubscribe", action="store_true", help="no effect: ranks may always outnumber slots")
    parser.add_argument("--no-mpi", action="store_true", help="without mpirun; world size 1")
    parser.add_argument("--multimodal_gpu0_cuda_mem_pool_bytes", type=int, default=0, help="memory pool of GPU 0, in bytes")
    return parser.parse_args()


def find_server(named):
    """The server's program; exits where there is none."""
    found = shutil.which(named) if named else None
    if named is None:
        beside = HERE.parent / "bin/tritonserver"
        found = next((p for p in (INSTALLED, str(beside)) if os.path.exists(p)), None) or shutil.which("tritonserver")
    if found is None:
        sys.exit(f"launch_triton_server.py: --tritonserver: got {named or INSTALLED!r}, which is no program; give its path")
    return found


def ports_of(command):
    """{port} that a tritonserver with this command line listens on."""
    ports = dict(PORTS)
    for word, following in zip(command, [*command[1:], ""], strict=True):
        name, equals, value = word.lstrip("-").partition("=")
        if name in ports:
            text = value if equals else following
            ports[name] = int(text) if text.isdigit() else ports[name]
    return set(ports.values())


def servers_on(ports):
    """Ids of the running tritonservers that have one of these ports."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has ended
            continue
        if os.path.basename(words[0]) == "tritonserver" and ports_of(words[1:]) & ports:
            found.append(int(entry.name))
    return found


def num_gpus():
    """Of this machine, as the driver lists them."""
    return len(list(pathlib.Path("/proc/driver/nvidia/gpus").glob("*")))


def rank_command(arguments, server, rank):
    command = [server, f"--model-repository={arguments.model_repo}"]
    if rank == 0:
        if arguments.log:
            command += ["--log-verbose=3", f"--log-file={arguments.log_file}"]
        if arguments.multimodal_gpu0_cuda_mem_pool_bytes:
            command.append(f"--cuda-memory-pool-byte-size=0:{arguments.multimodal_gpu0_cuda_mem_pool_bytes}")
    else:
        command.append("--model-control-mode=explicit")
        command += [f"--load-model={name}" for name in arguments.tensorrt_llm_model_name.split(",") if name]
    command += [
        f"--grpc-port={arguments.grpc_port}", f"--http-port={arguments.http_port}",
        f"--metrics-port={arguments.metrics_port}", "--disable-auto-complete-config",
        f"--backend-config=python,shm-region-prefix-name=prefix{rank}_",
    ]  # fmt: skip
    if arguments.multi_model:
        command += ["--pinned-memory-pool-byte-size=0", "--enable-peer-access=false"]
        command += [f"--cuda-memory-pool-byte-size={gpu}:0" for gpu in range(num_gpus())]
    return command


def whole_command(arguments, server):
    mpirun = None if arguments.no_mpi else shutil.which("mpirun")
    if mpirun is None:
        if arguments.world_size > 1:
            print(
                f"mpirun is not in PATH: one process is started for all {arguments.world_size} ranks, which are its threads",
                file=sys.stderr,
            )
        return rank_command(arguments, server, 0)
    command = [mpirun, "--allow-run-as-root", "--oversubscribe"]
    # What mpirun hands to other hosts.
    handed = [LEADER_PORT, *(ORCHESTRATOR if arguments.multi_model else [])] if arguments.world_size > 1 else []
    meet = [word for name in handed for word in ("-x", name)]
    for rank in range(arguments.world_size):
        command += ["-n", "1", *meet, *rank_command(arguments, server, rank), ":"]
    return command


def free_port():
    """A port for the ranks of one launch: those of another one on this host have their own.

    It is below those that the kernel gives to connections, one of which could have it before rank 0 listens.
    """
    end = max(2048, int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]))
    while True:
        with socket.socket() as found, contextlib.suppress(OSError):  # in use
            found.bind(("", random.randrange(end // 2, end)))
            return found.getsockname()[1]


def main():
    arguments = parse_arguments()
    if arguments.world_size < 1:
        sys.exit(f"launch_triton_server.py: --world_size: got {arguments.world_size}, must be at least 1")
    spawns = arguments.multi_model and not arguments.disable_spawn_processes
    if arguments.world_size != 1 and (spawns or arguments.no_mpi):
        flag = "--no-mpi" if arguments.no_mpi else "--multi-model"
        sys.exit(f"launch_triton_server.py: {flag}: needs --world_size 1, got {arguments.world_size}")
    if not pathlib.Path(arguments.model_repo).is_dir() and "://" not in arguments.model_repo:
        sys.exit(f"launch_triton_server.py: --model_repo: got {arguments.model_repo!r}, which is no directory")
    server = find_server(arguments.tritonserver)
    running = servers_on({arguments.grpc_port, arguments.http_port, arguments.metrics_port})
    if running:
        text = f"tritonserver already runs on one of these ports: process {', '.join(map(str, running))}"
        if not arguments.force:
            sys.exit(f"launch_triton_server.py: {text}; end it (pkill tritonserver), give other ports, or --force")
        print(text, file=sys.stderr)
    environment = dict(os.environ)
    if arguments.world_size > 1:
        environment.setdefault(LEADER_PORT, str(free_port()))
    if arguments.multi_model:
        environment["TRTLLM_ORCHESTRATOR"] = "1"
        environment["TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES"] = "0" if arguments.disable_spawn_processes else "1"
    subprocess.Popen(whole_command(arguments, server), env=environment)


if __name__ == "__main__":
    main()
