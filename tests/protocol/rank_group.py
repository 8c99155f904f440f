# SPDX-License-Identifier: Apache-2.0
"""Processes that are the ranks of a model, and what is asked of them."""

import contextlib
import os
import pathlib
import signal
import subprocess
import time

import requests
from free_ports import free_port
from live_server import DEMO, START_TIMEOUT_S, ports_in
from llm_client import wait_until

INFLIGHT = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
PROMPTS = ["Once upon a time", "The little dog", "What is 2 + 3?", "A list of colours: red,"]


class Ranks:
    """Processes as torchrun starts them."""

    def __init__(self, work_dir, sizes, *options, count=None, model=DEMO, folders=None, says_sizes=True):
        count = count or sizes[0] * sizes[1]
        if says_sizes:
            options = ("--tensor-parallel-size", sizes[0], "--pipeline-parallel-size", sizes[1], *options)
        self.ports, port = work_dir / "ports.json", free_port()
        self.logs = [work_dir / f"log{rank}" for rank in range(count)]
        self.processes = []
        command = [
            INFLIGHT, "serve", *([model] if model else []), "--device", "cpu", "--dtype", "float32", "--max-kv-tokens", "32768",
            "--http-port=0", "--grpc-port=0", "--metrics-port=0", "--port-file", self.ports, *options,
        ]  # fmt: skip
        for rank in range(count):
            group = {"RANK": rank, "WORLD_SIZE": count, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": count,
                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}  # fmt: skip
            with open(self.logs[rank], "wb") as log:
                self.processes.append(subprocess.Popen(
                    [str(word) for word in command], stdout=log, stderr=subprocess.STDOUT,
                    env=os.environ | {name: str(value) for name, value in group.items()},
                    cwd=folders[rank] if folders else None,
                ))  # fmt: skip

    def is_there(self):
        assert all(process.poll() is None for process in self.processes), self.log()
        return ports_in(self.ports) is not None

    def url(self, door="http"):
        return f"127.0.0.1:{ports_in(self.ports)[door]}"

    def log(self, rank=None):
        return "\n".join(log.read_text()[-3000:] for log in (self.logs if rank is None else [self.logs[rank]]))

    def exit_codes(self, timeout_s):
        """Of all, once all have ended."""
        deadline = time.monotonic() + timeout_s
        return [process.wait(max(0.01, deadline - time.monotonic())) for process in self.processes]

    def assert_all_failed(self):
        """Each ends by itself, with an error."""
        codes = self.exit_codes(START_TIMEOUT_S)
        assert all(code not in (0, -signal.SIGKILL) for code in codes), self.log()

    def kill(self):
        for process in self.processes:
            process.kill()
            process.wait()


@contextlib.contextmanager
def ranks(*arguments, start=True, **options):
    group = Ranks(*arguments, **options)
    try:
        if start:
            wait_until(group.is_there, timeout_s=START_TIMEOUT_S)
        yield group
    finally:
        group.kill()


def generate(url, prompt, model="ensemble", **parameters):
    body = {"text_input": prompt, "max_tokens": 40, **parameters}
    return requests.post(f"http://{url}/v2/models/{model}/generate", json=body, timeout=60)


def answers(url):
    sampled = {"temperature": 0.9, "top_k": 40, "random_seed": 7}
    return [generate(url, prompt, **how).json()["text_output"] for prompt in PROMPTS for how in ({}, sampled, {"beam_width": 2})]
