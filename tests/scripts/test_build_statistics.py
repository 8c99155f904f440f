# SPDX-License-Identifier: Apache-2.0
"""scripts/build_statistics.py over a log and a graph that are written here; the sums are made by hand."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

GRAPH = """# CMake's form
rule CXX
  command = c++ $in
build cmake_order_of_lib: phony || gen/made.h
build gen/made.h | $
  gen/made.cc: CUSTOM ../made.proto | bin/protoc
build src/a/CMakeFiles/a.dir/one.cc.o: CXX ../src/a/one.cc || cmake_order_of_lib
  FLAGS = -O2
build src/a/CMakeFiles/a.dir/a$ b.cc.o: CXX ../src/a/a$ b.cc || cmake_order_of_lib
build src/a/liba.a: AR src/a/CMakeFiles/a.dir/one.cc.o src/a/CMakeFiles/a.dir/a$ b.cc.o
build tools/CMakeFiles/p.dir/Unity/unity_0_cxx.cxx.o: CXX tools/unity_0_cxx.cxx
build bin/p: LINK tools/CMakeFiles/p.dir/Unity/unity_0_cxx.cxx.o | src/a/liba.a
"""
# Begin and end in ms. The first line is of an earlier build of a file, the last of a file that is no longer built.
LOG = """# ninja log v5
0\t90000\t1\tsrc/a/CMakeFiles/a.dir/one.cc.o\t1
0\t500\t1\tgen/made.h\t2
0\t500\t1\tgen/made.cc\t2
500\t10500\t1\tsrc/a/CMakeFiles/a.dir/one.cc.o\t1
500\t4500\t1\tsrc/a/CMakeFiles/a.dir/a b.cc.o\t3
10500\t10750\t1\tsrc/a/liba.a\t4
0\t6000\t1\ttools/CMakeFiles/p.dir/Unity/unity_0_cxx.cxx.o\t5
10750\t12750\t1\tbin/p\t6
0\t70000\t1\tsrc/a/CMakeFiles/a.dir/gone.cc.o\t7
"""


def statistics(*args):
    command = [sys.executable, ROOT / "scripts/build_statistics.py", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def folder(path, log=LOG):
    path.mkdir()
    (path / "build.ninja").write_text(GRAPH)
    (path / ".ninja_log").write_text(log)
    return path


def parts(text):
    return {part.splitlines()[0]: part.splitlines()[1:] for part in ("total\n" + text).split("\n\n")}


def test_sums_folders_files_and_the_longest_chain(tmp_path):
    found = parts(statistics(folder(tmp_path / "build")).stdout)
    assert found["total"] == [
        "     22.8 s  all commands, one after another",  # 0.5 + 10 + 4 + 0.25 + 6 + 2
        "     12.8 s  the critical path",
        "     12.8 s  the least on 2 cores",  # the path is longer than half of all
    ]
    assert found["folders"][:2] == ["     14.2 s  src/a (3)", "      6.0 s  tools (1)"]
    assert found["files"][0] == "     10.0 s  src/a/one.cc"
    assert "      6.0 s  tools/p: unity_0_cxx.cxx" in found["files"]
    assert [line.split("  ")[-1] for line in found["critical path"]] == ["gen/made.h", "src/a/one.cc", "src/a/liba.a", "bin/p"]


def test_more_cores_do_not_help_and_one_takes_all(tmp_path):
    build = folder(tmp_path / "build")
    assert "     12.8 s  the least on 64 cores" in statistics(build, "--cores", 64).stdout
    assert "     22.8 s  the least on 1 cores" in statistics(build, "--cores", 1).stdout


def test_what_it_was_before(tmp_path):
    before = folder(tmp_path / "before", LOG.replace("500\t10500\t", "500\t30500\t"))
    text = statistics(folder(tmp_path / "build"), "--before", before).stdout
    assert "     10.0 s      30.0 s before  src/a/one.cc" in text
    assert "     22.8 s      42.8 s before  all commands" in text


def test_a_folder_without_a_log_is_refused(tmp_path):
    done = statistics(tmp_path)
    assert done.returncode == 1
    assert "a folder that ninja has built in is needed" in done.stderr
