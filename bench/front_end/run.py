#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU time that the front end takes for an item, beside Triton's server in turns.

usage: bench/front_end/run.py BUILD_DIR [--triton DIR] [--repeats 3] [--seconds 4] [--only REGEX]

BUILD_DIR has bin/inflight and bin/front_end_load (preset `bench`). DIR is the unpacked wheel nvidia-pytriton 0.7.0 (`pip
download --no-deps nvidia-pytriton==0.7.0`, `python -m zipfile -e *.whl DIR`), which holds Triton's server 2.51.0; without it
only ours is timed. The floor (floor.cc) answers HTTP without looking at what it was asked: what the system takes for a
request. Models without weights (identity, mock_llm) answer in both. Streams of /v1/chat/completions are those of
front_end_chat_server, OpenAI's API as ours has it over such a model; their items are events. Prints CSV: medians over the
repeats, and the spread of the CPU time as (largest - smallest) / median; then how many connections each server holds, what
they take of its memory and CPU, and what is resident without a model.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import resource
import socket
import statistics
import subprocess
import tempfile
import time

from server_process import cpu_seconds, start

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent

IDENTITY = """
name: "identity" backend: "conformance" max_batch_size: 8
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
parameters { key: "kind" value: { string_value: "identity" } }
"""
MOCK_LLM = """
name: "mock_llm" backend: "conformance" max_batch_size: 0
input [ { name: "PROMPT" data_type: TYPE_STRING dims: [ 1, 1 ] }, { name: "STREAM" data_type: TYPE_BOOL dims: [ 1, 1 ] } ]
output [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1, -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
model_transaction_policy { decoupled: true }
parameters { key: "kind" value: { string_value: "mock_llm" } }
"""
HTTP_PORT, GRPC_PORT = 18400, 18401
HTTP = f"http://127.0.0.1:{HTTP_PORT}"
READY = f"{HTTP}/v2/health/ready"
FLOOR = "floor"
NUM_HELD = 10_000  # or as many as descriptors allow
HELD_S = 3

# load, model, concurrency, responses a request, seconds between them
CASES = [
    *(("http-infer", "identity", n, 0, 0) for n in (1, 16, 64, 256)),
    *(("grpc-infer", "identity", n, 0, 0) for n in (1, 16, 64, 256)),
    *((load, "mock_llm", n, 200, delay) for load in ("http-stream", "grpc-stream") for n in (64, 1024) for delay in (0, 0.02)),
]


def label_of(case):
    load, _, count, _, delay = case
    return f"{load} {count}{f' every {delay * 1000:g} ms' if delay else ''}"


def write_repository(path):
    for name, config in (("identity", IDENTITY), ("mock_llm", MOCK_LLM)):
        (path / name / "1").mkdir(parents=True)
        (path / name / "config.pbtxt").write_text(config)
    return path


def flags(repository):
    ports = ["--http-port", HTTP_PORT, "--grpc-port", GRPC_PORT, "--allow-metrics", "false"]
    return ["--model-repository", repository, "--http-address", "127.0.0.1", "--grpc-address", "127.0.0.1", *ports]


def ours(build, repository, _):
    return [build / "bin/inflight", "serve", *flags(repository)], {}


def tritons(wheel, repository, work):
    backends = work / "backends"
    (backends / "conformance").mkdir(parents=True, exist_ok=True)
    library = backends / "conformance/libtriton_conformance.so"
    if not library.exists():
        subprocess.run(["g++", "-std=c++20", "-O2", "-fPIC", "-shared", HERE / "triton_backend.cc", "-o", library], check=True)
    binary = wheel / "pytriton/tritonserver/bin/tritonserver"
    binary.chmod(0o755)
    environment = {"LD_LIBRARY_PATH": str(wheel / "nvidia_pytriton.libs")}
    return [binary, *flags(repository), "--backend-directory", backends], environment


def floor(build, *_):
    return [build / "bin/front_end_floor", HTTP_PORT], {}


def chat(build, repository, work, delay=0):
    return [build / "bin/front_end_chat_server", HTTP_PORT, ROOT / "models/demo", delay], {}


def measure(load, pid, case, seconds):
    kind, model, concurrency, repetition, delay = case
    port = GRPC_PORT if kind.startswith("grpc") else HTTP_PORT
    command = [load, kind, "127.0.0.1", port, model, pid, concurrency, repetition, delay, seconds]
    try:
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=60 + seconds, check=False)
    except subprocess.TimeoutExpired:
        return None, "stalled"
    return (json.loads(done.stdout), "") if done.returncode == 0 else (None, done.stderr.strip())


def resident_kib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1))


def answers(connection, sent, expected):
    """Whether the server answers on it with what is expected."""
    data = b""
    try:
        connection.sendall(sent)
        while expected not in data:
            part = connection.recv(65536)
            if not part:
                return False
            data += part
    except OSError:
        return False
    return True


