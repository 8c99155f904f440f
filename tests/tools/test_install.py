# SPDX-License-Identifier: Apache-2.0
"""`cmake --install`: a stranger builds examples/embed against the prefix, by find_package and by pkg-config, and runs it."""

import os
import re
import shutil
import subprocess

import pytest
from command import BUILD, DEMO, NO_GPU, ROOT, call, run

PROMPT = "Once upon a time"
CACHE = (BUILD / "CMakeCache.txt").read_text()

# Only these builds have none: docs/embedding.md. In any other, such as the one that CI's part `tests` runs, a library that
# is missing is a failure.
HAS_NO_LIBRARY = "INFLIGHT_LIBRARY:BOOL=OFF" in CACHE or re.search(r"INFLIGHT_SANITIZERS:STRING=\w", CACHE)
pytestmark = pytest.mark.skipif(
    bool(HAS_NO_LIBRARY), reason="builds with sanitizers and -DINFLIGHT_LIBRARY=OFF have no libinflight.so; CI runs it"
)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """Installed elsewhere than configured, so that no path of the build can be relied on."""
    path = tmp_path_factory.mktemp("install") / "prefix"
    call("cmake", "--install", BUILD, "--prefix", path)
    return path


def pkg_config(prefix, *options):
    """What pkg-config says of inflight, by the prefix alone."""
    env = dict(os.environ, PKG_CONFIG_PATH=str(next(prefix.rglob("inflight.pc")).parent))
    return call("pkg-config", *options, "inflight", env=env).split()


def built_plainly(prefix, source, program):
    """`program` from `source` by one call of g++."""
    library_dir = next(prefix.rglob("libinflight.so")).parent
    flags = pkg_config(prefix, "--cflags", "--libs")
    call("g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", source, "-o", program, *flags, f"-Wl,-rpath,{library_dir}")
    return program


def test_the_example_is_built_by_find_package_and_answers_as_run_does(prefix, tmp_path):
    source = shutil.copytree(ROOT / "examples/embed", tmp_path / "embed")
    call("cmake", "-S", source, "-B", tmp_path / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    call("cmake", "--build", tmp_path / "build")
    answer = call(tmp_path / "build/embed", DEMO, PROMPT, env=NO_GPU)
    assert len(answer.split()) > 10
    assert answer == run("run", DEMO, "--prompt", PROMPT, "--max-tokens", "64", env=NO_GPU).stdout


def test_the_example_is_built_by_pkg_config(prefix, tmp_path):
    embed = built_plainly(prefix, ROOT / "examples/embed/main.cc", tmp_path / "embed")
    answer = call(embed, DEMO, PROMPT, env=NO_GPU)
    assert answer == run("run", DEMO, "--prompt", PROMPT, "--max-tokens", "64", env=NO_GPU).stdout
    failed = subprocess.run([embed, tmp_path / "none", PROMPT], capture_output=True, text=True, timeout=60, check=False)
    assert failed.returncode == 1
    assert failed.stderr.startswith("NOT_FOUND: ")


def test_every_public_function_is_exported(prefix, tmp_path):
    program = built_plainly(prefix, ROOT / "tests/tools/public_functions.cc", tmp_path / "public_functions")
    version = call(program, DEMO, env=NO_GPU).strip()
    assert pkg_config(prefix, "--modversion") == [version]


def test_the_installed_program_lays_out_the_scripts_of_the_guides(prefix, tmp_path):
    call(prefix / "bin/inflight", "compat", "install", tmp_path / "folder")
    assert "\nUsage: inflight build " in call(tmp_path / "folder/bin/trtllm-build", "--help")
    assert (tmp_path / "folder/bin/tritonserver").resolve() == (prefix / "bin/inflight").resolve()


def test_nothing_but_the_public_interface_is_exported(prefix):
    symbols = call("nm", "--dynamic", "--defined-only", "--demangle", next(prefix.rglob("libinflight.so"))).splitlines()
    names = [line.split(maxsplit=2)[2] for line in symbols]
    assert len(names) > 20
    inner = [name for name in names if not re.match(r"inflight::[A-Zo]", name)]
    assert not inner


def test_headers_include_nothing_but_the_standard_library_and_each_other(prefix):
    headers = sorted((prefix / "include/inflight").iterdir())
    assert {"open.h", "executor.h", "tokenizer.h", "chat_template.h"} <= {header.name for header in headers}
    for header in headers:
        for name in re.findall(r'#\s*include\s+[<"]([^>"]+)', header.read_text()):
            assert name.startswith("inflight/") or re.fullmatch("[a-z_]+", name), f"{header.name}: {name}"


def test_headers_define_no_macros(prefix):
    for header in sorted((prefix / "include/inflight").iterdir()):
        assert "#define" not in header.read_text(), header.name


def test_the_program_documents_and_licence_are_installed(prefix):
    assert call(prefix / "bin/inflight", "--version").strip()
    documents = prefix / "share/doc/inflight"
    assert (documents / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert (documents / "docs/embedding.md").exists()
