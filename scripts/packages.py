#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes packages of what `cmake --install BUILD --component program --strip --prefix STAGE` has put into STAGE.

usage: scripts/packages.py STAGE --output DIR [--level N]

  inflight-VERSION-linux-MACHINE.tar.gz      to unpack anywhere: bin, share
  inflight_VERSION_ARCHITECTURE.deb          for Debian and Ubuntu, with a unit of systemd, /etc/inflight and a user
  inflight-VERSION-py3-none-PLATFORM.whl     for pip: the program, the demo model and the package of python/
  SHA256SUMS                                 of these

Equal stages give equal bytes: entries are sorted, owners are root's, times are SOURCE_DATE_EPOCH or else that of the
commit. THIRD-PARTY.txt in each has the licences of what is linked into the program, by its bill of materials.
"""

import argparse
import base64
import dataclasses
import email.utils
import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

import changelog

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOC = "share/doc/inflight"
PARTS = ("bin/inflight", DOC, "share/inflight", "share/man", "share/bash-completion", "share/zsh", "share/fish")
SUMMARY = "LLM inference server with the contract of Triton's TensorRT-LLM backend"
MAINTAINER = "The Inflight authors <inflight@packages.invalid>"
EARLIEST_OF_ZIP = 315532800  # 1980-01-01, before which its times cannot be


@dataclasses.dataclass(frozen=True)
class File:
    content: bytes
    is_program: bool = False

    @property
    def mode(self):
        return 0o755 if self.is_program else 0o644


def output(*command, **kwargs):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, check=True, **kwargs).stdout


def epoch():
    return int(os.environ.get("SOURCE_DATE_EPOCH") or output("git", "-C", ROOT, "log", "-1", "--format=%ct"))


# ---- What is packaged ----


def staged(stage):
    """{path below the prefix: File}, in order."""
    files = {}
    for part in PARTS:
        base = stage / part
        for path in [base] if base.is_file() else sorted(base.rglob("*")):
            name = path.relative_to(stage).as_posix()
            if path.is_file():
                files[name] = File(path.read_bytes(), os.access(path, os.X_OK))
    for name in ("bin/inflight", f"{DOC}/LICENSE", f"{DOC}/inflight.spdx.json", "share/man/man1/inflight.1"):
        if name not in files:
            sys.exit(f"packages.py: {stage / name} is not there; {stage} is to be what cmake --install --component program wrote")
    files[f"{DOC}/CHANGELOG.md"] = File(changelog.collected().encode())
    files[f"{DOC}/THIRD-PARTY.txt"] = File(third_party(json.loads(files[f"{DOC}/inflight.spdx.json"].content)).encode())
    return dict(sorted(files.items()))


def third_party(document):
    """Copyright and licence of each package that is in the program, whole or by its headers."""
    inside = ("STATIC_LINK", "BUILD_DEPENDENCY_OF")
    ids = {relation[end] for relation in document["relationships"] if relation["relationshipType"] in inside
           for end in ("spdxElementId", "relatedSpdxElement")}  # fmt: skip
    text = "What the program has in it of others, archives and headers, and under which terms.\n"
    for package in sorted(document["packages"], key=lambda item: item["name"]):
        if package["SPDXID"] not in ids or package["SPDXID"] == "SPDXRef-inflight":
            continue
        name, rule = package["name"], "=" * 100
        text += f"\n{rule}\n{name} {package['versionInfo']}\n{rule}\n\n" + copyright_of(name)
    return text


def copyright_of(name):
    for path in (pathlib.Path("/usr/share/doc", name, "copyright"), ROOT / "build/static-deps/copyright" / name):
        if path.is_file():
            return path.read_text(errors="replace")
    sys.exit(f"packages.py: {name} is in the program, and its copyright file is nowhere")


def least_glibc(program):
    """(2, 36): the newest version of a function that it takes from the C library."""
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", output("objdump", "-T", program))
    return max((int(major), int(minor)) for major, minor in versions)


def is_whole(program):
    """Whether it loads nothing but the C library and its loader, as releases do (INFLIGHT_STATIC)."""
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "--dynamic", program))
    return all(re.match(r"(libc|libm|libpthread|libdl|librt|ld-linux.*)\.so", name) for name in needed)


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


# ---- Debian's package ----


def debian_files(files, version):
    """{path below /: File} of the package."""
    tree = {}
    for name, file in files.items():
        if name == f"{DOC}/LICENSE":
            continue
        if name.startswith("share/man/"):
            name, file = name + ".gz", File(zipped(file.content))
        name = name.replace("share/zsh/site-functions", "share/zsh/vendor-completions")
        tree[f"usr/{name}"] = file
    service = files["share/inflight/deploy/systemd/inflight.service"].content.decode()
    if "=/usr/local/bin/inflight " not in service:
        sys.exit("packages.py: inflight.service does not start /usr/local/bin/inflight")
    service = service.replace("=/usr/local/bin/inflight ", "=/usr/bin/inflight ")
    tree["usr/lib/systemd/system/inflight.service"] = File(service.encode())
    tree["etc/inflight/serve.json"] = files["share/inflight/deploy/systemd/serve.json"]
    tree[f"usr/{DOC}/copyright"] = File(
        b"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
        b"Upstream-Name: inflight\n\nFiles: *\nCopyright: 2026 The Inflight authors\nLicense: Apache-2.0\n"
        b" On Debian systems the licence is in /usr/share/common-licenses/Apache-2.0; licences of what is linked\n"
        b" into the program are in THIRD-PARTY.txt beside this file.\n"
    )
    entry = f"inflight ({version}) stable; urgency=medium\n\n  * CHANGELOG.md beside this file says what changed.\n\n"
    entry += f" -- {MAINTAINER}  {email.utils.formatdate(epoch())}\n"
    tree[f"usr/{DOC}/changelog.gz"] = File(zipped(entry.encode()))
    return dict(sorted(tree.items()))


def zipped(content):
    return gzip.compress(content, compresslevel=9, mtime=0)


def write_deb(files, version, architecture, path, level):
    tree = debian_files(files, version)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder, "root")
        size = sum(len(file.content) for file in tree.values())
        control = {
            "control": File(control_of(files["bin/inflight"].content, version, architecture, size, folder).encode()),
            "conffiles": File("".join(f"/{name}\n" for name in tree if name.startswith("etc/")).encode()),
            "md5sums": File("".join(
                f"{hashlib.md5(file.content, usedforsecurity=False).hexdigest()}  {name}\n" for name, file in tree.items()
            ).encode()),
        }  # fmt: skip
        for script in ("postinst", "prerm", "postrm"):
            control[script] = File((ROOT / "deploy/debian" / script).read_bytes(), is_program=True)
        for name, file in {**tree, **{f"DEBIAN/{name}": file for name, file in control.items()}}.items():
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.content)
            target.chmod(file.mode)
        for part in [root, *root.rglob("*")]:
            if part.is_dir():
                part.chmod(0o755)
            os.utime(part, (epoch(), epoch()))
        output("dpkg-deb", "--build", "--root-owner-group", "-Zxz", f"-z{min(level, 6)}", "--threads-max=1", root, path,
               env=dict(os.environ, SOURCE_DATE_EPOCH=str(epoch())))  # fmt: skip


def control_of(program, version, architecture, size, folder):
    return (
        f"Package: inflight\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {MAINTAINER}\n"
        f"Installed-Size: {-(-size // 1024)}\nDepends: {depends(program, folder)}, passwd\n"
        "Recommends: ca-certificates, libcurl4 | libcurl4t64, libedit2, libzmq5\nSuggests: python3\n"
        f"Section: net\nPriority: optional\nDescription: {SUMMARY}\n"
        " Serves language models from Hugging Face directories, checkpoints, engines and\n"
        " repositories of Triton over KServe v2 HTTP and gRPC, with in-flight batching\n"
        " and a paged KV cache, on the CPU. It needs no Python.\n .\n"
        " libcurl4 is loaded for models in object stores and on hubs, libedit2 for\n"
        " `inflight chat` in a terminal and libzmq5 for KV events; python3 runs\n"
        " `inflight compat`.\n"
    )


def depends(program, folder):
    """By dpkg-shlibdeps: the packages of the libraries that it loads, by the versions of their symbols."""
    base = pathlib.Path(folder, "shlibdeps")
    (base / "debian").mkdir(parents=True)
    (base / "debian/control").write_text("Source: inflight\n\nPackage: inflight\nArchitecture: any\n")
    (base / "inflight").write_bytes(program)
    found = output("dpkg-shlibdeps", "-O", "-einflight", cwd=base)
    return found.strip().removeprefix("shlibs:Depends=")


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
    machine = platform.machine()
    if not is_whole(program):
        return f"linux_{machine}"
    major, minor = least_glibc(program)
    return f"manylinux_{major}_{minor}_{machine}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--level", type=int, default=9, choices=range(1, 10), help="of compression")
    args = parser.parse_args()
    files = staged(args.stage)
    program = args.stage / "bin/inflight"
    version = output(args.stage / "bin/inflight", "--version").split()[1]
    args.output.mkdir(parents=True, exist_ok=True)
    tarball = args.output / f"inflight-{version}-linux-{platform.machine()}.tar.gz"
    write_tarball(files, tarball.name.removesuffix(".tar.gz"), tarball, args.level)
    architecture = output("dpkg", "--print-architecture").strip()
    deb = args.output / f"inflight_{version}_{architecture}.deb"
    write_deb(files, version, architecture, deb, args.level)
    wheel = write_wheel(files, version, platform_of(program), args.output, args.level)
    made = sorted([tarball, deb, wheel])
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made)
    (args.output / "SHA256SUMS").write_text(sums)
    for path in made:
        print(f"{path.stat().st_size / 1e6:6.1f} MB  {path}")
    print(f"the program: {program.stat().st_size / 1e6:.1f} MB, needs glibc {'.'.join(map(str, least_glibc(program)))}")


if __name__ == "__main__":
    main()
