#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes packages of what `cmake --install BUILD --component program --strip --prefix STAGE` has put into STAGE.

usage: scripts/packages.py STAGE --output DIR [--cuda] [--level N]

  inflight-VERSION-linux-MACHINE.tar.gz      to unpack anywhere: bin, share
  inflight_VERSION_ARCHITECTURE.deb          for Debian and Ubuntu, with a unit of systemd, /etc/inflight and a user
  inflight-VERSION-py3-none-PLATFORM.whl     for pip: the program, the demo model and the package of python/
  libinflight-dev_….deb                      where the component `library` is in STAGE: libinflight.so, headers
  inflight-triton-backend_….deb              where the component `plugin` is: the library for Triton's own server
  NAME.spdx.json                             the bill of materials of each of the three names
  SHA256SUMS                                 of all that is in DIR

With --cuda the program is one for NVIDIA GPUs: its tarball, Debian package and bill are named inflight-cuda, and no others
are made. Bills of the library and the plug-in are expected in STAGE as share/doc/NAME/NAME.spdx.json (scripts/sbom.py).
MACHINE and ARCHITECTURE are those that the program is for.

Equal stages give equal bytes: entries are sorted, owners are root's, times are SOURCE_DATE_EPOCH or else that of the
commit. THIRD-PARTY.txt in each has the licences of what is linked into it, by its bill of materials.
"""

import argparse
import base64
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import sys
import tarfile
import time
import zipfile

import debian_package
from debian_package import ROOT, SUMMARY, File, epoch, least_glibc, output
from machines import machine_of

import changelog

DOC = "share/doc/inflight"
PARTS = ("bin/inflight", DOC, "share/inflight", "share/man", "share/bash-completion", "share/zsh", "share/fish")
EARLIEST_OF_ZIP = 315532800  # 1980-01-01, before which its times cannot be
SUMS = "SHA256SUMS"


# ---- What is packaged ----


def files_below(stage, parts):
    """{path below the prefix: File}."""
    files = {}
    for part in parts:
        base = stage / part
        for path in [base] if base.is_file() else sorted(base.rglob("*")):
            name = path.relative_to(stage).as_posix()
            if path.is_symlink():
                files[name] = File(b"", link_to=os.readlink(path))
            elif path.is_file():
                files[name] = File(path.read_bytes(), os.access(path, os.X_OK))
    return files


def in_order(files, doc, name, machine):
    """`files` with the licences of what the bill `name` in `doc` lists."""
    bill = f"{doc}/{name}.spdx.json"
    files[f"{doc}/THIRD-PARTY.txt"] = File(third_party(json.loads(files[bill].content), machine).encode())
    return dict(sorted(files.items()))


def program_files(stage):
    files = {name: file for name, file in files_below(stage, PARTS).items() if not name.startswith(f"{DOC}/examples/")}
    for name in ("bin/inflight", f"{DOC}/LICENSE", f"{DOC}/inflight.spdx.json", "share/man/man1/inflight.1"):
        if name not in files:
            sys.exit(f"packages.py: {stage / name} is not there; {stage} is to be what cmake --install --component program wrote")
    files[f"{DOC}/CHANGELOG.md"] = File(changelog.collected().encode())
    return in_order(files, DOC, "inflight", machine_of(files["bin/inflight"].content))


def library_files(stage, machine):
    """None where the library was not installed."""
    if not list(stage.rglob("libinflight.so")):
        return None
    files = files_below(stage, ("include", "lib", f"{DOC}/examples", f"{DOC}/docs/embedding.md", "share/doc/libinflight-dev"))
    files = {name: file for name, file in files.items() if "/backends/" not in name}
    return in_order(files, "share/doc/libinflight-dev", "libinflight-dev", machine)


def plugin_files(stage, machine):
    """None where the plug-in was not installed."""
    found = list(stage.rglob(debian_package.PLUGIN))
    if not found:
        return None
    doc = "share/doc/inflight-triton-backend"
    files = files_below(stage, (found[0].relative_to(stage), doc))
    files[f"{doc}/triton-plugin.md"] = File((ROOT / "docs/triton-plugin.md").read_bytes())
    return in_order(files, doc, "inflight-triton-backend", machine)


def third_party(document, machine):
    """Copyright and licence of each package that is in the program, whole or by its headers."""
    inside = ("STATIC_LINK", "BUILD_DEPENDENCY_OF")
    ids = {relation[end] for relation in document["relationships"] if relation["relationshipType"] in inside
           for end in ("spdxElementId", "relatedSpdxElement")}  # fmt: skip
    ids -= {relation["relatedSpdxElement"] for relation in document["relationships"]
            if relation["relationshipType"] == "DESCRIBES"}  # fmt: skip
    text = "What it has in it of others, archives and headers, and under which terms.\n"
    for package in sorted(document["packages"], key=lambda item: item["name"]):
        if package["SPDXID"] not in ids:
            continue
        name, rule = package["name"], "=" * 100
        text += f"\n{rule}\n{name} {package.get('versionInfo', '')}".rstrip() + f"\n{rule}\n\n" + copyright_of(name, machine)
    return text


def copyright_of(name, machine):
    """Of a package for that machine, or else of this one, as the cross compiler's are."""
    paths = [pathlib.Path("/usr/share/doc", name, "copyright"), ROOT / "build/static-deps/copyright" / name]
    if machine.root is not None:
        paths[:1] = [machine.root / f"usr/share/doc/{name}/copyright", machine.root / "static-deps/copyright" / name, *paths[:1]]
    nvcc = shutil.which("nvcc")
    if name.startswith("libcud") and machine.root is not None:
        paths.append(machine.root / "usr/local/cuda/EULA.txt")
    elif name.startswith("libcud") and nvcc:  # an archive of the toolkit: NVIDIA's, or that of its packages for Python
        toolkit = pathlib.Path(nvcc).resolve().parent.parent
        paths += [toolkit / "EULA.txt", *sorted(toolkit.glob("dist-info/nvidia_cuda_runtime-*/licenses/License.txt"))]
    for path in paths:
        if path.is_file():
            return path.read_text(errors="replace")
    sys.exit(f"packages.py: {name} is linked into a file, and its copyright file is nowhere")


