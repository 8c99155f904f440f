#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks a folder that scripts/release.sh has made; prints a line for each check and ends with 1 where one failed.

usage: scripts/check_release.py DIST [--same-as OTHER] [--glibc 2.28] [--program-mb 20]

  files       each package of PRODUCTS, its bill of materials and SHA256SUMS, of one version, and nothing else; those of
              inflight-cuda may be missing
  sums        SHA256SUMS names each of them with its digest
  program     a package has its program or library, for the machine of the file's name and with the same bytes in all
              packages of a product
  materials   a product's bill is the one in its packages, names the program's digest, and has what SPDX 2.3 requires
  libraries   each loads the C library alone; libinflight.so also the C++ library, the program with CUDA also cuBLASLt
  glibc       no function of a C library newer than the wheel's name says, or than --glibc; those that are newer are
              listed. libinflight.so, for programs of the system that it was built on, is not asked
  size        the program without CUDA has at most --program-mb megabytes (10^6 bytes)
  signatures  SHA256SUMS.asc by gpg, SHA256SUMS.minisig by minisign with INFLIGHT_MINISIGN_PUBLIC_KEY, where they are
              there
  same bytes  as in OTHER, file by file
"""

import argparse
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile

from machines import machine_of

SUMS = "SHA256SUMS"
SIGNATURES = (f"{SUMS}.asc", f"{SUMS}.minisig")
REQUIRED_OF_BILL = ("spdxVersion", "dataLicense", "SPDXID", "name", "documentNamespace", "creationInfo", "packages")
C_LIBRARY = r"(libc|libm|libpthread|libdl|librt|ld-linux.*)\.so\b.*"


@dataclasses.dataclass(frozen=True)
class Product:
    packages: dict[str, str]  # {kind: pattern of the file's name}
    program: str  # pattern of its path in them
    loads: str = C_LIBRARY  # patterns of the libraries that it may load
    is_optional: bool = False
    keeps_to_glibc: bool = True
    keeps_to_size: bool = False


PRODUCTS = {
    "inflight": Product(
        {"tarball": r"inflight-(\d+\.\d+\.\d+)-linux-\w+\.tar\.gz", "deb": r"inflight_(\d+\.\d+\.\d+)_\w+\.deb",
         "wheel": r"inflight-(\d+\.\d+\.\d+)-py3-none-\w+\.whl"},
        r".*/(bin|scripts)/inflight", keeps_to_size=True),
    "libinflight-dev": Product(
        {"deb": r"libinflight-dev_(\d+\.\d+\.\d+)_\w+\.deb"}, r".*/libinflight\.so\.\d+\.\d+\.\d+",
        rf"{C_LIBRARY}|(libstdc\+\+|libgcc_s)\.so\.\d+", keeps_to_glibc=False),
    "inflight-triton-backend": Product(
        {"deb": r"inflight-triton-backend_(\d+\.\d+\.\d+)_\w+\.deb"},
        r".*/opt/tritonserver/backends/tensorrtllm/libtriton_tensorrtllm\.so"),
    "inflight-cuda": Product(
        {"tarball": r"inflight-cuda-(\d+\.\d+\.\d+)-linux-\w+\.tar\.gz", "deb": r"inflight-cuda_(\d+\.\d+\.\d+)_\w+\.deb"},
        r".*/bin/inflight", rf"{C_LIBRARY}|libcublasLt\.so\.\d+", is_optional=True),
}  # fmt: skip


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def output(*command):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, check=True).stdout


def number(version):
    return tuple(int(part) for part in version.split("."))


@dataclasses.dataclass
class Found:
    """What there is of a product."""

    packages: dict[str, pathlib.Path]  # by the kinds of its Product; one that is not there is missing here
    programs: dict[str, bytes]  # of each
    bills: dict[str, bytes]


@dataclasses.dataclass
class Release:
    folder: pathlib.Path
    products: dict[str, Found]  # of PRODUCTS; without one that is optional and not there at all

    @property
    def bills(self):
        return {name: self.folder / f"{name}.spdx.json" for name in self.products}


def contents(path, work):
    """[(path below /, bytes)] of the files in a package; `work` is a folder."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            yield from ((f"/{name}", archive.read(name)) for name in archive.namelist())
    elif path.suffix == ".deb":
        root = work / path.name
        output("dpkg-deb", "--extract", path, root)
        files = (file for file in sorted(root.rglob("*")) if file.is_file() and not file.is_symlink())
        yield from ((f"/{file.relative_to(root)}", file.read_bytes()) for file in files)
    else:
        with tarfile.open(path) as archive:
            files = [member for member in archive.getmembers() if member.isfile()]
            yield from ((f"/{member.name}", archive.extractfile(member).read()) for member in files)


