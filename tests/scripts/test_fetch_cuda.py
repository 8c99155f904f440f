# SPDX-License-Identifier: Apache-2.0
"""scripts/fetch_cuda.py over packages that are made here, and what scripts/release.sh --aarch64 --cuda builds by."""

import json
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import fetch_cuda  # noqa: E402

LIBRARIES = {"libcudart_static.a": b"archive", "libcudart.so.13": b"runtime", "libcublasLt.so.13": b"products"}


def wheels(folder, libraries):
    """As NVIDIA lays its packages out: of the runtime, and of cuBLAS with a library that is not wanted."""
    runtime, cublas = folder / "a.whl", folder / "b.whl"
    with zipfile.ZipFile(runtime, "w") as archive, zipfile.ZipFile(cublas, "w") as other:
        for name, content in libraries.items():
            (other if "cublas" in name else archive).writestr(f"nvidia/cu13/lib/{name}", content)
        archive.writestr("nvidia/cu13/include/cuda.h", "")
        archive.writestr("nvidia_cuda_runtime-13.0.96.dist-info/licenses/License.txt", "terms of the runtime")
        other.writestr("nvidia/cu13/lib/libcublas.so.13", "")
        other.writestr("nvidia_cublas-13.1.0.3.dist-info/licenses/License.txt", "terms of cuBLAS")
    return [runtime, cublas]


def fetch(root, release, *more):
    """With an nvcc of that release; none where it is None. pip reaches no index."""
    tools = root.parent / "tools"
    tools.mkdir()
    if release:
        (tools / "nvcc").write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n")
        (tools / "nvcc").chmod(0o755)
    env = {**os.environ, "PATH": f"{tools}:/usr/bin:/bin", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tools)}
    command = [sys.executable, ROOT / "scripts/fetch_cuda.py", root, *more]
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60, check=False, env=env)


def test_libraries_links_and_the_licence_are_unpacked(tmp_path):
    target = tmp_path / "usr/local/cuda"
    fetch_cuda.unpack(wheels(tmp_path, LIBRARIES), target)
    for name, content in LIBRARIES.items():
        assert (target / "lib64" / name).read_bytes() == content
    assert (target / "lib64/libcublasLt.so").read_bytes() == b"products"  # what a linker looks for
    names = {str(path.relative_to(target)) for path in target.rglob("*") if not path.is_dir()}
    assert names == {*(f"lib64/{name}" for name in LIBRARIES), "lib64/libcublasLt.so", "lib64/libcudart.so", "EULA.txt"}
    assert (target / "EULA.txt").read_text() == "terms of the runtime"


@pytest.mark.parametrize("missing", LIBRARIES)
def test_a_package_without_one_of_them_is_refused(missing, tmp_path):
    packages = wheels(tmp_path, {name: content for name, content in LIBRARIES.items() if name != missing})
    with pytest.raises(SystemExit, match=f"have no {missing}"):
        fetch_cuda.unpack(packages, tmp_path / "cuda")


@pytest.mark.parametrize(
    ("release", "fault"),
    [("12.8", r"nvcc is of CUDA 12\.8, the libraries .* are of CUDA 13\.0: use that nvcc, or name NVIDIA's packages"),
     ("13.0", "pip could not download NVIDIA's packages")],
)  # fmt: skip
def test_nvcc_has_to_be_of_their_release(release, fault, tmp_path):
    done = fetch(tmp_path / "root", release)
    assert done.returncode == 1
    assert re.search(fault, done.stderr), done.stderr
    assert not (tmp_path / "root").exists()


def test_what_is_there_is_left_alone(tmp_path):
    target = tmp_path / "root/usr/local/cuda"
    target.mkdir(parents=True)
    (target / "done").write_text((ROOT / "scripts/cuda_aarch64.txt").read_text())
    done = fetch(tmp_path / "root", "13.0")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_other_packages_had_is_fetched_anew(tmp_path):
    target = tmp_path / "root/usr/local/cuda"
    target.mkdir(parents=True)
    (target / "done").write_text("other packages")
    assert "pip could not download" in fetch(tmp_path / "root", "13.0").stderr
    assert (target / "done").read_text() == "other packages"  # until there are new ones


def test_every_package_is_pinned_by_its_digest():
    """pip refuses those of other bytes; cuBLAS 13.1 is that of CUDA 13.0's last update."""
    pins = (ROOT / "scripts/cuda_aarch64.txt").read_text()
    assert "--require-hashes" in pins.splitlines()
    found = dict(re.findall(r"^([a-z-]+)==([\d.]+) \\\n    --hash=sha256:[0-9a-f]{64}$", pins, re.MULTILINE))
    assert found.keys() == {"nvidia-cublas", "nvidia-cuda-runtime"}
    release = fetch_cuda.release_of_pins(pins)
    assert found["nvidia-cuda-runtime"].startswith(f"{release}.")
    assert {f".so.{version.split('.')[0]}" for version in found.values()} == {
        "." + name.split(".", 1)[1] for name in fetch_cuda.LIBRARIES if ".so." in name}  # fmt: skip


def test_the_program_for_aarch64_has_the_architectures_of_that_for_x86_64():
    presets = {preset["name"]: preset for preset in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}

    def variables(name):
        preset = presets[name]
        parent = preset.get("inherits")
        return {**(variables(parent) if parent else {}), **preset.get("cacheVariables", {})}

    assert variables("aarch64-cuda-release-all") == variables("cuda-release-all")
    assert variables("aarch64-cuda-release-all")["CMAKE_CUDA_ARCHITECTURES"] == "80-real;89-real;90a-real;100"
    assert presets["aarch64-cuda-release-all"]["toolchainFile"] == presets["aarch64-release"]["toolchainFile"]


def test_a_release_with_cuda_needs_nvcc(tmp_path):
    if pathlib.Path("/usr/bin/nvcc").exists() or os.uname().machine == "aarch64":
        pytest.skip("nvcc is the system's, or the machine is aarch64 itself")
    command = ["bash", ROOT / "scripts/release.sh", "--aarch64", "--cuda"]
    env = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env, cwd=tmp_path)
    assert done.returncode == 1
    assert "--cuda needs nvcc" in done.stderr