def needed(program):
    return re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "--dynamic", program))


def is_whole(program):
    """Whether it loads nothing but the C library and its loader, as releases do (INFLIGHT_STATIC)."""
    return all(re.match(r"(libc|libm|libpthread|libdl|librt|ld-linux.*)\.so", name) for name in needed(program))


def cublas_of(program):
    """The major version of the cuBLASLt that it loads."""
    versions = [match.group(1) for name in needed(program) if (match := re.fullmatch(r"libcublasLt\.so\.(\d+)", name))]
    if not versions:
        sys.exit(f"packages.py: {program} loads no libcublasLt; --cuda is for what a preset cuda-release… builds")
    return versions[0]


# ---- Tarball ----


def write_tarball(files, name, path, level):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        folders = sorted({str(parent) for file in files for parent in pathlib.PurePosixPath(name, file).parents} - {"."})
        for entry in sorted([*folders, *(f"{name}/{file}" for file in files)]):
            info = tarfile.TarInfo(entry)
            info.mtime = epoch()
            info.uname = info.gname = "root"
            if entry in folders:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(info)
                continue
            file = files[entry.removeprefix(f"{name}/")]
            info.mode, info.size = file.mode, len(file.content)
            archive.addfile(info, io.BytesIO(file.content))
    path.write_bytes(gzip.compress(raw.getvalue(), compresslevel=level, mtime=epoch()))


# ---- Python's wheel ----


