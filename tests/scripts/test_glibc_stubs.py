# SPDX-License-Identifier: Apache-2.0
"""scripts/glibc_stubs.py and src/old_glibc: a program that is linked by them needs no newer C library, and runs.

What the linker bound a program to, objdump says. Where Debian's cross compiler for aarch64 is, the same is shown of that.
"""

import dataclasses
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STUBS = ROOT / "scripts/glibc_stubs.py"
MERGED = ("-Wl,--no-as-needed", "-lpthread", "-ldl", "-lrt")
PROGRAM = """
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <thread>
#include <unistd.h>

struct Global {
  Global() { std::puts("constructed"); }
  ~Global() { std::puts("destroyed"); }
} global;

int main(int argc, char** argv) {
  setenv("OF_THE_PROGRAM", argv[1], 1);
  for (char** each = environ; *each != nullptr; ++each)
    if (std::string(*each).starts_with("OF_THE_PROGRAM=")) std::puts(*each);
  std::mutex mutex;
  std::condition_variable condition;
  std::unique_lock lock(mutex);
  if (condition.wait_for(lock, std::chrono::milliseconds(5)) == std::cv_status::timeout) std::puts("timeout");
  std::thread([] {
    try {
      std::filesystem::file_size("/nowhere");
    } catch (const std::filesystem::filesystem_error& error) {
      std::puts(error.code().message().c_str());
    }
  }).join();
  if (std::filesystem::exists(argv[0])) std::puts("exists");
  std::random_device random;
  return argc == 2 && random() != random() ? 0 : 1;
}
"""


def call(*command):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120, check=True).stdout


@dataclasses.dataclass(frozen=True)
class Target:
    prefix: str  # of the compiler's programs
    emulator: tuple


# CI has that compiler and runs both; who works on x86-64 alone need not install it for this.
AARCH64 = Target("aarch64-linux-gnu-", ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"))
without_it = pytest.mark.skipif(
    not (shutil.which("aarch64-linux-gnu-g++") and shutil.which("qemu-aarch64")),
    reason="shows programs for aarch64, whose compiler and emulator scripts/aarch64.sh installs",
)


@pytest.fixture(scope="module", params=[Target("", ()), pytest.param(AARCH64, marks=without_it)], ids=["here", "aarch64"])
def target(request):
    return request.param


@pytest.fixture(scope="module")
def work(target, tmp_path_factory):
    folder = tmp_path_factory.mktemp("old")
    compiler = f"{target.prefix}g++"
    (folder / "main.cc").write_text(PROGRAM)
    (folder / "newer.c").write_text("#define _GNU_SOURCE\n#include <unistd.h>\nint main(void) { return gettid() < 0; }\n")
    call(sys.executable, STUBS, folder / "stubs", "--newest", "2.28", "--compiler", compiler)
    call(compiler, "-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", f"-I{ROOT / 'src'}", "-c",
         ROOT / "src/old_glibc/functions.cc", "-o", folder / "functions.o")  # fmt: skip
    call(compiler, "-std=c++20", "-O1", "-fPIE", "-pie", "-static-libstdc++", "-static-libgcc", "-Wl,--wrap=__libc_start_main",
         folder / "main.cc", folder / "functions.o", "-o", folder / "program", "-L", folder / "stubs", *MERGED)  # fmt: skip
    return folder


def test_it_needs_no_newer_c_library(work, target):
    used = re.findall(r"\*UND\*\s+\S+\s+\(?GLIBC_([\d.]+)\)?\s", call(f"{target.prefix}objdump", "-T", work / "program"))
    assert len(used) > 20
    assert max(tuple(int(part) for part in version.split(".")) for version in used) <= (2, 28)


def test_it_loads_what_older_systems_have_in_libraries_of_their_own(work):
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", call("readelf", "--dynamic", work / "program"))
    assert {"libc.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"} <= set(needed)
    assert not [name for name in needed if "stdc++" in name or "gcc" in name]


def test_it_runs(work, target):
    lines = call(*target.emulator, work / "program", "text").splitlines()
    assert lines == ["constructed", "OF_THE_PROGRAM=text", "timeout", "No such file or directory", "exists", "destroyed"]


def test_what_is_newer_is_an_error_of_the_linker(work, target):
    command = [f"{target.prefix}gcc", work / "newer.c", "-o", work / "newer"]
    call(*command)
    done = subprocess.run([*map(str, command), "-L", work / "stubs"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert "undefined reference to `gettid'" in done.stderr


def test_stubs_have_no_newer_versions_and_names_of_one_place_stay_together(work):
    lines = call("readelf", "--dyn-syms", "--wide", work / "stubs/libc.so.6").splitlines()
    symbols = [line.split() for line in lines if "@@GLIBC_" in line]
    assert len(symbols) > 1500
    assert max(tuple(int(part) for part in row[7].split("GLIBC_")[1].split(".")) for row in symbols) <= (2, 28)
    places = {row[7].split("@")[0]: row[1] for row in symbols}
    assert places["environ"] == places["__environ"] == places["_environ"] != places["stdout"]
