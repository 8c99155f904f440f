# SPDX-License-Identifier: Apache-2.0
"""libinflight-dev and inflight-triton-backend of scripts/packages.py, made of this build: a stranger compiles the example
against the one, unpacked; the other puts its library where Triton looks, and NVIDIA's back when it goes.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from command import BUILD, DEMO, NO_GPU, ROOT, call, run
from package_marks import CACHE, MARKS

LIBRARY, PLUGIN = "libinflight-dev", "inflight-triton-backend"
BACKEND = "opt/tritonserver/backends/tensorrtllm/libtriton_tensorrtllm.so"
PROMPT = "Once upon a time"
EPOCH = dict(os.environ, SOURCE_DATE_EPOCH="1700000000")
pytestmark = MARKS


def only(folder, pattern):
    (path,) = folder.rglob(pattern)
    return path


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    path = tmp_path_factory.mktemp("stage") / "prefix"
    for component in ("program", "library", "plugin"):
        call("cmake", "--install", BUILD, "--component", component, "--strip", "--prefix", path, env=EPOCH)
    version = run("--version").stdout.split()[1]
    for name, target in ((LIBRARY, f"libinflight.so.{version}"), (PLUGIN, "backends/tensorrtllm/libtriton_tensorrtllm.so")):
        bill = path / f"share/doc/{name}/{name}.spdx.json"
        bill.parent.mkdir()
        installed = only(path, target.rsplit("/")[-1])
        call(sys.executable, ROOT / "scripts/sbom.py", BUILD, "--target", target, "--name", name, "--program", installed,
             "--output", bill, env=EPOCH)  # fmt: skip
    return path


def packaged(stage, folder):
    call(sys.executable, ROOT / "scripts/packages.py", stage, "--output", folder, "--level", "0", env=EPOCH)
    return folder


@pytest.fixture(scope="module")
def dist(stage, tmp_path_factory):
    return packaged(stage, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def unpacked(dist, tmp_path_factory):
    """{name: folder with the files of the package, and its DEBIAN}."""
    folders = {name: tmp_path_factory.mktemp(name) for name in (LIBRARY, PLUGIN)}
    for name, folder in folders.items():
        call("dpkg-deb", "--raw-extract", only(dist, f"{name}_*.deb"), folder)
    return folders


def field(dist, name, of):
    return call("dpkg-deb", "--field", only(dist, f"{name}_*.deb"), of).strip()


def test_the_folder_passes_the_checks_of_a_release(dist):
    """All but those of files that have their libraries in them, where this build's load them."""
    command = [sys.executable, ROOT / "scripts/check_release.py", dist, "--same-as", dist]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120, check=False)
    verdicts = dict(line.rsplit(maxsplit=1) for line in done.stdout.splitlines() if not line.startswith(" "))
    assert len(verdicts) == 9, done.stderr
    of_a_release = {"libraries", "glibc", "size"} if "INFLIGHT_STATIC:BOOL=ON" not in CACHE else {"size"}
    assert {name for name, verdict in verdicts.items() if verdict != "ok"} <= of_a_release, done.stdout


def test_two_runs_give_equal_bytes(stage, dist, tmp_path):
    other = packaged(shutil.copytree(stage, tmp_path / "copy", symlinks=True, copy_function=shutil.copy), tmp_path / "other")
    assert sorted(path.name for path in other.iterdir()) == sorted(path.name for path in dist.iterdir())
    for name in (LIBRARY, PLUGIN):
        for path in dist.glob(f"{name}*"):
            assert path.read_bytes() == (other / path.name).read_bytes(), path.name


def test_the_example_is_built_against_the_unpacked_package(unpacked, tmp_path):
    """By find_package, by the line of docs/embedding.md, and by the copy of the example in the package."""
    usr = unpacked[LIBRARY] / "usr"
    example = usr / "share/doc/libinflight-dev/examples/embed"
    assert (example / "main.cc").read_bytes() == (ROOT / "examples/embed/main.cc").read_bytes()
    expected = run("run", DEMO, "--prompt", PROMPT, "--max-tokens", "64", env=NO_GPU).stdout
    source = shutil.copytree(example, tmp_path / "embed")
    call("cmake", "-S", source, "-B", tmp_path / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={usr}")
    call("cmake", "--build", tmp_path / "build")
    assert call(tmp_path / "build/embed", DEMO, PROMPT, env=NO_GPU) == expected
    page = (usr / "share/doc/libinflight-dev/docs/embedding.md").read_text()
    (line,) = re.findall(r"^g\+\+ .*$", page, re.MULTILINE)
    library_dir = only(usr, "libinflight.so").parent
    line = line.replace("main.cc", str(example / "main.cc")).replace("-o embed", f"-o {tmp_path / 'plain'}")
    line = line.replace("/opt/inflight/lib", str(library_dir))
    env = dict(os.environ, PKG_CONFIG_PATH=str(library_dir / "pkgconfig"))
    subprocess.run(["bash", "-ec", line], env=env, check=True, timeout=300)
    assert call(tmp_path / "plain", DEMO, PROMPT, env=NO_GPU) == expected


def test_the_library_is_found_by_its_soname_and_named_to_packages_that_need_it(dist, unpacked):
    library = only(unpacked[LIBRARY], "libinflight.so")
    assert library.is_symlink()
    soname = re.search(r"SONAME.*\[(.+)\]", call("readelf", "--dynamic", library)).group(1)
    assert (library.parent / soname).resolve() == library.resolve()
    name, version, *package = (unpacked[LIBRARY] / "DEBIAN/shlibs").read_text().split()
    assert f"{name}.so.{version}" == soname
    assert package == [LIBRARY, "(>=", f"{field(dist, LIBRARY, 'Version')})"]
    assert "ldconfig" in (unpacked[LIBRARY] / "DEBIAN/triggers").read_text()
    assert re.search(r"\blibstdc\+\+6 \(>= \d+", field(dist, LIBRARY, "Depends"))


def test_packages_have_what_their_sums_and_bills_say(dist, unpacked):
    for name, binary in ((LIBRARY, "libinflight.so"), (PLUGIN, "libtriton_tensorrtllm.so")):
        folder = unpacked[name]
        sums = dict(reversed(line.split("  ")) for line in (folder / "DEBIAN/md5sums").read_text().splitlines())
        files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()}
        assert set(sums) == {path for path in files if not path.startswith("DEBIAN/")}
        bill = json.loads((dist / f"{name}.spdx.json").read_text())
        ours = next(package for package in bill["packages"] if package["name"] == name)
        assert ours["checksums"][0]["checksumValue"] == hashlib.sha256(only(folder, binary).read_bytes()).hexdigest()
        assert ours["primaryPackagePurpose"] == "LIBRARY"
        listed = {package["name"] for package in bill["packages"]}
        assert "nlohmann-json3-dev" in listed
        assert (folder / f"usr/share/doc/{name}/THIRD-PARTY.txt").stat().st_size > 1000
        assert (folder / f"usr/share/doc/{name}/copyright").is_file()


