# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's Triton server with the backend `conformance`, started as each profile of the recorded cases says."""

import contextlib
import os
import pathlib
import subprocess
import sys
import time

import requests
from recorded_cases import FRESH_FOR_EACH_CASE, flags, unpack
from steps import Peer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "triton"))

from free_ports import free_ports
from real_triton import wheel

START_TIMEOUT_S = 60
TIME_TO_END_S = 3  # of a server that a case has brought down
OURS_ALONE = ("--allow-client-shm", "--http-allowed-host")  # flags that this server does not have


def backends():
    """The folder of the backend for this server, which the target triton_conformance builds."""
    return pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]).parent / "recorder_backends"


def why_not():
    """Why nothing can be recorded here; empty where it can."""
    if wheel() is None:
        return "this machine lacks nvidia-pytriton (scripts/install_deps.sh test)"
    if not (backends() / "conformance/libtriton_conformance.so").exists():
        return "the library of the target triton_conformance is missing"
    return ""


class RealServers:
    """A server of each profile, started when a case first needs it; of some profiles anew for each case."""

    def __init__(self, folder):
        self._folder = folder
        self._running = {}
        unpack(folder)
        (folder / "logs").mkdir()

    def peer(self, profile):
        if profile in FRESH_FOR_EACH_CASE:
            self._stop(profile)
        if profile not in self._running:
            self._running[profile] = self._start(profile)
        return self._running[profile][1]

    def _start(self, profile):
        http, grpc, metrics = free_ports(3)
        own = [word for word in map(str, flags(profile, self._folder / "models")) if not word.startswith(OURS_ALONE)]
        binary = wheel() / "bin/tritonserver"
        binary.chmod(0o755)
        command = [
            binary, *own, f"--backend-directory={backends()}", f"--cache-directory={wheel() / 'caches'}",
            f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}",
            "--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--metrics-address=127.0.0.1",
        ]  # fmt: skip
        log = self._folder / "logs" / f"{profile}.log"
        with open(log, "ab") as out:
            process = subprocess.Popen([str(word) for word in command], stdout=out, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers(f"http://127.0.0.1:{metrics}/metrics"):  # the last of its ports
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise RuntimeError(f"the server did not start:\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.05)
        return process, Peer(*(f"127.0.0.1:{port}" for port in (http, grpc, metrics)))

    def _stop(self, profile):
        if profile in self._running:
            process, peer = self._running.pop(profile)
            peer.close()
            process.kill()  # what it still does is of no interest
            process.wait()

    def forget_if_ended(self, profile):
        """Whether the server of the profile ends by itself, as it does after some cases; the next peer is of another then."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._running[profile][0].wait(TIME_TO_END_S)
        if self._running[profile][0].poll() is None:
            return False
        self._stop(profile)
        return True

    def stop(self):
        for profile in list(self._running):
            self._stop(profile)


def answers(url):
    try:
        return requests.get(url, timeout=5).status_code == 200
    except requests.RequestException:
        return False
