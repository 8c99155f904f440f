# SPDX-License-Identifier: Apache-2.0
"""deploy/systemd: systemd understands the unit and rates it well, and the server runs within its filter of system calls."""

import configparser
import ctypes
import json
import os
import pathlib
import platform
import re
import shutil
import struct
import subprocess

import pytest
import requests
from light_models import write_light_repository
from live_server import ROOT, is_sanitized, start_server

UNIT = ROOT / "deploy/systemd/inflight.service"
OPTIONS = ROOT / "deploy/systemd/serve.json"
MOST_EXPOSURE = 20  # in tenths, of 100
NUMBERS = pathlib.Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
LIBC = ctypes.CDLL(None, use_errno=True)

pytestmark = pytest.mark.skipif(
    not shutil.which("systemd-analyze"),
    reason="this machine has no systemd-analyze, which judges the unit (scripts/install_deps.sh ci)",
)


def analyze(*arguments):
    return subprocess.run(["systemd-analyze", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)


class Repeated(dict):
    """What configparser makes of a unit, with all values of a name that comes again."""

    def __setitem__(self, key, value):
        if isinstance(value, list) and key in self:
            value = self[key] + value
        super().__setitem__(key, value)


def directives(name):
    parser = configparser.RawConfigParser(strict=False, dict_type=Repeated, empty_lines_in_values=False)
    parser.optionxform = str
    parser.read(UNIT)
    return parser["Service"][name].splitlines()


def test_systemd_understands_the_unit_and_rates_it_well(tmp_path):
    program = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
    copy = tmp_path / "inflight.service"
    copy.write_text(UNIT.read_text().replace("/usr/local/bin/inflight", str(program)))
    done = analyze("verify", copy)
    assert (done.returncode, done.stderr) == (0, "")
    done = analyze("security", "--offline=yes", f"--threshold={MOST_EXPOSURE}", copy)
    assert done.returncode == 0, done.stdout.splitlines()[-1]


def test_descriptors_and_the_end_fit_the_options():
    options = json.loads(OPTIONS.read_text())
    assert int(directives("TimeoutStopSec")[0]) > options["exit_timeout_secs"]
    assert int(directives("LimitNOFILE")[0]) >= 65536


# --- the filter of system calls ---


def members(group):
    """Names of the calls of a group, those of its groups too."""
    names = set()
    for word in re.findall(r"^ +(@?[\w-]+)$", analyze("syscall-filter", group).stdout, re.MULTILINE):
        names |= members(word) if word.startswith("@") else {word}
    return names


def allowed():
    """Numbers of the calls that the unit allows."""
    names = set()
    for line in directives("SystemCallFilter"):
        words = line.removeprefix("~").split()
        named = set().union(*(members(word) if word.startswith("@") else {word} for word in words))
        names = names - named if line.startswith("~") else names | named
    numbers = dict(re.findall(r"#define __NR_(\w+) (\d+)", NUMBERS.read_text()))
    return {int(numbers[name]) for name in names if name in numbers}


def filtered(numbers):
    """For a child: other calls get EPERM, as by SystemCallErrorNumber=EPERM."""
    code = [(0x20, 0, 0, 0)]  # load the number
    for number in sorted(numbers):
        code += [(0x15, 0, 1, number), (0x06, 0, 0, 0x7FFF0000)]  # allow it
    code.append((0x06, 0, 0, 0x00050000 | 1))
    program = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in code))
    filters = struct.pack("<HxxxxxxQ", len(code), ctypes.addressof(program))

    def install():
        assert LIBC.prctl(38, 1, 0, 0, 0) == 0  # no_new_privs
        assert LIBC.prctl(22, 2, filters, 0, 0) == 0

    install.program = program  # kept as long as the function
    return install


@pytest.mark.skipif(
    not NUMBERS.exists() or platform.machine() != "x86_64", reason="this machine has not the numbers of x86-64's system calls"
)
@pytest.mark.skipif(is_sanitized(), reason="sanitizers call the system for more; CI's release build runs it")
def test_the_server_runs_with_the_units_options_within_its_filter(tmp_path, monkeypatch):
    repository = write_light_repository(tmp_path / "models")
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/keys").write_text("a-key\n")
    text = OPTIONS.read_text().replace("/srv/models", str(repository))
    text = text.replace("/etc/inflight/keys", f"{tmp_path}/keys/keys").replace("/run/inflight", str(tmp_path))
    if ctypes.CDLL(None).syscall(444, None, 0, 1) <= 0:
        text = text.replace('"on"', '"off"')  # this kernel has no Landlock
    (tmp_path / "serve.json").write_text(text)
    numbers = allowed()
    assert 59 in numbers and 165 not in numbers  # execve, mount
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **kwargs: popen(*args, preexec_fn=filtered(numbers), **kwargs))
    server = start_server(tmp_path, None, "--config", tmp_path / "serve.json", max_kv_tokens=None)
    try:
        body = {"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "BYTES", "data": ["echo"]}]}
        url = f"http://{server.http}/v2/models/identity/infer"
        assert requests.post(url, json=body, timeout=30).status_code == 401
        answer = requests.post(url, json=body, headers={"Authorization": "Bearer a-key"}, timeout=30)
        assert answer.json()["outputs"][0]["data"] == ["echo"]
    finally:
        assert server.stop() == 0