def read(folder, work):
    """What is there; `work` is an empty folder."""
    products = {}
    for name, product in PRODUCTS.items():
        found = Found({}, {}, {})
        for kind, pattern in product.packages.items():
            for path in sorted(path for path in folder.iterdir() if re.fullmatch(pattern, path.name)):
                found.packages[kind] = path
        for kind, path in found.packages.items():
            for inside, content in contents(path, work):
                if re.fullmatch(product.program, inside):
                    found.programs[kind] = content
                elif inside.endswith(".spdx.json"):
                    found.bills[kind] = content
        if found.packages or not product.is_optional:
            products[name] = found
    return Release(folder, products)


# ---- The checks: each yields what is wrong ----


def check_files(release):
    names = {path.name for path in release.folder.iterdir()}
    known, versions = {SUMS, *SIGNATURES, *(path.name for path in release.bills.values())}, set()
    for name, found in release.products.items():
        for kind, pattern in PRODUCTS[name].packages.items():
            number_of = sum(bool(re.fullmatch(pattern, path)) for path in names)
            if number_of != 1:
                yield f"{name}: {number_of} files of the kind {kind}, one is needed"
        for kind, path in found.packages.items():
            known.add(path.name)
            versions.add(re.fullmatch(PRODUCTS[name].packages[kind], path.name).group(1))
    if len(versions) > 1:
        yield f"they are of several versions: {', '.join(sorted(versions))}"
    yield from (f"{name} does not belong to a release" for name in sorted(names - known))
    needed = [*(path.name for path in release.bills.values()), SUMS]
    yield from (f"{name} is missing" for name in needed if name not in names)


def check_sums(release):
    path = release.folder / SUMS
    lines = path.read_text().splitlines() if path.exists() else []
    named = {}
    for line in lines:
        digest, _, name = line.partition("  ")
        if not re.fullmatch("[0-9a-f]{64}", digest) or not name or "/" in name:
            yield f"a line is no digest and name: {line[:120]}"
        elif name in named:
            yield f"{name} is named twice"
        named[name] = digest
    here = {path.name for path in release.folder.iterdir()} - {SUMS, *SIGNATURES}
    yield from (f"{name} is not in {SUMS}" for name in sorted(here - set(named)))
    for name, digest in sorted(named.items()):
        file = release.folder / name
        if not file.is_file():
            yield f"{name} is in {SUMS}, and not in the folder"
        elif sha256(file.read_bytes()) != digest:
            yield f"{name} has other bytes than {SUMS} says"


def check_program(release):
    for name, found in release.products.items():
        yield from (f"{name}: there is none in the {kind}" for kind in found.packages if kind not in found.programs)
        for kind, program in found.programs.items():
            yield from faults_of_machine(found.packages[kind].name, program)
        digests = {kind: sha256(program) for kind, program in found.programs.items()}
        if len(set(digests.values())) > 1:
            yield f"{name}: they differ: " + ", ".join(f"{kind} {digest[:12]}" for kind, digest in digests.items())


def faults_of_machine(name, program):
    try:
        machine = machine_of(program)
    except ValueError as error:
        yield f"{name} has {error}"
        return
    if not re.search(rf"[_-]({machine.name}|{machine.debian})\.", name):
        yield f"{name} has a program for {machine.name}"


def check_materials(release):
    for name, found in release.products.items():
        path = release.bills[name]
        yield from (f"{path.name} {fault}" for fault in faults_of_bill(path, found))


def faults_of_bill(path, found):
    if not path.exists():
        yield "is missing"
        return
    content = path.read_bytes()
    yield from (f"is not in the {kind}" for kind in found.packages if kind not in found.bills)
    yield from (f"is another one in the {kind}" for kind, bill in found.bills.items() if bill != content)
    try:
        document = json.loads(content)
    except ValueError as error:
        yield f"is no JSON: {error}"
        return
    yield from (f"lacks {name}" for name in REQUIRED_OF_BILL if not document.get(name))
    described = {sum_["checksumValue"] for package in document.get("packages", ()) for sum_ in package.get("checksums", ())}
    for kind, program in found.programs.items():
        if sha256(program) not in described:
            yield f"does not name the program in the {kind} by its SHA-256"


