# SPDX-License-Identifier: Apache-2.0
"""What the plug-in shows to the server's process, and what it needs of it."""

import pathlib
import re
import subprocess

from real_triton import plugin

LIBRARY = "tensorrtllm/libtriton_tensorrtllm.so"
# Of a static build; cuBLASLt where it has CUDA.
ALWAYS_THERE = re.compile(r"(libc|libm|libcublasLt|libdl|libpthread|librt|ld-linux-x86-64)\.so\.\d+")


def lines_of(*command):
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout.splitlines()


def test_only_the_interface_is_exported():
    exported = {line.split()[-1] for line in lines_of("nm", "--dynamic", "--defined-only", plugin() / LIBRARY)}
    assert exported == {
        f"TRITONBACKEND_{name}"
        for name in (
            "Initialize", "Finalize", "GetBackendAttribute", "ModelInitialize", "ModelFinalize", "ModelInstanceExecute",
            "ModelInstanceReady",
        )
    }  # fmt: skip


def test_a_static_build_needs_the_c_library_alone():
    needed = [
        m[1] for line in lines_of("readelf", "--dynamic", plugin() / LIBRARY) if (m := re.search(r"NEEDED.*\[(.*)\]", line))
    ]
    is_static = "INFLIGHT_STATIC:BOOL=ON" in (plugin().parent / "CMakeCache.txt").read_text()
    if is_static:
        assert [name for name in needed if not ALWAYS_THERE.fullmatch(name)] == []
    else:  # those of Debian's packages
        assert any(name.startswith("libprotobuf") for name in needed)


def test_both_names_are_one_library():
    other = plugin() / "inflight/libtriton_inflight.so"
    assert other.resolve() == (plugin() / LIBRARY).resolve() and not pathlib.Path(other.readlink()).is_absolute()
