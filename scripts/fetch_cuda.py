#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Brings the libraries of CUDA that a program for hosts of aarch64 is linked with into ROOT/usr/local/cuda.

usage: scripts/fetch_cuda.py ROOT      ROOT: the folder of that machine's libraries (scripts/aarch64.sh)

They come out of NVIDIA's packages of PyPI, by the versions and SHA-256 of scripts/cuda_aarch64.txt (545 MB); nothing of
them is run here. nvcc has to be of the same release of CUDA, whose headers are the same for each host.

  lib64/libcudart_static.a    what the program has in it
  lib64/libcublasLt.so.13     what it loads; under an emulator too
  lib64/libcudart.so.13       what CMake looks for
  EULA.txt                    NVIDIA's licence

Does nothing where they are there. Exit status 1 where they cannot be had, or nvcc is of another release.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

SCRIPTS = pathlib.Path(__file__).resolve().parent
PINS = SCRIPTS / "cuda_aarch64.txt"
PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_27_aarch64")  # of the packages' names
LIBRARIES = ("libcudart_static.a", "libcudart.so.13", "libcublasLt.so.13")
LICENCE = r"nvidia_cuda_runtime-[^/]+\.dist-info/(licenses/)?License\.txt"


def release_of_pins(pins):
    """13.0"""
    return re.search(r"^nvidia-cuda-runtime==(\d+\.\d+)\.", pins, re.MULTILINE).group(1)


def release_of_nvcc():
    try:
        said = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    except FileNotFoundError:
        sys.exit("fetch_cuda.py: nvcc is not in PATH")
    return re.search(r"release (\d+\.\d+)", said).group(1)


def download(folder):
    python = SCRIPTS.parent / ".venv/bin/python"
    command = [python if python.exists() else sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
               "--no-deps", "--dest", folder, "--requirement", PINS]  # fmt: skip
    for platform in PLATFORMS:
        command += ["--platform", platform]
    if subprocess.run(command, check=False, stdout=sys.stderr).returncode != 0:
        sys.exit("fetch_cuda.py: pip could not download NVIDIA's packages: is there a network, and python3-pip?")


def unpack(wheels, target):
    """Writes LIBRARIES, links to them without a version, and the licence below `target`."""
    (target / "lib64").mkdir(parents=True)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as package:
            for name in package.namelist():
                base = name.rsplit("/", 1)[-1]
                if base in LIBRARIES:
                    path = target / "lib64" / base
                elif re.fullmatch(LICENCE, name):
                    path = target / "EULA.txt"
                else:
                    continue
                with package.open(name) as packed, path.open("wb") as out:
                    shutil.copyfileobj(packed, out, 1 << 20)
    for library in LIBRARIES:
        if not (target / "lib64" / library).exists():
            sys.exit(f"fetch_cuda.py: the packages of {PINS.name} have no {library}")
        bare, _, version = library.partition(".so.")
        if version:
            (target / "lib64" / f"{bare}.so").symlink_to(library)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n\n")[1])
    pins, target = PINS.read_text(), pathlib.Path(sys.argv[1]) / "usr/local/cuda"
    wanted, here = release_of_pins(pins), release_of_nvcc()
    if here != wanted:
        sys.exit(f"fetch_cuda.py: nvcc is of CUDA {here}, the libraries for aarch64 that scripts/{PINS.name} names are of CUDA "
                 f"{wanted}: use that nvcc, or name NVIDIA's packages of CUDA {here} there")  # fmt: skip
    stamp = target / "done"
    if stamp.exists() and stamp.read_text() == pins:
        return
    print(f"unpacking CUDA's libraries for aarch64 in {target}")
    with tempfile.TemporaryDirectory() as work:
        download(work)
        shutil.rmtree(target, ignore_errors=True)
        unpack(sorted(pathlib.Path(work).glob("*.whl")), target)
    stamp.write_text(pins)


if __name__ == "__main__":
    main()
