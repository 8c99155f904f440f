#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a folder of libraries to link with in place of the C library, so that a program starts on older systems too.

usage: scripts/glibc_stubs.py OUTPUT --newest 2.28 [--compiler cc]

They have the names and versions that the compiler's C library exports, but nothing that is newer than --newest: a
program that is linked by `-L OUTPUT` is bound to the older versions, which the C library keeps for such programs, and
what there is no older version of is an error of the linker (src/old_glibc has the functions that Inflight needs). They
are empty inside, and no program runs with them.

What stood in libpthread, libdl and librt before glibc 2.34 is in the stub of libc, as it is in libc itself since; a
program needs those three by name to find it on an older system.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import typing

LIBRARIES = ("libc.so.6", "libm.so.6")
MERGED = ("libpthread.so.0", "libdl.so.2", "librt.so.1")  # in libc since 2.34
LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
SYMBOL = re.compile(r"\s*\d+: ([0-9a-f]+)\s+(\d+) (FUNC|IFUNC|OBJECT)\s+(GLOBAL|WEAK)\s+DEFAULT\s+\d+ (\w+)@@?GLIBC_([\d.]+)\s*$")


class Symbol(typing.NamedTuple):
    version: str
    is_data: bool
    is_weak: bool
    address: str
    size: int


def output(*command):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120, check=True).stdout


def number(version):
    return tuple(int(part) for part in version.split("."))


def exported(library, newest):
    """{name: Symbol} of the newest versions that are allowed."""
    found = {}
    for line in output("readelf", "--dyn-syms", "--wide", library).splitlines():
        if not (match := SYMBOL.match(line)):
            continue
        address, size, kind, binding, name, version = match.groups()
        if number(version) > newest or (name in found and number(found[name].version) >= number(version)):
            continue
        found[name] = Symbol(version, kind == "OBJECT", binding == "WEAK", address, int(size))
    return found


def assembly(symbols):
    """Data of several names, as `environ`, is at one place, and weak where it is: a copy that the linker makes in a
    program then has the other names too, by which the C library knows it.
    """
    places = collections.defaultdict(list)
    for name, symbol in symbols.items():
        places[symbol.address if symbol.is_data else name].append((name, symbol))
    lines, count = [], 0
    for names in places.values():
        is_data = names[0][1].is_data
        lines.append(".data\n.balign 32" if is_data else ".text")
        for name, symbol in names:
            label = f"stub_{count}"
            count += 1
            lines.append(f"{'.weak' if symbol.is_weak else '.globl'} {label}")
            lines.append(f".type {label}, %{'object' if is_data else 'function'}")
            lines += [f".size {label}, {symbol.size}", f"{label}:", f".symver {label}, {name}@@GLIBC_{symbol.version}"]
        lines.append(f".zero {max(1, *(symbol.size for _, symbol in names)) if is_data else 1}")
    return "\n".join([*lines, '.section .note.GNU-stack,"",%progbits', ""])


def make(compiler, folder, soname, symbols):
    versions = sorted({symbol.version for symbol in symbols.values()}, key=number)
    source, script = folder / f"{soname}.s", folder / f"{soname}.map"
    source.write_text(assembly(symbols))
    script.write_text("".join(f"GLIBC_{version} {{ local: stub_*; }};\n" for version in versions) or "{};\n")
    options = ("-shared", "-nostdlib", f"-Wl,-soname,{soname}", f"-Wl,--version-script={script}")
    output(compiler, *options, "-o", folder / soname, source)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--newest", required=True, metavar="VERSION")
    parser.add_argument("--compiler", default="cc")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    found = lambda name: output(args.compiler, f"-print-file-name={name}").strip()  # noqa: E731
    loader = LOADERS[output(args.compiler, "-dumpmachine").split("-")[0]]
    for soname in (*LIBRARIES, loader):
        make(args.compiler, args.output, soname, exported(found(soname), number(args.newest)))
    for soname in MERGED:
        make(args.compiler, args.output, soname, {})
    for soname in ("libm.so.6", *MERGED):
        name = args.output / soname[: soname.index(".so") + 3]
        name.unlink(missing_ok=True)
        name.symlink_to(soname)
    rest = found("libc_nonshared.a")
    here = args.output.resolve()
    (here / "libc.so").write_text(f"GROUP ( {here / 'libc.so.6'} {rest} AS_NEEDED ( {here / loader} ) )\n")


if __name__ == "__main__":
    main()
