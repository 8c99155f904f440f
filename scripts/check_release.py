#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks a folder that scripts/release.sh has made; prints a line for each check and ends with 1 where one failed.

usage: scripts/check_release.py DIST [--same-as OTHER] [--glibc 2.28] [--program-mb 20]

  files       tarball, Debian package, wheel, bill of materials and SHA256SUMS, of one version, and nothing else
  sums        SHA256SUMS names each of them with its digest
  program     the same bytes in all three packages
  materials   the bill is the one in the packages, names the program's digest, and has what SPDX 2.3 requires of it
  libraries   the program loads the C library alone
  glibc       no function of a C library newer than the wheel's name says, or than --glibc; those that are newer are
              listed
  size        the program has at most --program-mb megabytes (10^6 bytes)
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

SUMS = "SHA256SUMS"
BILL = "inflight.spdx.json"
SIGNATURES = (f"{SUMS}.asc", f"{SUMS}.minisig")
PACKAGES = {"tarball": r"inflight-(\d+\.\d+\.\d+)-linux-\w+\.tar\.gz", "deb": r"inflight_(\d+\.\d+\.\d+)_\w+\.deb",
            "wheel": r"inflight-(\d+\.\d+\.\d+)-py3-none-\w+\.whl"}  # fmt: skip
REQUIRED_OF_BILL = ("spdxVersion", "dataLicense", "SPDXID", "name", "documentNamespace", "creationInfo", "packages")
LOADED = re.compile(r"(libc|libm|libpthread|libdl|librt|ld-linux.*)\.so\b.*")


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def output(*command):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, check=True).stdout


def number(version):
    return tuple(int(part) for part in version.split("."))


@dataclasses.dataclass
class Release:
    folder: pathlib.Path
    packages: dict[str, pathlib.Path]  # by the names of PACKAGES; one that is not there is missing here
    programs: dict[str, bytes]  # of each
    bills: dict[str, bytes]


def read(folder, work):
    """What is there; `work` is an empty folder."""
    packages = {}
    for kind, pattern in PACKAGES.items():
        for path in sorted(folder.iterdir()):
            if re.fullmatch(pattern, path.name):
                packages[kind] = path
    found = {kind: {} for kind in packages}
    if "tarball" in packages:
        with tarfile.open(packages["tarball"]) as archive:
            for member in archive.getmembers():
                if member.isfile() and wanted(member.name):
                    found["tarball"][wanted(member.name)] = archive.extractfile(member).read()
    if "deb" in packages:
        output("dpkg-deb", "--extract", packages["deb"], work)
        for path in work.rglob("*"):
            if path.is_file() and wanted(path.as_posix()):
                found["deb"][wanted(path.as_posix())] = path.read_bytes()
    if "wheel" in packages:
        with zipfile.ZipFile(packages["wheel"]) as archive:
            for name in archive.namelist():
                if wanted(name):
                    found["wheel"][wanted(name)] = archive.read(name)
    programs = {kind: files["program"] for kind, files in found.items() if "program" in files}
    return Release(folder, packages, programs, {kind: files["bill"] for kind, files in found.items() if "bill" in files})


def wanted(name):
    if name.endswith(("/bin/inflight", "/scripts/inflight")):
        return "program"
    return "bill" if name.endswith(f"/{BILL}") else None


# ---- The checks: each yields what is wrong ----


def check_files(release):
    for kind, pattern in PACKAGES.items():
        number_of = sum(bool(re.fullmatch(pattern, path.name)) for path in release.folder.iterdir())
        if number_of != 1:
            yield f"{number_of} files of the kind {kind}, one is needed"
    versions = {re.fullmatch(PACKAGES[kind], path.name).group(1) for kind, path in release.packages.items()}
    if len(versions) > 1:
        yield f"they are of several versions: {', '.join(sorted(versions))}"
    known = {BILL, SUMS, *SIGNATURES, *(path.name for path in release.packages.values())}
    names = {path.name for path in release.folder.iterdir()}
    yield from (f"{name} does not belong to a release" for name in sorted(names - known))
    yield from (f"{name} is missing" for name in (BILL, SUMS) if name not in names)


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
    yield from (f"there is none in the {kind}" for kind in release.packages if kind not in release.programs)
    digests = {kind: sha256(program) for kind, program in release.programs.items()}
    if len(set(digests.values())) > 1:
        yield "they differ: " + ", ".join(f"{kind} {digest[:12]}" for kind, digest in digests.items())


def check_materials(release):
    path = release.folder / BILL
    if not path.exists():
        yield f"{BILL} is missing"
        return
    content = path.read_bytes()
    yield from (f"there is none in the {kind}" for kind in release.packages if kind not in release.bills)
    yield from (f"the {kind} has another one" for kind, bill in release.bills.items() if bill != content)
    try:
        document = json.loads(content)
    except ValueError as error:
        yield f"is no JSON: {error}"
        return
    yield from (f"lacks {name}" for name in REQUIRED_OF_BILL if not document.get(name))
    ours = [package for package in document.get("packages", ()) if package.get("name") == "inflight"]
    digests = {sum_["checksumValue"] for package in ours for sum_ in package.get("checksums", ())}
    for kind, program in release.programs.items():
        if sha256(program) not in digests:
            yield f"does not name the program in the {kind} by its SHA-256"


def check_libraries(program):
    for name in re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "--dynamic", program)):
        if not LOADED.fullmatch(name):
            yield f"it loads {name}, which a bare system may not have"


def newer_symbols(program, limit):
    """[(version, symbol)] that the program takes from a C library newer than `limit`, the newest first."""
    found = re.findall(r"\*UND\*\s+\S+\s+\(?GLIBC_([\d.]+)\)?\s+(\S+)", output("objdump", "-T", program))
    newer = [(version, name) for version, name in found if number(version) > limit]
    return sorted(newer, key=lambda item: (number(item[0]), item[1]), reverse=True)


def check_glibc(release, program, asked):
    if asked is None:
        promised = re.search(r"manylinux_(\d+)_(\d+)_", release.packages["wheel"].name if "wheel" in release.packages else "")
        if not promised:
            yield "the wheel's name does not say which one is needed (manylinux_2_36): it was not made of a release's program"
            return
        asked = f"{promised.group(1)}.{promised.group(2)}"
    newer = newer_symbols(program, number(asked))
    yield from (f"{name} is of glibc {version}, {asked} is the newest allowed" for version, name in newer)


def check_size(program, most_mb):
    size = program.stat().st_size
    if size > most_mb * 1e6:
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
    with tempfile.TemporaryDirectory() as work:
        release = read(args.dist, pathlib.Path(work))
        checks = [("files", check_files(release)), ("sums", check_sums(release)), ("program", check_program(release)),
                  ("materials", check_materials(release))]  # fmt: skip
        if release.programs:
            program = pathlib.Path(work) / "program"
            program.write_bytes(next(iter(release.programs.values())))
            checks += [("libraries", check_libraries(program)), ("glibc", check_glibc(release, program, args.glibc)),
                       ("size", check_size(program, args.program_mb))]  # fmt: skip
        checks.append(("signatures", check_signatures(release)))
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
