# SPDX-License-Identifier: Apache-2.0
"""Folders that `inflight compat install` makes, and shells in which their scripts run as the guides say."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from free_ports import free_ports

INFLIGHT = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
START_TIMEOUT_S = 60


def processes(text):
    """Ids of the running processes whose command line contains the text, but for shells."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if entry.name.isdigit() and text in command and "tritonserver" in command.split(" ")[0]:
            found.append(int(entry.name))
    return found


class Folder:
    """A folder that was laid out, with ports of its own; `sh` runs lines there."""

    def __init__(self, root):
        self.root = root
        self.http, self.grpc, self.metrics = free_ports(3)
        # tritonclient is where this interpreter has it.
        path = f"{root}/bin:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = {
            **os.environ, "PATH": path, "HTTP": str(self.http), "GRPC": str(self.grpc), "METRICS": str(self.metrics),
            "CUDA_VISIBLE_DEVICES": "", "ROOT": str(root),
        }  # fmt: skip

    def sh(self, lines, cwd=None, check=True, **environment):
        """Runs the lines in bash, which ends at the first that fails."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", lines], cwd=cwd or self.root, env={**self.environment, **environment},
            capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if check:
            assert done.returncode == 0, f"{lines}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}\n{self.log()[-3000:]}"
        return done

    def log(self):
        path = self.root / "server.log"
        return path.read_text() if path.exists() else ""

    def wait_until_ready(self, port=None):
        """After a start in the background; the guides' reader looks at the log for that."""
        line = f"Started Metrics Service at 0.0.0.0:{port or self.metrics}"
        deadline = time.monotonic() + START_TIMEOUT_S
        while line not in self.log():
            assert time.monotonic() < deadline and "failed to load" not in self.log(), self.log()[-4000:]
            time.sleep(0.02)

    def stop_servers(self):
        """pkill tritonserver, of those of this folder."""
        running = processes(str(self.root))
        for process in running:
            with contextlib.suppress(ProcessLookupError):  # it has ended since it was looked for
                os.kill(process, signal.SIGTERM)
        deadline = time.monotonic() + START_TIMEOUT_S
        while processes(str(self.root)):
            assert time.monotonic() < deadline, "the server does not end"
            time.sleep(0.02)
        return running


def wait_for(path, text):
    deadline = time.monotonic() + START_TIMEOUT_S
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < deadline, path.read_text() if path.exists() else f"no {path}"
        time.sleep(0.02)


def install(root, *options):
    subprocess.run([INFLIGHT, "compat", "install", root, *options], check=True, capture_output=True, timeout=60)
    return Folder(root)


def ids_after(name, output):
    """The list that a client prints after "NAME sequence: "."""
    return [int(i) for i in re.search(rf"^{name} sequence(?: starts with)?:\s+\[(.*)\]$", output, re.MULTILINE)[1].split(",")]
