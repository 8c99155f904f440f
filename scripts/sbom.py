#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a bill of materials of the server's program as SPDX 2.3 JSON, or of a library of ours.

usage: scripts/sbom.py BUILD_DIR [--target bin/inflight] [--name inflight] [--program FILE] [--output FILE]

BUILD_DIR was built by ninja on Debian or Ubuntu. The program or library, BUILD_DIR/TARGET unless it was installed, is
named with version, licence and SHA-256; and with it, by what they are to it:

  DYNAMIC_LINK         packages whose shared libraries it loads (ldd)
  STATIC_LINK          packages whose archives are in it (the link command); of those that scripts/static_deps.sh
                       built, the source packages
  BUILD_DEPENDENCY_OF  packages whose headers its sources include: header-only libraries are in it too

A library that no package of the system has, as those of CUDA, is listed by its file's name and SHA-256. Packages of a
program for another machine are those that scripts/aarch64.sh unpacked, and the cross compiler's. The time is
SOURCE_DATE_EPOCH where that is set.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import urllib.parse
import uuid

from machines import machine_of

NO_ASSERTION = "NOASSERTION"
LICENCE = "Apache-2.0"
NAMESPACE = uuid.UUID("6f1c2a52-7a0e-5d0b-9d6e-3a1f0c5b7e11")  # of the documents' names; drawn once
FIELDS = ["binary:Package", "Version", "Architecture", "source:Package", "source:Version", "Homepage"]


def output(*command, check=True):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, check=check).stdout


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def shared_libraries(program, machine):
    """Files that the loader takes for it; those for another machine as it would there."""
    if machine.root is None:
        return {pathlib.Path(path) for path in re.findall(r"(?:^|=>)\s*(/\S+) \(0x", output("ldd", program), re.MULTILINE)}
    found, waiting = set(), [program]
    while waiting:
        needed = re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "--dynamic", waiting.pop()))
        paths = [folder / name for name in needed for folder in machine.library_folders]
        waiting += {path for path in paths if path.exists()} - found
        found.update(waiting)
    return found


def cached(build, name):
    """A value of CMake."""
    (value,) = re.findall(rf"^{name}:\w+=(.+)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE)
    return value


def ninja(build, *command):
    return output(cached(build, "CMAKE_MAKE_PROGRAM"), "-C", build, "-t", *command)


def archives(build, target):
    """Archives of others in the command that links it; ours have paths in the build folder."""
    link = ninja(build, "commands", target).splitlines()[-1].split()
    runtime = [name for name in ("libstdc++", "libgcc") if f"-static-{name}" in link]
    compiler = next(word for word in link if word not in (":", "&&"))
    named = [output(compiler, f"-print-file-name={name}.a").strip() for name in runtime]
    return {pathlib.Path(os.path.normpath(word)) for word in link + named if word.startswith("/") and word.endswith(".a")}


def headers(build, target, machine):
    """Headers of the distribution that its sources include."""
    objects = set(ninja(build, "inputs", target).splitlines())
    found, wanted = set(), False
    systems = ("/usr/",) if machine.root is None else ("/usr/", f"{machine.root}/usr/")
    for line in ninja(build, "deps").splitlines():
        if not line.startswith(" "):
            wanted = line.split(":")[0] in objects
        elif wanted:
            path = os.path.normpath(build.absolute() / line.strip())  # ccache makes those below the checkout relative
            if path.startswith(systems):
                found.add(pathlib.Path(path))
    return found


def packages_of(files, machine):
    """{file: SPDX package of the distribution that has it}."""
    root = machine.root
    theirs = {file for file in files if root is not None and file.is_relative_to(root)}
    found = {}
    for some, query in ((files - theirs, ("dpkg-query",)), (theirs, ("dpkg-query", f"--admindir={root}/var/lib/dpkg"))):
        owned = owners(some, query)
        packages = debian_packages(set(owned.values()), query)
        found |= {file: packages[name.split(":")[0]] for file, name in owned.items()}
    return found


def owners(files, query):
    """{file: name of the package that has it}. dpkg knows a file of /usr/lib under /lib or under /usr/lib."""
    asked = {}
    for file in files:
        for path in {file, file.resolve()}:
            bare = str(path).removeprefix("/usr")
            asked |= {bare: file, "/usr" + bare: file}
    lines = output(*query, "--search", *sorted(asked), check=False).splitlines() if asked else []
    found = {}
    for line in lines:
        packages, _, path = line.partition(": ")
        if path in asked and not packages.startswith("diversion"):
            found[asked[path]] = packages.split(", ")[0]
    return found


def debian_packages(names, query):
    """SPDX packages of installed ones, by name."""
    system = platform.freedesktop_os_release()["ID"]
    form = "\t".join(f"${{{field}}}" for field in FIELDS) + "\n"
    found = {}
    for line in output(*query, "--show", f"--showformat={form}", *sorted(names)).splitlines() if names else []:
        name, version, architecture, source, source_version, homepage = line.split("\t")
        bare = name.split(":")[0]
        found[bare] = package(bare, version, system, architecture) | {
            "sourceInfo": f"built from source package {source} {source_version}", "homepage": homepage or NO_ASSERTION,
        }  # fmt: skip
    return found


def package(name, version, system, architecture):
    """One of the distribution's packages, with its package URL."""
    parts = [urllib.parse.quote(part, safe="") for part in (name, version)]
    locator = f"pkg:deb/{system}/{parts[0]}@{parts[1]}?arch={architecture}"
    reference = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator}
    return unknown(name) | {
        "versionInfo": version, "supplier": f"Organization: {system.capitalize()}", "externalRefs": [reference],
    }  # fmt: skip


