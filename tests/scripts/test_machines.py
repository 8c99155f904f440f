# SPDX-License-Identifier: Apache-2.0
"""scripts/machines.py: which machine a program is for. The system's own tools are the oracle for this one."""

import pathlib
import platform
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import machines  # noqa: E402

PYTHON = pathlib.Path(sys.executable).resolve().read_bytes()


def test_a_program_of_this_machine():
    machine = machines.machine_of(PYTHON)
    assert machine.name == platform.machine()
    architecture = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, timeout=60, check=True)
    assert machine.debian == architecture.stdout.strip()
    assert machine.root is None


def test_one_of_another_machine_has_its_libraries_in_a_folder():
    """The numbers that ELF has for x86-64 and AArch64; that of PowerPC, of which there are no packages."""
    names = {}
    for number in (62, 183):
        machine = machines.machine_of(PYTHON[:18] + number.to_bytes(2, "little") + PYTHON[20:])
        names[number] = (machine.name, machine.debian)
        if machine.name != platform.machine():
            assert machine.root == ROOT / f"build/{machine.name}-root"
            assert machine.library_folders[1] == machine.root / f"usr/lib/{machine.name}-linux-gnu"
            assert machine.library_folders[2] == machine.root / "usr/local/cuda/lib64"
    assert names == {62: ("x86_64", "amd64"), 183: ("aarch64", "arm64")}
    for content in (PYTHON[:18] + b"\x15\x00" + PYTHON[20:], b"#!/bin/sh\n", b""):
        with pytest.raises(ValueError, match="no program for x86_64 or aarch64"):
            machines.machine_of(content)
