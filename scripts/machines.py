# SPDX-License-Identifier: Apache-2.0
"""Which machine a program is made for, by its ELF header: packages are named for that one, and not for the one that makes
them, and what a program of another machine is linked with is in that machine's folder of libraries.
"""

import dataclasses
import pathlib
import platform

ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Machine:
    name: str  # as `uname -m` says it
    debian: str  # as dpkg says it

    @property
    def root(self):
        """Where its libraries are: None for this machine's own, else a folder (scripts/aarch64.sh)."""
        return None if self.name == platform.machine() else ROOT / f"build/{self.name}-root"

    @property
    def library_folders(self):
        """The last is CUDA's (scripts/fetch_cuda.py)."""
        folders = [self.root / folder / f"{self.name}-linux-gnu" for folder in ("lib", "usr/lib")]
        return [*folders, self.root / "usr/local/cuda/lib64"]


MACHINES = {62: Machine("x86_64", "amd64"), 183: Machine("aarch64", "arm64")}  # by the header's e_machine


def machine_of(content):
    """Of the bytes of a program or library."""
    number = int.from_bytes(content[18:20], "little") if content.startswith(b"\x7fELF") else None
    if number not in MACHINES:
        raise ValueError(f"no program for {' or '.join(machine.name for machine in MACHINES.values())}")
    return MACHINES[number]
