#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy-16 (.clang-tidy) over changed C++ sources of the folders in HELD, and fails on any finding. Of tests
those of TESTS_HELD are among them.

usage: scripts/tidy.py [--since REVISION | --all | FILE...] [--seconds 120]

Changed is what `git diff REVISION` names; without a choice, the last 20 commits and what is not committed. A changed header
stands for the source of its name. Sources changed last come first, and none is begun once the time is up (--all has no
limit): the number that were left out is printed. A FILE may be of any folder. Sources are compiled as the release build
would, one by one.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/tidy"
OF_GCC_ALONE = r" -fno-tree-coalesce-vars\b"  # an option that clang refuses
COMMITS = 20
HELD = ("bench/", "src/", "tools/")  # clean, and kept so
TESTS_HELD = ("src/base/", "src/decoding/", "src/executor/", "src/json/", "src/kv_cache/", "src/scheduler/")


def run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"tidy.py: {' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def compiled_sources() -> list[str]:
    """Configures a release build, generates its headers, and lists the sources in it."""
    run("cmake", "--preset", "release", "-B", str(BUILD))
    targets = run("ninja", "-C", str(BUILD), "-t", "targets", "all")
    run("ninja", "-C", str(BUILD), *re.findall(r"^(src/\S+\.pb\.h): CUSTOM", targets, re.MULTILINE))
    database = BUILD / "compile_commands.json"
    database.write_text(re.sub(OF_GCC_ALONE, "", database.read_text()))
    entries = json.loads(database.read_text())
    paths = (pathlib.Path(entry["file"]) for entry in entries)
    return sorted({str(path.relative_to(ROOT)) for path in paths if not path.is_relative_to(BUILD)})


def changed_files(since: str | None) -> list[str]:
    """Files that differ from `since`, those of the latest commits first."""
    commits = run("git", "rev-list", f"--max-count={COMMITS}", f"{since}..HEAD" if since else "HEAD").split()
    names = run("git", "diff", "--name-only", "HEAD").split()
    for commit in commits:
        names += run("git", "diff-tree", "--no-commit-id", "--name-only", "-r", "--root", commit).split()
    return list(dict.fromkeys(names))


def check(source: str, deadline: float) -> tuple[str, bool, str] | None:
    """The source, whether it is clean, and what clang-tidy said; None once the time is up."""
    if time.monotonic() > deadline:
        return None
    done = subprocess.run(
        ["clang-tidy-16", "-p", str(BUILD), "--quiet", "--extra-arg=-Wno-unknown-warning-option", source],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )
    return source, done.returncode == 0, done.stdout


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("files", nargs="*")
    arguments.add_argument("--since")
    arguments.add_argument("--all", action="store_true")
    arguments.add_argument("--seconds", type=float, default=120)
    chosen = arguments.parse_args()
    sources = compiled_sources()
    held = [name for name in sources if name.startswith(TESTS_HELD if name.endswith("_test.cc") else HELD)]
    if chosen.all:
        sources = held
    else:
        changed = chosen.files or changed_files(chosen.since)
        sources = sources if chosen.files else held
        wanted = dict.fromkeys(str(pathlib.Path(name).with_suffix(".cc")) for name in changed if name.endswith((".cc", ".h")))
        sources = [name for name in wanted if name in sources]
    deadline = time.monotonic() + (float("inf") if chosen.all or chosen.files else chosen.seconds)
    clean = failed = left_out = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for result in pool.map(lambda source: check(source, deadline), sources):
            if result is None:
                left_out += 1
                continue
            source, is_clean, output = result
            clean, failed = clean + is_clean, failed + (not is_clean)
            if not is_clean:
                print(f"{source}:\n{output}", flush=True)
    note = f"; {left_out} were not looked at in {chosen.seconds:.0f} s" if left_out else ""
    print(f"clang-tidy: {clean} of {len(sources)} sources clean, {failed} with findings{note}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