def unknown(name):
    return {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name.replace("+", "-plus")), "name": name,
        "downloadLocation": NO_ASSERTION, "filesAnalyzed": False, "licenseConcluded": NO_ASSERTION,
        "licenseDeclared": NO_ASSERTION, "copyrightText": NO_ASSERTION,
    }  # fmt: skip


def sources_built_here(files):
    """{archive: source package} of what scripts/static_deps.sh built, which lists its archives beside them."""
    system = platform.freedesktop_os_release()["ID"]
    found = {}
    for file in sorted(files):
        listed = file.parents[1] / "archives.tsv"
        for line in listed.read_text().splitlines() if listed.exists() else []:
            name, source, version = line.split("\t")
            if name == file.name:
                found[file] = package(source, version, system, "source")
    return found


def linked(files, relationship, machine):
    """[(SPDX package, relationship)] of libraries."""
    built = sources_built_here(files)
    owned = packages_of(files - built.keys(), machine)
    found = {item["SPDXID"]: item for item in built.values()}
    found |= in_order(owned.values())
    for file in sorted(files - built.keys() - owned.keys()):
        item = unknown(file.name) | {"checksums": [{"algorithm": "SHA256", "checksumValue": sha256(file)}]}
        found[item["SPDXID"]] = item
    return [(item, relationship) for item in found.values()]


def in_order(packages):
    """{SPDXID: package}, each once."""
    return {item["SPDXID"]: item for item in sorted(packages, key=lambda item: item["name"])}


def document(build, program, target="bin/inflight", name="inflight"):
    digest, machine = sha256(program), machine_of(program.read_bytes())
    version = cached(build, "CMAKE_PROJECT_VERSION")
    ours = unknown(name) | {
        "versionInfo": version, "licenseConcluded": LICENCE, "licenseDeclared": LICENCE, "packageFileName": program.name,
        "supplier": "Organization: Inflight", "primaryPackagePurpose": "APPLICATION" if target == "bin/inflight" else "LIBRARY",
        "checksums": [{"algorithm": "SHA256", "checksumValue": digest}],
    }  # fmt: skip
    parts = linked(shared_libraries(program, machine), "DYNAMIC_LINK", machine)
    parts += linked(archives(build, target), "STATIC_LINK", machine)
    included = packages_of(headers(build, target, machine), machine)
    parts += [(item, "BUILD_DEPENDENCY_OF") for item in in_order(included.values()).values()]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", ours["SPDXID"])]
    for item, kind in parts:
        pair = (item["SPDXID"], ours["SPDXID"])
        relations.append((pair[0], kind, pair[1]) if kind == "BUILD_DEPENDENCY_OF" else (pair[1], kind, pair[0]))
    now = int(os.environ.get("SOURCE_DATE_EPOCH", datetime.datetime.now(datetime.UTC).timestamp()))
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{name}-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/{name}-{version}-{uuid.uuid5(NAMESPACE, digest)}",
        "creationInfo": {
            "created": datetime.datetime.fromtimestamp(now, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: scripts/sbom.py"],
        },
        "packages": [ours, *{item["SPDXID"]: item for item, _ in parts}.values()],
        "relationships": [
            {"spdxElementId": first, "relationshipType": kind, "relatedSpdxElement": second} for first, kind, second in relations
        ],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--target", default="bin/inflight", help="what ninja calls it")
    parser.add_argument("--name", default="inflight", help="of the package that it is in")
    parser.add_argument("--program", type=pathlib.Path, help="the file where it was installed")
    parser.add_argument("--output", type=pathlib.Path, help="instead of the standard output")
    args = parser.parse_args()
    text = json.dumps(document(args.build, args.program or args.build / args.target, args.target, args.name), indent=2) + "\n"
    if args.output:
        args.output.write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
