# SPDX-License-Identifier: Apache-2.0
"""deploy/systemd under systemd itself, as the manager of one user: start, the end with requests that run, a crash, a port that
is in use, and a log that is rotated. What a user's unit cannot have (User=) and what would hide the test's files is left out."""

import contextlib
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import pytest
import requests
from free_ports import free_port
from live_server import DEMO, ROOT, is_sanitized

UNIT = ROOT / "deploy/systemd/inflight.service"
OPTIONS = ROOT / "deploy/systemd/serve.json"
MANAGER = pathlib.Path("/lib/systemd/systemd")
PATIENCE_S = 60
KEY = "a-key"
# The manager runs where the machine seems to have been booted by systemd, which makes what hides files.
START = """mount -t tmpfs none /run && mkdir -p /run/systemd/system /run/systemd/inaccessible && cd /run/systemd/inaccessible &&
mkdir -m 0 dir && mkfifo -m 0 fifo && mknod -m 0 chr c 0 0 && mknod -m 0 blk b 0 0 && touch reg sock && chmod 0 reg sock &&
exec /lib/systemd/systemd --user --log-target=null"""

# MemoryMax=, TasksMax= and the filter of system calls are those of the program without sanitizers; CI's release build runs it.
pytestmark = pytest.mark.skipif(is_sanitized(), reason="the unit's bounds are those of the server without sanitizers")


def wait(found, what):
    until = time.monotonic() + PATIENCE_S
    while not found():
        assert time.monotonic() < until, f"{what()} after {PATIENCE_S} s"
        time.sleep(0.05)