def needed_libraries(program):
    return re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "--dynamic", program))


def check_libraries(programs):
    for product, program in programs.items():
        for name in needed_libraries(program):
            if not re.fullmatch(PRODUCTS[product].loads, name):
                yield f"{product}: it loads {name}, which a bare system may not have"


def newer_symbols(program, limit):
    """[(version, symbol)] that the program takes from a C library newer than `limit`, the newest first."""
    found = re.findall(r"\sUND\s+(\S+)@GLIBC_([\d.]+)", output("readelf", "--dyn-syms", "--wide", program))
    newer = [(version, name) for name, version in found if number(version) > limit]
    return sorted(newer, key=lambda item: (number(item[0]), item[1]), reverse=True)


def check_glibc(release, programs, asked):
    if asked is None:
        wheel = release.products["inflight"].packages.get("wheel")
        promised = re.search(r"manylinux_(\d+)_(\d+)_", wheel.name if wheel else "")
        if not promised:
            yield "the wheel's name does not say which one is needed (manylinux_2_36): it was not made of a release's program"
            return
        asked = f"{promised.group(1)}.{promised.group(2)}"
    for product, program in programs.items():
        newer = newer_symbols(program, number(asked)) if PRODUCTS[product].keeps_to_glibc else ()
        yield from (f"{product}: {name} is of glibc {version}, {asked} is the newest allowed" for version, name in newer)


def check_size(programs, most_mb):
    for product, program in programs.items():
        size = program.stat().st_size
        if PRODUCTS[product].keeps_to_size and size > most_mb * 1e6:
            yield f"{size / 1e6:.1f} MB, at most {most_mb:g} are allowed (scripts/program_size.py says what takes them)"


def check_signatures(release):
    asc, minisig = (release.folder / name for name in SIGNATURES)
    sums = release.folder / SUMS
    commands = []
    if asc.exists():
        commands.append(("gpg", "--batch", "--verify", asc, sums))
    if minisig.exists():
        key = os.environ.get("INFLIGHT_MINISIGN_PUBLIC_KEY")
        if not key:
            yield f"{minisig.name} is there; INFLIGHT_MINISIGN_PUBLIC_KEY, a file, is needed to check it"
        else:
            commands.append(("minisign", "-V", "-q", "-p", key, "-x", minisig, "-m", sums))
    for command in commands:
        try:
            done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60, check=False)
        except FileNotFoundError:
            yield f"{command[0]} is not installed, which checks a signature that is there"
            continue
        if done.returncode != 0:
            yield f"{command[0]}: {(done.stderr or done.stdout).strip().splitlines()[-1]}"


def check_same(release, other):
    names = {path.name for folder in (release.folder, other) for path in folder.iterdir()} - set(SIGNATURES)
    for name in sorted(names):
        one, two = release.folder / name, other / name
        if not one.exists() or not two.exists():
            yield f"{name} is in one folder alone"
        elif one.read_bytes() != two.read_bytes():
            yield f"{name} has other bytes"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=pathlib.Path)
    parser.add_argument("--same-as", type=pathlib.Path, metavar="OTHER")
    parser.add_argument("--glibc", metavar="VERSION", help="the newest one that is allowed; default: that of the wheel's name")
    parser.add_argument("--program-mb", type=float, default=20, metavar="N")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        release = read(args.dist, work)
        programs = {}
        for name, found in release.products.items():
            if found.programs:
                programs[name] = work / f"{name}.program"
                programs[name].write_bytes(next(iter(found.programs.values())))
        checks = [("files", check_files(release)), ("sums", check_sums(release)), ("program", check_program(release)),
                  ("materials", check_materials(release)), ("libraries", check_libraries(programs)),
                  ("glibc", check_glibc(release, programs, args.glibc)), ("size", check_size(programs, args.program_mb)),
                  ("signatures", check_signatures(release))]  # fmt: skip
        if args.same_as:
            checks.append(("same bytes", check_same(release, args.same_as)))
        failed = 0
        for name, faults in checks:
            faults = list(faults)
            failed += bool(faults)
            print(f"{name:<12}{'ok' if not faults else 'FAILED'}")
            for fault in faults:
                print(f"  {fault}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
