# SPDX-License-Identifier: Apache-2.0
"""deploy/container: the files that the recipe copies are there, the user is not root, and the health check tells a server.

What prepare.sh does is run on a bare system by scripts/try_packages.sh.
"""

import json
import pathlib
import re
import socket
import subprocess
import sys

from command import ROOT, run

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "protocol"))
from live_server import start_server

FOLDER = ROOT / "deploy/container"
RECIPE = (FOLDER / "Dockerfile").read_text()


def instructions(name):
    return re.findall(rf"^{name} (.*)$", RECIPE.replace("\\\n", " "), re.MULTILINE)


def health(port):
    return subprocess.run([FOLDER / "health.sh", str(port)], capture_output=True, timeout=60, check=False).returncode


def test_what_is_copied_and_run_is_there():
    named = [word for line in instructions("COPY") + instructions("RUN") for word in line.split() if word.startswith("/src/")]
    assert "/src/scripts/release.sh" in named
    for name in named:
        assert name == "/src/dist/inflight_*.deb" or (ROOT / name.removeprefix("/src/")).is_file(), name
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not [name for name in named for folder in ignored if name.startswith(f"/src/{folder}/") and folder != "dist"]
    (check,) = instructions("HEALTHCHECK")
    assert json.loads(check.split("CMD ")[1]) == ["/usr/local/bin/health.sh"]


def test_the_server_is_not_roots_and_its_arguments_are_options():
    assert instructions("USER") == ["inflight"]
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["/usr/bin/inflight"]
    command, _, *options = json.loads(instructions("CMD")[-1])
    help_text = run(command, "--help-all").stdout
    assert all(f"{option} " in help_text for option in options if option.startswith("--"))


def test_the_health_check_tells_whether_a_server_is_ready(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        free = silent.getsockname()[1]
    assert health(free) != 0
    server = start_server(tmp_path)
    try:
        assert health(server.http.rsplit(":", 1)[1]) == 0
        assert health(server.grpc.rsplit(":", 1)[1]) != 0
    finally:
        server.stop()
