# SPDX-License-Identifier: Apache-2.0
"""scripts/sbom.py: what SPDX 2.3 requires of a document, and that every library which the program needs is in it."""

import datetime
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from command import INFLIGHT, ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import machines
import sbom

BUILD = INFLIGHT.parent.parent
ID = re.compile(r"SPDXRef-[A-Za-z0-9.-]+")
SHA256 = re.compile(r"[0-9a-f]{64}")
MACHINE = machines.machine_of(INFLIGHT.read_bytes())
pytestmark = pytest.mark.skipif(
    not shutil.which("dpkg-query"), reason="this machine has no dpkg-query, which is asked for packages"
)


def call(*command, **kwargs):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, check=True, **kwargs).stdout


@pytest.fixture(scope="module")
def document():
    return json.loads(call(sys.executable, ROOT / "scripts/sbom.py", BUILD))


def related(document, kind):
    """Packages that stand in this relationship to the program."""
    packages = {package["SPDXID"]: package for package in document["packages"]}
    ends = ("spdxElementId", "relatedSpdxElement")
    ids = [relation[end] for relation in document["relationships"] if relation["relationshipType"] == kind for end in ends]
    return {packages[name]["name"]: packages[name] for name in ids if name in packages and name != "SPDXRef-inflight"}


def test_the_document_has_what_spdx_2_3_requires(document):
    """Clauses 6, 7, 8 and 11 of the specification, with the cardinality "mandatory, one"."""
    assert document["spdxVersion"] == "SPDX-2.3"
    assert document["dataLicense"] == "CC0-1.0"
    assert document["SPDXID"] == "SPDXRef-DOCUMENT"
    assert document["name"]
    assert re.fullmatch(r"https?://[^\s#]+", document["documentNamespace"])
    datetime.datetime.strptime(document["creationInfo"]["created"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.UTC)
    assert all(re.match(r"(Person|Organization|Tool): .", creator) for creator in document["creationInfo"]["creators"])
    ids = [package["SPDXID"] for package in document["packages"]]
    assert len(ids) == len(set(ids))
    for package in document["packages"]:
        assert ID.fullmatch(package["SPDXID"])
        assert package["name"]
        assert package["downloadLocation"]
        assert package["filesAnalyzed"] is False
        assert re.match(r"(NOASSERTION$|(Person|Organization): .)", package.get("supplier", "NOASSERTION"))
        for checksum in package.get("checksums", []):
            assert checksum["algorithm"] == "SHA256"
            assert SHA256.fullmatch(checksum["checksumValue"])
        for reference in package.get("externalRefs", []):
            assert reference["referenceCategory"] == "PACKAGE-MANAGER"
            assert re.fullmatch(r"pkg:deb/[a-z]+/[a-z0-9.%B-]+@[^\s+:/]+\?arch=\w+", reference["referenceLocator"])
    for relation in document["relationships"]:
        assert {relation["spdxElementId"], relation["relatedSpdxElement"]} <= {*ids, "SPDXRef-DOCUMENT"}


def test_it_describes_this_program(document):
    (described,) = [r for r in document["relationships"] if r["relationshipType"] == "DESCRIBES"]
    (ours,) = [package for package in document["packages"] if package["SPDXID"] == described["relatedSpdxElement"]]
    assert ours["name"] == "inflight"
    assert f"inflight {ours['versionInfo']}" == call(INFLIGHT, "--version").strip()
    assert ours["checksums"][0]["checksumValue"] == hashlib.sha256(INFLIGHT.read_bytes()).hexdigest()
    assert ours["licenseDeclared"] == "Apache-2.0"
    assert "Apache License\n" in (ROOT / "LICENSE").read_text()


def test_every_library_that_the_program_names_is_a_file_of_a_listed_package(document):
    packages = related(document, "DYNAMIC_LINK")
    files = {os.path.basename(file) for name in packages for file in call("dpkg-query", "--listfiles", name).splitlines()}
    needed = set(re.findall(r"\(NEEDED\) +Shared library: \[(.+)\]", call("readelf", "--dynamic", INFLIGHT)))
    assert {"libc.so.6"} <= needed
    assert needed <= files | set(packages)
    for name, package in packages.items():
        if "versionInfo" in package:
            assert package["versionInfo"] == call("dpkg-query", "--show", "--showformat=${Version}", name)
            assert re.fullmatch(r"built from source package \S+ \S+", package["sourceInfo"])
    assert packages["libc6"]["sourceInfo"].split()[-2] == "glibc"
    if "libstdc++.so.6" not in needed:  # it is in the program
        return
    (reference,) = packages["libstdc++6"]["externalRefs"]
    assert reference["referenceLocator"].split("@")[0].endswith("/libstdc%2B%2B6")  # by the specification of package URLs


def test_header_only_libraries_are_listed(document):
    packages = related(document, "BUILD_DEPENDENCY_OF")
    assert {"nlohmann-json3-dev", "libcli11-dev"} <= set(packages)
    assert any(re.fullmatch(r"libboost[\d.]*-dev", name) for name in packages)


def test_archives_in_the_program_are_listed(tmp_path, document):
    """By a link command as INFLIGHT_STATIC makes it: one archive of a package, one that scripts/static_deps.sh built."""
    (tmp_path / "deps/lib").mkdir(parents=True)
    (tmp_path / "deps/archives.tsv").write_text("libthing.a\tthing\t1:2.0+ds-1\n")
    (tmp_path / "deps/lib/libthing.a").touch()
    (zlib,) = pathlib.Path("/usr/lib").glob("*-linux-gnu/libz.a")
    words = f"c++ src/ours.a {tmp_path}/deps/lib/libthing.a -static-libstdc++ -static-libgcc {zlib} -o bin/inflight"
    ninja = tmp_path / "ninja"
    ninja.write_text(f'#!/bin/sh\n[ "$4" != commands ] || echo "{words}"\n')
    ninja.chmod(0o755)
    (tmp_path / "CMakeCache.txt").write_text(f"CMAKE_MAKE_PROGRAM:FILEPATH={ninja}\nCMAKE_PROJECT_VERSION:STATIC=0.1.0\n")
    packages = related(sbom.document(tmp_path, INFLIGHT), "STATIC_LINK")
    assert packages["zlib1g-dev"]["versionInfo"] == call("dpkg-query", "--show", "--showformat=${Version}", "zlib1g-dev")
    assert packages["thing"]["externalRefs"][0]["referenceLocator"].endswith("/thing@1%3A2.0%2Bds-1?arch=source")
    assert any(re.fullmatch(r"libstdc\+\+-\d+-dev", name) for name in packages)
    if "INFLIGHT_STATIC:BOOL=ON" not in (BUILD / "CMakeCache.txt").read_text():
        assert related(document, "STATIC_LINK") == {}


def test_a_library_of_no_package_is_listed_by_its_bytes(tmp_path):
    path = tmp_path / "libcublasLt.so.12"
    path.write_bytes(b"of the vendor")
    ((package, kind),) = sbom.linked({path}, "DYNAMIC_LINK", MACHINE)
    assert (package["name"], kind) == ("libcublasLt.so.12", "DYNAMIC_LINK")
    assert package["checksums"][0]["checksumValue"] == hashlib.sha256(b"of the vendor").hexdigest()


@pytest.fixture
def other(tmp_path, monkeypatch):
    """Another machine than this one, with a C library and headers in a folder as scripts/aarch64.sh unpacks them."""
    monkeypatch.setattr(machines, "ROOT", tmp_path)
    (machine,) = (machine for machine in machines.MACHINES.values() if machine.root is not None)
    notes = machine.root / "var/lib/dpkg"
    (notes / "info").mkdir(parents=True)
    (notes / "arch").write_text(f"{machine.debian}\n")
    (notes / "info/format").write_text("1\n")
    files = {"libc6": machine.library_folders[0] / "libc.so.6", "libthing-dev": machine.root / "usr/include/thing"}
    status = ""
    for name, file in files.items():
        file.parent.mkdir(parents=True)
        file.write_bytes(b"")
        (notes / f"info/{name}:{machine.debian}.list").write_text(f"{file}\n")
        status += (
            f"Package: {name}\nStatus: install ok installed\nMaintainer: x\nArchitecture: {machine.debian}\nMulti-Arch: same\n"
            f"Source: {name}-source (2-1)\nVersion: 2-1+b1\nDescription: x\n\n"
        )
    (notes / "status").write_text(status)
    call("cc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-o", files["libc6"])
    return machine, files


def test_packages_for_another_machine_are_those_that_were_unpacked_for_it(other, tmp_path):
    machine, files = other
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    call("cc", "-nostartfiles", "-Wl,--no-as-needed", tmp_path / "main.c", "-o", tmp_path / "program")
    assert sbom.shared_libraries(tmp_path / "program", machine) == {files["libc6"]}
    ours = pathlib.Path("/usr/include/stdlib.h")
    found = sbom.packages_of({*files.values(), ours, tmp_path / "main.c"}, machine)
    assert found.keys() == {*files.values(), ours}
    assert found[ours]["name"] == "libc6-dev"
    library = found[files["libc6"]]
    assert library["externalRefs"][0]["referenceLocator"].endswith(f"/libc6@2-1%2Bb1?arch={machine.debian}")
    assert library["sourceInfo"] == "built from source package libc6-source 2-1"


def test_headers_for_another_machine_are_found_below_its_folder(other, tmp_path):
    """As ninja tells them: by places that ccache made relative to the build folder, or whole."""
    machine, files = other
    build = tmp_path / "build" / machine.name
    build.mkdir()
    lines = ["main.o: #deps 3, deps mtime 1 (VALID)", f"    ../{machine.name}-root/usr/include/thing", f"    {tmp_path}/ours.h",
             "    /usr/include/stdlib.h", "", "other.o: #deps 1, deps mtime 1 (VALID)", "    /usr/include/stdio.h"]  # fmt: skip
    (build / "deps").write_text("\n".join(lines))
    (build / "inputs").write_text("main.o\n")
    ninja = tmp_path / "ninja"
    ninja.write_text('#!/bin/sh\ncat "$2/$4"\n')
    ninja.chmod(0o755)
    (build / "CMakeCache.txt").write_text(f"CMAKE_MAKE_PROGRAM:FILEPATH={ninja}\n")
    assert sbom.headers(build, "program", machine) == {files["libthing-dev"], pathlib.Path("/usr/include/stdlib.h")}


def test_what_is_listed_stands_in_one_order(tmp_path):
    (tmp_path / "lib").mkdir()
    names = [f"lib{letter}.a" for letter in "qwertyuiop"]
    (tmp_path / "archives.tsv").write_text("".join(f"{name}\t{name[3]}\t1-1\n" for name in names))
    for name in names:
        (tmp_path / "lib" / name).touch()
    found = [package["name"] for package, _ in sbom.linked({tmp_path / "lib" / name for name in names}, "STATIC_LINK", MACHINE)]
    assert found == sorted("qwertyuiop")


def test_the_same_program_at_the_same_time_gives_the_same_document():
    environment = dict(os.environ, SOURCE_DATE_EPOCH="1700000000")
    first, second = (call(sys.executable, ROOT / "scripts/sbom.py", BUILD, env=environment) for _ in range(2))
    assert first == second
    assert json.loads(first)["creationInfo"]["created"] == "2023-11-14T22:13:20Z"


def test_an_installed_program_comes_with_its_own(tmp_path):
    call("cmake", "--install", BUILD, "--prefix", tmp_path)
    (path,) = tmp_path.rglob("inflight.spdx.json")
    ours = next(p for p in json.loads(path.read_text())["packages"] if p["name"] == "inflight")
    assert path.parent.name == "inflight"
    assert ours["checksums"][0]["checksumValue"] == hashlib.sha256((tmp_path / "bin/inflight").read_bytes()).hexdigest()