class Service:
    """The unit, of a manager of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.port = free_port()
        self.log = folder / "log"
        self.environment = {
            **os.environ, "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder / "run"), "XDG_CONFIG_HOME": str(folder / "config"),
        }  # fmt: skip
        units = folder / "config/systemd/user"
        (units / "inflight.service.d").mkdir(parents=True)
        (folder / "run").mkdir(mode=0o700)
        (folder / "keys").mkdir()
        (folder / "keys/keys").write_text(f"{KEY}\n")
        program = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
        unit = UNIT.read_text().replace("User=inflight\nGroup=inflight\n", "")
        unit = unit.replace("/usr/local/bin/inflight", str(program)).replace("/etc/inflight/serve.json", f"{folder}/serve.json")
        (units / "inflight.service").write_text(unit)
        (units / "inflight.service.d/test.conf").write_text(
            f"[Service]\nPrivateTmp=no\nRestartSec=1\nStandardOutput=append:{self.log}\nStandardError=append:{self.log}\n"
        )
        probe = re.sub(r"ExecStart=.*", "ExecStart=/bin/true", unit)
        (units / "probe.service").write_text(probe.replace("Restart=on-failure\n", "").replace("Type=exec", "Type=oneshot"))
        options = json.loads(OPTIONS.read_text())
        del options["model_repository"], options["http_allowed_host"]
        options |= {
            "model": [str(DEMO)], "api_key_file": f"{folder}/keys/keys", "port_file": f"{folder}/run/inflight/ports.json",
            "http_port": self.port, "allow_grpc": False, "metrics_port": 0, "device": "cpu", "max_kv_tokens": 4096,
        }  # fmt: skip
        if ctypes.CDLL(None).syscall(444, None, 0, 1) <= 0:
            options["sandbox"] = "off"  # this kernel has no Landlock
        (folder / "serve.json").write_text(json.dumps(options))
        command = ["unshare", "--mount", "sh", "-c", START]
        self.manager = subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def systemctl(self, *words):
        return subprocess.run(
            ["systemctl", "--user", *words], env=self.environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    def is_managed(self):
        until = time.monotonic() + 10
        while self.systemctl("is-active", "default.target").stdout.strip() != "active":
            if self.manager.poll() is not None or time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    def property(self, name):
        return self.systemctl("show", "--value", "--property", name, "inflight").stdout.strip()

    def state(self):
        return f"{self.property('ActiveState')}, {self.property('Result')}: {self.said()[-2000:]}"

    def said(self):
        return self.log.read_text() if self.log.exists() else ""

    def url(self, path):
        return f"http://127.0.0.1:{self.port}/{path}"

    def answers(self):
        with contextlib.suppress(requests.ConnectionError):
            return requests.get(self.url("v2/health/ready"), headers=HEADERS, timeout=10).ok
        return False

    def start(self):
        done = self.systemctl("start", "inflight")
        assert done.returncode == 0, done.stderr
        wait(self.answers, self.state)

    def obstacle(self):
        """What keeps any program from running under such a unit here; none where `true` does."""
        if not self.is_managed():
            return "systemd's manager of a user does not start"
        if self.systemctl("start", "probe").returncode != 0:
            status = self.systemctl("show", "--value", "--property", "ExecMainStatus", "probe").stdout.strip()
            return f"systemd cannot set up the unit's namespaces and filters (status {status} of systemd.exec)"
        return None

    def end(self):
        self.systemctl("stop", "inflight")
        self.manager.terminate()
        try:
            self.manager.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.manager.kill()


HEADERS = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture
def service():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="inflight_unit_", dir="/tmp"))  # a short name: it has sockets
    made = None
    try:
        if os.geteuid() != 0 or not MANAGER.exists() or not shutil.which("unshare"):
            obstacle = "it needs root, and the packages systemd and util-linux"
        else:
            made = Service(folder)
            obstacle = made.obstacle()
        if obstacle:
            # Containers may have no cgroups to write and no namespaces to make, which no package gives them. Where a probe with
            # the unit's own settings runs, as on CI's machines, the tests run, and what fails is the server or its unit.
            pytest.skip(f"no manager of systemd for the unit: {obstacle}")
        yield made
    finally:
        if made is not None:
            made.end()
        shutil.rmtree(folder, ignore_errors=True)


def test_an_end_waits_for_what_runs_and_a_start_follows(service):
    service.start()
    body = {"text_input": "Once upon a time", "max_tokens": 900, "min_length": 900, "stream": True}
    lines = []
    with requests.post(
        service.url("v2/models/ensemble/generate_stream"), json=body, headers=HEADERS, stream=True, timeout=PATIENCE_S
    ) as stream:
        assert stream.ok, stream.text
        coming = stream.iter_lines()
        lines.append(next(coming))
        ended = []
        stop = threading.Thread(target=lambda: ended.append(service.systemctl("stop", "inflight").returncode))
        stop.start()
        lines += [line for line in coming if line]
    stop.join()
    assert ended == [0]
    assert len(lines) >= 900 and all(line.startswith(b"data: ") for line in lines if line), len(lines)
    assert (service.property("ActiveState"), service.property("Result")) == ("inactive", "success"), service.state()
    service.start()


def test_what_crashed_is_started_again_and_what_ended_is_not(service):
    service.start()
    pid = int(service.property("MainPID"))
    os.kill(pid, signal.SIGKILL)
    wait(lambda: service.property("MainPID") not in ("0", str(pid)) and service.answers(), service.state)
    assert service.property("NRestarts") == "1"
    os.kill(int(service.property("MainPID")), signal.SIGTERM)
    wait(lambda: service.property("ActiveState") == "inactive", service.state)
    time.sleep(2)  # twice RestartSec
    assert (service.property("ActiveState"), service.property("MainPID")) == ("inactive", "0"), service.state()


def test_a_port_that_is_in_use_is_named_until_it_is_free(service):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", service.port))
        taken.listen()
        service.systemctl("start", "inflight")
        wait(lambda: int(service.property("NRestarts")) >= 1, service.state)
        assert str(service.port) in service.said() and "in use" in service.said(), service.said()
    wait(service.answers, service.state)


def test_a_log_that_is_cut_is_gone_on_with_from_its_beginning(service):
    """As logrotate does by copytruncate."""
    service.start()
    body = {"text_input": "1 + 1", "max_tokens": 2}

    def lines():
        return service.log.read_text().count("/v2/models/ensemble/generate")

    for _ in range(3):
        assert requests.post(service.url("v2/models/ensemble/generate"), json=body, headers=HEADERS, timeout=30).ok
    wait(lambda: lines() == 3, service.said)
    os.truncate(service.log, 0)
    assert requests.post(service.url("v2/models/ensemble/generate"), json=body, headers=HEADERS, timeout=30).ok
    wait(lambda: lines() == 1, service.said)
    assert b"\0" not in service.log.read_bytes()