def raise_file_limit():
    """Beyond the hard limit where we may: ours has gRPC connections for three eighths of it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError):
        hard = max(hard, 4 * NUM_HELD)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def hold(pid, kind):
    """Opens as many connections as are asked for, uses each once, and leaves them idle; then uses each again."""
    hard = raise_file_limit()
    count = min(NUM_HELD, hard - 1000)
    if kind == "http":
        port, first, answer = HTTP_PORT, b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\r\n\r\n"
        again = first
    else:
        port, answer = GRPC_PORT, bytes([0, 0, 0, 4, 1, 0, 0, 0, 0])  # SETTINGS, acknowledged
        again = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # SETTINGS
        first = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + again
    before = resident_kib(pid)
    held = []
    try:
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", port), timeout=10)
            held.append(connection)
            if not answers(connection, first, answer):
                break
        kib = (resident_kib(pid) - before) / len(held)
        start = cpu_seconds(pid)
        time.sleep(HELD_S)
        busy = (cpu_seconds(pid) - start) / HELD_S
        num_answered = sum(answers(connection, again, answer) for connection in held)
    finally:
        for connection in held:
            connection.close()
    return len(held), num_answered, kib, busy


def report_chat(build, args, work):
    """CPU time of an event of /v1/chat/completions, as the rows above."""
    for delay in (0, 0.02):
        with open(work / "chat.log", "ab") as log:
            process = start(*chat(build, None, work, delay), log, f"{HTTP}/health")
            for count in (64, 1024):
                case = ("chat-stream", "mock_llm", count, 200, delay)
                label = label_of(case)
                if not re.search(args.only, label):
                    continue
                runs = [measure(build / "bin/front_end_load", process.pid, case, args.seconds) for _ in range(args.repeats)]
                failed = "; ".join(error for _, error in runs if error)
                good = [run for run, error in runs if not error]
                costs = [run["server_us_per_item"] for run in good]
                cost = statistics.median(costs) if good else float("nan")
                spread = (max(costs) - min(costs)) / cost if good else float("nan")
                rate = statistics.median(run["items_per_s"] for run in good) if good else float("nan")
                client = statistics.median(run["client_us_per_item"] for run in good) if good else float("nan")
                print(f"{label},inflight,{cost:.2f},{spread:.2f},{rate:.0f},,,{client:.2f},{failed}")
            process.kill()
            process.wait()


def report_held(name, command, environment, log):
    for kind in ("http", "grpc"):
        process = start(command, environment, log, READY)
        opened, num_answered, kib, busy = hold(process.pid, kind)
        print(
            f"# {name}: {kind} connections: {opened} opened, {num_answered} answer after {HELD_S} s, {kib:.1f} KiB each, "
            f"{busy * 100:.1f} % of a core meanwhile"
        )
        process.kill()
        process.wait()


def report_without_model(name, command, environment, log):
    process = start([*command, "--model-control-mode", "explicit"], environment, log, READY)
    time.sleep(1)
    print(f"# {name}: {resident_kib(process.pid) / 1024:.1f} MiB resident without a model")
    process.kill()
    process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--triton", type=pathlib.Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    raise_file_limit()  # the servers' too
    work = pathlib.Path(tempfile.mkdtemp(prefix="front_end_"))
    repository = write_repository(work / "repository")
    servers = {"inflight": (ours, args.build.resolve()), FLOOR: (floor, args.build.resolve())}
    if args.triton and (args.triton / "pytriton/tritonserver/bin/tritonserver").exists():
        servers["triton 2.51.0"] = (tritons, args.triton.resolve())
    else:
        print("# Triton's server is absent (--triton): only ours is timed")
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    cpu = next(line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    print(
        f"# {cpu.split(': ')[1]}, {os.cpu_count()} cores shared with the client, commit {commit}, {args.repeats} repeats in turns"
    )
    results, resident = {}, {name: [] for name in servers}
    asked = [case for case in CASES if re.search(args.only, label_of(case))]
    for _ in range(args.repeats if asked else 0):
        for name, (make, where) in servers.items():
            with open(work / f"{name.split()[0]}.log", "ab") as log:
                process = start(*make(where, repository, work), log, READY)
                resident[name].append(resident_kib(process.pid))
                for case in asked:
                    if name != FLOOR or case[0] == "http-infer":
                        one = measure(args.build.resolve() / "bin/front_end_load", process.pid, case, args.seconds)
                        results.setdefault((label_of(case), name), []).append(one)
                process.kill()  # a stalled stream would hold up its end
                process.wait()
    print("load,server,server_us_per_item,spread,items_per_s,p50_us,p99_us,client_us_per_item,failed")
    for (label, name), runs in results.items():
        good = [run for run, error in runs if not error]
        failed = "; ".join(error for _, error in runs if error)
        if not good:
            print(f"{label},{name},,,,,,,{failed}")
            continue

        def median(key, good=good):
            return statistics.median(run[key] for run in good)

        costs = [run["server_us_per_item"] for run in good]
        spread = (max(costs) - min(costs)) / statistics.median(costs)
        times = f"{median('p50_us'):.0f},{median('p99_us'):.0f}" if "infer" in label else ","
        print(
            f"{label},{name},{median('server_us_per_item'):.2f},{spread:.2f},{median('items_per_s'):.0f},{times},"
            f"{median('client_us_per_item'):.2f},{failed}"
        )
    report_chat(args.build.resolve(), args, work)
    if not asked and not re.search(args.only, "connections"):
        return
    del servers[FLOOR], resident[FLOOR]
    for name, values in resident.items():
        if not values:
            continue
        print(f"# {name}: {statistics.median(values) / 1024:.1f} MiB resident with both models and no request yet")
    for name, (make, where) in servers.items():
        with open(work / f"{name.split()[0]}.log", "ab") as log:
            report_without_model(name, *make(where, repository, work), log)
            if re.search(args.only, "connections"):
                report_held(name, *make(where, repository, work), log)


if __name__ == "__main__":
    main()
