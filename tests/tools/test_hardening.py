# SPDX-License-Identifier: Apache-2.0
"""What the linked files say about the protections of cmake/hardening.cmake: readelf's words and the code's own bytes."""

import platform
import re
import subprocess

import pytest
from command import INFLIGHT

BUILD = INFLIGHT.parent.parent
CACHE = (BUILD / "CMakeCache.txt").read_text()
ENDBR64 = bytes.fromhex("f30f1efa")  # where an indirect call may land, with Intel's CET

# Only these builds are without: docs/dependencies.md, "Hardening". CI's part `tests` runs one that has it.
HAS_NONE = re.search(r"INFLIGHT_HARDENING:BOOL=OFF|INFLIGHT_SANITIZERS:STRING=\w|CMAKE_BUILD_TYPE:STRING=Debug", CACHE)
pytestmark = pytest.mark.skipif(
    bool(HAS_NONE), reason="builds for debugging, with sanitizers and INFLIGHT_HARDENING=OFF have none; CI runs one that has"
)


def readelf(path, *options):
    return subprocess.run(["readelf", "--wide", *options, path], capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.fixture(scope="module", params=["program", "library"])
def linked(request):
    """The program, and libinflight.so where the build makes it."""
    if request.param == "program":
        return INFLIGHT
    paths = sorted(BUILD.glob("libinflight.so.*.*.*"))
    if not paths:
        pytest.skip(
            "this build has no libinflight.so (-DINFLIGHT_LIBRARY=OFF, or a target alone was built); scripts/test.sh makes one"
        )
    return paths[-1]


def segments(path):
    """[(type, flags)] of the program headers: ("LOAD", "R E")."""
    return re.findall(r"^  (\w+) +0x\w+ 0x\w+ 0x\w+ 0x\w+ 0x\w+ ([RWE ]{3}) ", readelf(path, "--segments"), re.MULTILINE)


def imports(path):
    """Names of the functions that it takes from shared libraries."""
    return set(re.findall(r" UND ([\w.]+)", readelf(path, "--dyn-syms")))


def test_the_program_loads_at_an_address_that_is_drawn():
    assert re.search(r"Type: +DYN \(Position-Independent Executable file\)", readelf(INFLIGHT, "--file-header"))


def test_addresses_of_functions_are_bound_at_the_start_and_read_only_after(linked):
    assert re.search(r"FLAGS.*\b(BIND_)?NOW\b", readelf(linked, "--dynamic"))
    assert "GNU_RELRO" in dict(segments(linked))


def test_no_memory_is_writable_and_executable(linked):
    found = segments(linked)
    assert dict(found)["GNU_STACK"] == "RW "
    loaded = [flags for kind, flags in found if kind == "LOAD"]
    assert "R E" in loaded
    assert "RWE" not in loaded


def test_stacks_buffers_and_containers_are_checked(linked):
    found = imports(linked)
    assert "__stack_chk_fail" in found
    assert {name for name in found if name.startswith("__") and name.endswith("_chk")}
    assert "_ZSt21__glibcxx_assert_failPKciS0_S0_" in found or "INFLIGHT_STATIC:BOOL=ON" in CACHE


@pytest.mark.skipif(platform.machine() != "x86_64", reason="this machine is no x86-64, whose note it is")
def test_the_note_of_cet_is_claimed_only_where_all_that_is_linked_has_it():
    """Forced, it would have a CPU end the program at the first pointer to a function of a library without endbr64."""
    found = subprocess.run(["gcc", "-print-file-name=Scrt1.o"], capture_output=True, text=True, timeout=60, check=True)
    start_file = found.stdout.strip()
    for mark in ("IBT", "SHSTK"):
        if mark not in readelf(start_file, "--notes"):
            assert mark not in readelf(INFLIGHT, "--notes"), f"{start_file} has no {mark}, and the program says that all do"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="this machine is no x86-64, whose instruction it is")
def test_every_function_that_others_may_call_begins_with_endbr64():
    text = re.search(r"\] \.text +PROGBITS +(\w+) (\w+) (\w+)", readelf(INFLIGHT, "--sections"))
    address, offset, size = (int(number, 16) for number in text.groups())
    code = INFLIGHT.read_bytes()[offset : offset + size]
    form = re.compile(r"^ *\d+: (\w+) +\d+ FUNC +\w+ +\w+ +\d+ (_ZNK?8inflight\w+|main)$", re.MULTILINE)
    found = form.findall(readelf(INFLIGHT, "--symbols"))
    # What is of an anonymous namespace, or made for a lambda, is called from its own unit alone.
    starts = {name: int(start, 16) - address for start, name in found if not re.search("_GLOBAL__N_|EUl", name)}
    assert len(starts) > 1000
    assert "main" in starts
    bare = [name for name, start in starts.items() if code[start : start + 4] != ENDBR64]
    assert not bare
