# SPDX-License-Identifier: Apache-2.0
"""Debian's packages of scripts/packages.py: one function for each, which gives files and fields, and one that writes it."""

import dataclasses
import email.utils
import gzip
import hashlib
import os
import pathlib
import re
import subprocess
import tempfile

from machines import machine_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAINTAINER = "The Inflight authors <inflight@packages.invalid>"
SUMMARY = "LLM inference server with the contract of Triton's TensorRT-LLM backend"
TRITON = "opt/tritonserver/backends"
PLUGIN = "libtriton_tensorrtllm.so"


@dataclasses.dataclass(frozen=True)
class File:
    content: bytes
    is_program: bool = False
    link_to: str = ""  # of a symbolic link, which has no content

    @property
    def mode(self):
        return 0o755 if self.is_program else 0o644


@dataclasses.dataclass
class Package:
    name: str
    tree: dict  # {path below /: File}
    fields: str  # of its control file, the description with them; `Depends` has {libraries} for those that it loads
    binaries: tuple  # paths in `tree` that load libraries, of the machine that the package is for
    scripts: dict = dataclasses.field(default_factory=dict)  # {postinst: path of its text}
    control: dict = dataclasses.field(default_factory=dict)  # {triggers: text}


def output(*command, **kwargs):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, check=True, **kwargs).stdout


def epoch():
    return int(os.environ.get("SOURCE_DATE_EPOCH") or output("git", "-C", ROOT, "log", "-1", "--format=%ct"))


def zipped(content):
    return gzip.compress(content, compresslevel=9, mtime=0)


# ---- What is in each ----


def documents_of(name, version):
    """What each package has in /usr/share/doc by Debian's rules."""
    copying = (
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
        "Upstream-Name: inflight\n\nFiles: *\nCopyright: 2026 The Inflight authors\nLicense: Apache-2.0\n"
        " On Debian systems the licence is in /usr/share/common-licenses/Apache-2.0; licences of what is linked\n"
        " into it are in THIRD-PARTY.txt beside this file.\n"
    )
    entry = f"{name} ({version}) stable; urgency=medium\n\n  * CHANGELOG.md of the release says what changed.\n\n"
    entry += f" -- {MAINTAINER}  {email.utils.formatdate(epoch())}\n"
    base = f"usr/share/doc/{name}"
    return {f"{base}/copyright": File(copying.encode()), f"{base}/changelog.gz": File(zipped(entry.encode()))}


def server(files, version, cublas):
    """The program; `cublas`: the major version of the cuBLASLt that it loads, none of a program for the CPU."""
    name = "inflight-cuda" if cublas else "inflight"
    tree = documents_of(name, version)
    for path, file in files.items():
        if path == "share/doc/inflight/LICENSE":
            continue
        if path.startswith("share/man/"):
            path, file = path + ".gz", File(zipped(file.content))
        path = path.replace("share/zsh/site-functions", "share/zsh/vendor-completions")
        tree[f"usr/{path}".replace("/doc/inflight/", f"/doc/{name}/")] = file
    service = files["share/inflight/deploy/systemd/inflight.service"].content.decode()
    if "=/usr/local/bin/inflight " not in service:
        raise SystemExit("packages.py: inflight.service does not start /usr/local/bin/inflight")
    service = service.replace("=/usr/local/bin/inflight ", "=/usr/bin/inflight ")
    tree["usr/lib/systemd/system/inflight.service"] = File(service.encode())
    tree["etc/inflight/serve.json"] = files["share/inflight/deploy/systemd/serve.json"]
    libraries = "{libraries}"
    relations, device = "", "on the CPU"
    if cublas:  # NVIDIA names a package for each minor version, and their programs run with later ones
        libraries += ", " + " | ".join(f"libcublas-{cublas}-{minor}" for minor in range(4))
        relations = "Provides: inflight\nConflicts: inflight\nReplaces: inflight\n"
        device = "on NVIDIA GPUs and the CPU"
    fields = (
        f"Depends: {libraries}, passwd\n{relations}"
        "Recommends: ca-certificates, libcurl4 | libcurl4t64, libedit2, libzmq5\nSuggests: python3\n"
        f"Section: net\nDescription: {SUMMARY}\n"
        " Serves language models from Hugging Face directories, checkpoints, engines and\n"
        " repositories of Triton over KServe v2 HTTP and gRPC, with in-flight batching\n"
        f" and a paged KV cache, {device}. It needs no Python.\n .\n"
        " libcurl4 is loaded for models in object stores and on hubs, libedit2 for\n"
        " `inflight chat` in a terminal and libzmq5 for KV events; python3 runs\n"
        " `inflight compat`.\n"
    )
    scripts = {script: ROOT / "deploy/debian" / script for script in ("postinst", "prerm", "postrm")}
    return Package(name, tree, fields, ("usr/bin/inflight",), scripts)


def library(files, version):
    """libinflight.so with headers, its CMake package, pkg-config file and the example."""
    name = "libinflight-dev"
    tree = documents_of(name, version)
    for path, file in files.items():
        tree[f"usr/{path}".replace("/doc/inflight/", f"/doc/{name}/")] = file
    (real,) = (path for path in tree if re.search(r"/libinflight\.so\.\d+\.\d+\.\d+$", path))
    soname = pathlib.PurePosixPath(real).name.removeprefix("libinflight.so.").rsplit(".", 1)[0]
    fields = (
        "Depends: {libraries}\nRecommends: g++, pkg-config | cmake\n"
        "Section: libdevel\nDescription: LLM inference in a program of yours, by the library of Inflight\n"
        " Headers in C++20, libinflight.so, its CMake package and pkg-config file. A model is\n"
        " opened from a directory or an engine, and answers on the CPU with in-flight batching\n"
        " and a paged KV cache. Programs that were built with the library need this package.\n"
    )
    control = {"triggers": "activate-noawait ldconfig\n", "shlibs": f"libinflight {soname} {name} (>= {version})\n"}
    return Package(name, tree, fields, (real,), control=control)


