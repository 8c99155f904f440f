# SPDX-License-Identifier: Apache-2.0
"""scripts/check_release.py over a small release that is made here, whole and with one fault at a time."""

import hashlib
import io
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUMS, BILL = "SHA256SUMS", "inflight.spdx.json"
MACHINE = platform.machine()
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[MACHINE]
TARBALL, DEB = f"inflight-1.2.3-linux-{MACHINE}.tar.gz", f"inflight_1.2.3_{ARCHITECTURE}.deb"
WHEEL = f"inflight-1.2.3-py3-none-manylinux_2_99_{MACHINE}.whl"
LIBRARIES = {"libinflight-dev": "usr/lib/x86_64-linux-gnu/libinflight.so.1.2.3",
             "inflight-triton-backend": "opt/tritonserver/backends/tensorrtllm/libtriton_tensorrtllm.so"}  # fmt: skip
pytestmark = pytest.mark.skipif(
    not (shutil.which("dpkg-deb") and shutil.which("objdump")), reason="this machine has no dpkg-deb or objdump"
)


def call(*command, **kwargs):
    subprocess.run([*map(str, command)], check=True, capture_output=True, timeout=60, **kwargs)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Bytes of a program, by what it is linked with."""
    work = tmp_path_factory.mktemp("program")
    (work / "main.c").write_text("#include <stdio.h>\nint main(void) { return puts(__VERSION__) < 0; }\n")

    def get(*options):
        call("cc", work / "main.c", "-o", work / "program", *options)
        return (work / "program").read_bytes()

    return get


def bill_of(content, name="inflight"):
    digest = hashlib.sha256(content).hexdigest()
    package = {"name": name, "checksums": [{"algorithm": "SHA256", "checksumValue": digest}]}
    document = dict.fromkeys(("spdxVersion", "dataLicense", "SPDXID", "name", "documentNamespace", "creationInfo"), "x")
    return json.dumps({**document, "packages": [package]}).encode()


def sum_up(dist):
    names = sorted(path.name for path in dist.iterdir() if path.name != SUMS)
    lines = [f"{hashlib.sha256((dist / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (dist / SUMS).write_text("".join(lines))


def write_tarball(path, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def write_deb(dist, package, files):
    root = dist.parent / f"{dist.name}.{package}"
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    (root / "DEBIAN").mkdir()
    control = f"Package: {package}\nVersion: 1.2.3\nArchitecture: {ARCHITECTURE}\nMaintainer: x <x@example.org>\nDescription: x\n"
    (root / "DEBIAN/control").write_text(control)
    path = dist / f"{package}_1.2.3_{ARCHITECTURE}.deb"
    call("dpkg-deb", "--build", "--root-owner-group", root, path, env={**os.environ, "SOURCE_DATE_EPOCH": "1"})


def write_library(dist, package, content):
    bill = bill_of(content, package)
    write_deb(dist, package, {LIBRARIES[package]: content, f"usr/share/doc/{package}/{package}.spdx.json": bill})
    (dist / f"{package}.spdx.json").write_bytes(bill)


def write_release(dist, content, bill=None, in_wheel=None, wheel=WHEEL, libraries=None):
    dist.mkdir()
    bill = bill or bill_of(content)
    write_tarball(dist / TARBALL, {"bin/inflight": content, f"share/doc/inflight/{BILL}": bill})
    write_deb(dist, "inflight", {"usr/bin/inflight": content, f"usr/share/doc/inflight/{BILL}": bill})
    for package in LIBRARIES:
        write_library(dist, package, (libraries or {}).get(package, content))
    with zipfile.ZipFile(dist / wheel, "w") as archive:
        archive.writestr("inflight-1.2.3.data/scripts/inflight", in_wheel or content)
        archive.writestr(f"inflight-1.2.3.dist-info/{BILL}", bill)
    (dist / BILL).write_bytes(bill)
    sum_up(dist)
    return dist


def check(dist, *options):
    command = [sys.executable, ROOT / "scripts/check_release.py", dist, *options]
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60, check=False)


def failed(done):
    """{name of a check: what is wrong}."""
    found, name = {}, None
    for line in done.stdout.splitlines():
        if not line.startswith("  "):
            name = line[:12].strip()
            if line.endswith("FAILED"):
                found[name] = []
        else:
            found[name].append(line.strip())
    assert done.returncode == (1 if found else 0), done.stderr
    return found


@pytest.fixture
def dist(tmp_path, program):
    return write_release(tmp_path / "dist", program())


def test_a_whole_release_passes_and_equals_its_copy(dist, tmp_path):
    copy = shutil.copytree(dist, tmp_path / "copy")
    done = check(dist, "--same-as", copy)
    assert failed(done) == {}
    assert [line[:12].strip() for line in done.stdout.splitlines()] == [
        "files", "sums", "program", "materials", "libraries", "glibc", "size", "signatures", "same bytes"
    ]  # fmt: skip
    with (copy / WHEEL).open("ab") as file:
        file.write(b"x")
    (copy / BILL).unlink()
    assert failed(check(dist, "--same-as", copy)) == {
        "same bytes": [f"{WHEEL} has other bytes", f"{BILL} is in one folder alone"]
    }


def test_sums(dist):
    (dist / SUMS).write_text((dist / SUMS).read_text().replace(f"  {DEB}", "  other.deb"))
    with (dist / TARBALL).open("ab") as file:
        file.write(b"\0")
    assert failed(check(dist))["sums"] == [
        f"{DEB} is not in {SUMS}",
        f"{TARBALL} has other bytes than {SUMS} says",
        f"other.deb is in {SUMS}, and not in the folder",
    ]


def test_files_that_are_missing_strange_or_of_another_version(dist):
    (dist / DEB).rename(dist / f"inflight_1.2.4_{ARCHITECTURE}.deb")
    (dist / "notes.txt").write_text("")
    (dist / WHEEL).unlink()
    faults = failed(check(dist))["files"]
    assert "inflight: 0 files of the kind wheel, one is needed" in faults
    assert "they are of several versions: 1.2.3, 1.2.4" in faults
    assert "notes.txt does not belong to a release" in faults


def test_another_program_in_the_wheel(tmp_path, program):
    found = failed(check(write_release(tmp_path / "dist", program(), in_wheel=program("-O2", "-DX", "-g"))))
    assert found["program"][0].startswith("inflight: they differ: tarball ")
    assert found["materials"] == [f"{BILL} does not name the program in the wheel by its SHA-256"]


def test_a_program_for_another_machine_than_the_name_says(tmp_path, program):
    content = program()
    other = {"x86_64": "aarch64", "aarch64": "x86_64"}[MACHINE]
    number = {"x86_64": 62, "aarch64": 183}[other].to_bytes(2, "little")  # e_machine of the ELF header
    found = failed(check(write_release(tmp_path / "dist", content, libraries={
        "libinflight-dev": content[:18] + number + content[20:], "inflight-triton-backend": content[4:]})))  # fmt: skip
    assert found["program"] == [
        f"libinflight-dev_1.2.3_{ARCHITECTURE}.deb has a program for {other}",
        f"inflight-triton-backend_1.2.3_{ARCHITECTURE}.deb has no program for x86_64 or aarch64",
    ]


def test_a_bill_that_is_of_another_program_or_is_none(tmp_path, program):
    other = write_release(tmp_path / "other", program(), bill=bill_of(b"another"))
    assert len(failed(check(other))["materials"]) == 3
    (other / BILL).write_text("{}")
    assert f"{BILL} lacks spdxVersion" in failed(check(other))["materials"]


def test_functions_of_a_newer_c_library_are_listed(tmp_path, dist, program):
    faults = failed(check(dist, "--glibc", "2.1"))["glibc"]
    assert [fault for fault in faults if fault.startswith("inflight: __libc_start_main is of glibc 2.")]
    assert all(fault.endswith(", 2.1 is the newest allowed") for fault in faults)
    promised = write_release(tmp_path / "old", program(), wheel=WHEEL.replace("2_99", "2_1"))
    assert failed(check(promised))["glibc"] == faults, "the wheel's name is the promise"
    assert failed(check(promised, "--glibc", "2.99")) == {}
    unnamed = write_release(tmp_path / "unnamed", program(), wheel=WHEEL.replace("manylinux_2_99", "linux"))
    assert failed(check(unnamed))["glibc"][0].startswith("the wheel's name does not say")


def test_other_libraries_and_size(tmp_path, program):
    linked = write_release(tmp_path / "dist", program("-Wl,--no-as-needed", "-lstdc++"))
    loaded = failed(check(linked))["libraries"]
    assert loaded[0].startswith("inflight: it loads libstdc++.so.6, ")
    assert not [fault for fault in loaded if fault.startswith("libinflight-dev: ")], "programs with it load the C++ library too"
    assert failed(check(linked, "--program-mb", "0.001"))["size"][0].endswith(
        "at most 0.001 are allowed (scripts/program_size.py says what takes them)"
    )


def test_a_library_that_is_missing_or_has_another_name(tmp_path, dist):
    library = f"libinflight-dev_1.2.3_{ARCHITECTURE}.deb"
    (dist / library).unlink()
    sum_up(dist)
    assert failed(check(dist)) == {"files": ["libinflight-dev: 0 files of the kind deb, one is needed"]}
    nameless = tmp_path / "nameless"
    nameless.mkdir()
    write_deb(nameless, "libinflight-dev", {"usr/lib/libinflight.so": b"not the file but its link"})
    shutil.copy(nameless / library, dist)
    sum_up(dist)
    assert failed(check(dist)) == {
        "program": ["libinflight-dev: there is none in the deb"],
        "materials": ["libinflight-dev.spdx.json is not in the deb"],
    }


def test_the_package_for_gpus_may_be_missing_but_not_a_part_of_it(dist, program):
    content = program("-O1")
    bill = bill_of(content)
    write_deb(dist, "inflight-cuda", {"usr/bin/inflight": content, "usr/share/doc/inflight-cuda/inflight.spdx.json": bill})
    sum_up(dist)
    assert failed(check(dist)) == {
        "files": ["inflight-cuda: 0 files of the kind tarball, one is needed", "inflight-cuda.spdx.json is missing"],
        "materials": ["inflight-cuda.spdx.json is missing"],
    }
    tarball = dist / f"inflight-cuda-1.2.3-linux-{MACHINE}.tar.gz"
    write_tarball(tarball, {"bin/inflight": content, f"share/doc/inflight/{BILL}": bill})
    (dist / "inflight-cuda.spdx.json").write_bytes(bill)
    sum_up(dist)
    assert failed(check(dist)) == {}


@pytest.mark.skipif(not shutil.which("gpg"), reason="this machine has no gpg, which checks signatures")
def test_a_signature_of_other_sums(dist, tmp_path, monkeypatch):
    home = tmp_path / "g"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    key = ("--quick-generate-key", "Release <release@example.org>", "ed25519", "sign", "never")
    call("gpg", "--batch", "--passphrase", "", *key)
    call("gpg", "--batch", "--yes", "--armor", "--detach-sign", dist / SUMS)
    assert failed(check(dist)) == {}
    lines = (dist / SUMS).read_text().splitlines(keepends=True)
    (dist / SUMS).write_text("".join(reversed(lines)))
    assert failed(check(dist))["signatures"][0].startswith("gpg: gpg: BAD signature from")
    call("gpgconf", "--kill", "all")


def test_a_signature_that_nobody_can_check_is_a_fault(dist):
    (dist / f"{SUMS}.minisig").write_text("untrusted comment: x\n")
    assert "INFLIGHT_MINISIGN_PUBLIC_KEY" in failed(check(dist))["signatures"][0]