def test_the_plugin_is_where_triton_looks_under_both_names(unpacked):
    library = unpacked[PLUGIN] / BACKEND
    assert (unpacked[PLUGIN] / "opt/tritonserver/backends/inflight/libtriton_inflight.so").resolve() == library.resolve()
    symbols = {line.split()[2] for line in call("nm", "--dynamic", "--defined-only", library).splitlines()}
    assert {"TRITONBACKEND_Initialize", "TRITONBACKEND_ModelInstanceExecute"} <= symbols
    assert all(symbol.startswith("TRITONBACKEND_") for symbol in symbols)


@pytest.mark.skipif(os.geteuid() != 0, reason="this test is not run as root, as who dpkg writes its files")
def test_the_library_that_was_there_is_back_when_the_package_goes(dist, tmp_path):
    library = tmp_path / BACKEND
    library.parent.mkdir(parents=True)
    library.write_text("of NVIDIA")
    for folder in ("info", "updates", "triggers"):
        (tmp_path / "var/lib/dpkg" / folder).mkdir(parents=True)
    for file in ("status", "available", "diversions"):
        (tmp_path / "var/lib/dpkg" / file).write_text("")
    dpkg = ("dpkg", f"--root={tmp_path}", "--force-script-chrootless", "--force-depends", f"--log={tmp_path}/dpkg.log")
    call(*dpkg, "--install", only(dist, f"{PLUGIN}_*.deb"))
    assert library.read_bytes()[:4] == b"\x7fELF"
    assert library.with_name(f"{library.name}.replaced").read_text() == "of NVIDIA"
    call(*dpkg, "--install", only(dist, f"{PLUGIN}_*.deb"))
    call(*dpkg, "--purge", PLUGIN)
    assert [path.relative_to(tmp_path).as_posix() for path in (tmp_path / "opt").rglob("*") if path.is_file()] == [BACKEND]
    assert library.read_text() == "of NVIDIA"


def test_packages_for_gpus_name_the_library_of_nvidia(stage, tmp_path):
    """Of a program that loads a stand-in of cuBLASLt and says its version."""
    version = run("--version").stdout.split()[1]
    (tmp_path / "main.c").write_text(
        f'#include <stdio.h>\nint cublas(void);\nint main(void) {{ return puts("inflight {version}") < 0 || cublas(); }}\n'
    )
    (tmp_path / "cublas.c").write_text("int cublas(void) { return 0; }\n")
    library = tmp_path / "libcublasLt.so.13"
    call("cc", "-shared", "-fPIC", "-Wl,-soname,libcublasLt.so.13", tmp_path / "cublas.c", "-o", library)
    copy = shutil.copytree(stage, tmp_path / "stage", symlinks=True)
    output = tmp_path / "dist"
    command = (sys.executable, ROOT / "scripts/packages.py", copy, "--cuda", "--output", output, "--level", "0")
    refused = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, check=False, env=EPOCH)
    assert "loads no libcublasLt" in refused.stderr
    assert refused.returncode == 1
    assert not output.exists()
    call("cc", tmp_path / "main.c", library, f"-Wl,-rpath,{tmp_path}", "-o", copy / "bin/inflight")
    call(*command, env=EPOCH)
    deb = only(output, "inflight-cuda_*.deb")
    assert sorted(path.name for path in output.iterdir()) == sorted(
        ["SHA256SUMS", deb.name, "inflight-cuda.spdx.json", only(output, "inflight-cuda-*.tar.gz").name]
    )
    assert re.search(r"libc6 .*, libcublas-13-0 \| libcublas-13-1 ", field(output, "inflight-cuda", "Depends"))
    assert field(output, "inflight-cuda", "Conflicts") == "inflight"
    listed = call("dpkg-deb", "--contents", deb)
    assert " ./usr/share/doc/inflight-cuda/copyright\n" in listed
    assert " ./usr/bin/inflight\n" in listed
    assert " ./usr/share/doc/inflight/" not in listed