def plugin(files, version):
    """libtriton_tensorrtllm.so where Triton looks for the backends `tensorrtllm` and `inflight`."""
    name = "inflight-triton-backend"
    tree = documents_of(name, version)
    for path, file in files.items():
        if path.endswith(f"/{PLUGIN}"):
            tree[f"{TRITON}/tensorrtllm/{PLUGIN}"] = file
        else:
            tree[f"usr/{path}"] = file
    tree[f"{TRITON}/inflight/libtriton_inflight.so"] = File(b"", link_to=f"../tensorrtllm/{PLUGIN}")
    fields = (
        "Depends: {libraries}\n"
        "Section: net\nDescription: Inflight as the backend tensorrtllm of Triton Inference Server\n"
        " Runs the model `tensorrt_llm` of repositories that were written for NVIDIA's backend,\n"
        " in the real server, from the same config.pbtxt. A library of that name that is there\n"
        " already is set aside, and back in its place when this package is removed.\n"
    )
    scripts = {script: ROOT / "deploy/debian/triton" / script for script in ("preinst", "postrm")}
    return Package(name, tree, fields, (f"{TRITON}/tensorrtllm/{PLUGIN}",), scripts)


# ---- How one is written ----


def write(package, version, folder, level):
    """The path of the file, which is in `folder`."""
    machine = machine_of(package.tree[package.binaries[0]].content)
    path = folder / f"{package.name}_{version}_{machine.debian}.deb"
    tree = dict(sorted(package.tree.items()))
    with tempfile.TemporaryDirectory() as work:
        root = pathlib.Path(work, "root")
        for name, file in {**tree, **control_files(package, tree, version, machine, work)}.items():
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.link_to:
                target.symlink_to(file.link_to)
                os.utime(target, (epoch(), epoch()), follow_symlinks=False)
                continue
            target.write_bytes(file.content)
            target.chmod(file.mode)
        for part in [root, *root.rglob("*")]:
            if part.is_dir():
                part.chmod(0o755)
            if not part.is_symlink():
                os.utime(part, (epoch(), epoch()))
        output("dpkg-deb", "--build", "--root-owner-group", "-Zxz", f"-z{min(level, 6)}", "--threads-max=1", root, path,
               env=dict(os.environ, SOURCE_DATE_EPOCH=str(epoch())))  # fmt: skip
    return path


def control_files(package, tree, version, machine, work):
    size = sum(len(file.content) for file in tree.values())
    libraries = loaded_packages([tree[name].content for name in package.binaries], package.name, machine, work)
    files = {"control": File((
        f"Package: {package.name}\nVersion: {version}\nArchitecture: {machine.debian}\nMaintainer: {MAINTAINER}\n"
        f"Installed-Size: {-(-size // 1024)}\nPriority: optional\n{package.fields.replace('{libraries}', libraries)}"
    ).encode())}  # fmt: skip
    for name, text in package.control.items():
        files[name] = File(text.encode())
    conffiles = "".join(f"/{name}\n" for name in tree if name.startswith("etc/"))
    if conffiles:
        files["conffiles"] = File(conffiles.encode())
    files["md5sums"] = File("".join(
        f"{hashlib.md5(file.content, usedforsecurity=False).hexdigest()}  {name}\n"
        for name, file in tree.items() if not file.link_to
    ).encode())  # fmt: skip
    files |= {name: File(script.read_bytes(), is_program=True) for name, script in package.scripts.items()}
    return {f"DEBIAN/{name}": file for name, file in files.items()}


def least_glibc(program):
    """(2, 36): the newest version of a function that it takes from the C library."""
    versions = re.findall(r"@GLIBC_(\d+)\.(\d+)", output("readelf", "--dyn-syms", "--wide", program))
    return max((int(major), int(minor)) for major, minor in versions)


def loaded_packages(binaries, name, machine, work):
    """By dpkg-shlibdeps: the packages of the libraries that they load, by the versions of their symbols. A library that no
    package of the system has, as those of CUDA, is passed over. The C library of their newest function is enough, though it
    has what the building system's has elsewhere, such as pthread_create, in another file."""
    base = pathlib.Path(work, "shlibdeps")
    (base / "debian").mkdir(parents=True)
    (base / "debian/control").write_text(f"Source: inflight\n\nPackage: {name}\nArchitecture: any\n")
    for i, content in enumerate(binaries):
        (base / f"binary{i}").write_bytes(content)
    named = [f"-ebinary{i}" for i in range(len(binaries))]
    if machine.root is not None:
        named += [f"--admindir={machine.root}/var/lib/dpkg", *(f"-l{folder}" for folder in machine.library_folders)]
    found = output("dpkg-shlibdeps", "-O", "--ignore-missing-info", *named, cwd=base,
                   env=dict(os.environ, DEB_HOST_ARCH=machine.debian))  # fmt: skip
    least = max(least_glibc(base / f"binary{i}") for i in range(len(binaries)))
    found = re.sub(r"\blibc6 \(>= [\d.]+\)", f"libc6 (>= {least[0]}.{least[1]})", found)
    return found.strip().removeprefix("shlibs:Depends=")
