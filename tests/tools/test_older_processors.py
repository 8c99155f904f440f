# SPDX-License-Identifier: Apache-2.0
"""The program starts and answers on a processor of x86-64-v2, without AVX and AVX2, which qemu-user stands in for."""

import json
import platform
import shutil
import subprocess
import sys

import pytest
from command import DEMO, INFLIGHT, ROOT, call

sys.path.insert(0, str(ROOT / "tests/protocol"))
from live_server import is_sanitized

EMULATOR = "qemu-x86_64"
NEHALEM = (EMULATOR, "-cpu", "Nehalem")  # of 2008: SSE4.2 and POPCNT, the least that the build is compiled for
pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="shows older processors of x86-64; here is another"),
    pytest.mark.skipif(is_sanitized(), reason="shows what is for use; the emulator has no room for a sanitizer's shadow"),
    pytest.mark.skipif(shutil.which(EMULATOR) is None, reason=f"this machine has no {EMULATOR} (Debian's qemu-user)"),
]


def test_the_emulated_processor_has_no_avx2():
    ports = ("--http-port", 0, "--grpc-port", 0, "--metrics-port", 0)
    command = [*NEHALEM, INFLIGHT, "doctor", "--json", *ports]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 1), done.stderr  # by what else it finds
    findings = json.loads(done.stdout)["findings"]
    (found,) = [finding["found"] for finding in findings if finding["subject"] == "CPU"]
    assert found == "no AVX2"


def test_a_model_answers_without_avx2():
    answer = call(*NEHALEM, INFLIGHT, "run", DEMO, "--device", "cpu", "--prompt", "What is 27 + 54?", "--max-tokens", 12)
    assert "27 + 54 = 81" in answer