def write_wheel(files, version, platform_tag, folder, level):
    """A wheel whose `data` pip puts below the environment's prefix, so that the program finds its share/ as elsewhere."""
    tag = f"py3-none-{platform_tag}"
    info, data = f"inflight-{version}.dist-info", f"inflight-{version}.data"
    tree = {f"inflight/{path.name}": File(path.read_bytes()) for path in (ROOT / "python/inflight").iterdir() if path.is_file()}
    for name, file in files.items():
        if name == "bin/inflight":
            tree[f"{data}/scripts/inflight"] = file
        elif name in (f"{DOC}/LICENSE", f"{DOC}/THIRD-PARTY.txt", f"{DOC}/inflight.spdx.json"):
            tree[f"{info}/{name.rsplit('/', 1)[1]}"] = file
        elif name.startswith(("share/inflight/", "share/man/")):
            tree[f"{data}/data/{name}"] = file
    described = (ROOT / "python/inflight/__init__.py").read_text().split('"""')[1]
    tree[f"{info}/METADATA"] = File(
        f"Metadata-Version: 2.1\nName: inflight\nVersion: {version}\nSummary: {SUMMARY}\nLicense: Apache-2.0\n"
        f"License-File: LICENSE\nRequires-Python: >=3.9\nDescription-Content-Type: text/plain\n\n{described}".encode()
    )
    tree[f"{info}/WHEEL"] = File(
        f"Wheel-Version: 1.0\nGenerator: scripts/packages.py\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    )
    record = "".join(f"{name},sha256={digest(file.content)},{len(file.content)}\n" for name, file in sorted(tree.items()))
    entries = [*sorted(tree.items()), (f"{info}/RECORD", File(f"{record}{info}/RECORD,,\n".encode()))]
    when = time.gmtime(max(epoch(), EARLIEST_OF_ZIP))[:6]
    path = folder / f"inflight-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for name, file in entries:
            entry = zipfile.ZipInfo(name, when)
            entry.create_system, entry.external_attr = 3, (0o100000 | file.mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.content, compresslevel=level)
    return path


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def platform_of(program):
    """Releases say which glibc they need; what loads other libraries of the distribution is for this machine alone."""
    machine = machine_of(program.read_bytes()).name
    if not is_whole(program):
        return f"linux_{machine}"
    major, minor = least_glibc(program)
    return f"manylinux_{major}_{minor}_{machine}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--cuda", action="store_true", help="the program is one for NVIDIA GPUs")
    parser.add_argument("--level", type=int, default=9, choices=range(10), help="of compression; 0: hardly any, for tests")
    args = parser.parse_args()
    files = program_files(args.stage)
    program = args.stage / "bin/inflight"
    machine = machine_of(files["bin/inflight"].content)
    bill = json.loads(files[f"{DOC}/inflight.spdx.json"].content)
    (version,) = (package["versionInfo"] for package in bill["packages"] if package["name"] == "inflight")
    cublas = cublas_of(program) if args.cuda else None
    args.output.mkdir(parents=True, exist_ok=True)
    name = "inflight-cuda" if args.cuda else "inflight"
    tarball = args.output / f"{name}-{version}-linux-{machine.name}.tar.gz"
    write_tarball(files, tarball.name.removesuffix(".tar.gz"), tarball, args.level)
    made, bills = [tarball], {name: files[f"{DOC}/inflight.spdx.json"]}
    debs = [debian_package.server(files, version, cublas)]
    if not args.cuda:
        made.append(write_wheel(files, version, platform_of(program), args.output, args.level))
        for files_of, make in ((library_files, debian_package.library), (plugin_files, debian_package.plugin)):
            found = files_of(args.stage, machine)
            if found:
                debs.append(make(found, version))
                bills[debs[-1].name] = found[f"share/doc/{debs[-1].name}/{debs[-1].name}.spdx.json"]
    made += [debian_package.write(deb, version, args.output, args.level) for deb in debs]
    for product, bill in bills.items():
        (args.output / f"{product}.spdx.json").write_bytes(bill.content)
    names = sorted(path.name for path in args.output.iterdir() if not path.name.startswith(SUMS))
    sums = "".join(f"{hashlib.sha256((args.output / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    (args.output / SUMS).write_text(sums)
    for path in sorted(made):
        print(f"{path.stat().st_size / 1e6:6.1f} MB  {path}")
    print(f"the program: {program.stat().st_size / 1e6:.1f} MB, needs glibc {'.'.join(map(str, least_glibc(program)))}")


if __name__ == "__main__":
    main()
