#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records exchanges from NVIDIA's Triton server, which the package nvidia-pytriton brings (tests/triton_server.txt).

    INFLIGHT_BIN_DIR=build/release/bin python record.py check [REGEX]       the committed cases, against the server anew
    INFLIGHT_BIN_DIR=build/release/bin python record.py record FOLDER       cases of FOLDER, which are rewritten
    INFLIGHT_BIN_DIR=build/release/bin python record.py add FOLDER          puts cases of FOLDER into recorded.tar.xz

The backend `conformance` for that server is the target triton_conformance. FOLDER holds <protocol>/<group>/<name>.case.json;
README.md says what stands in a case. A new case has "expect": {} in the steps that are to be compared. An expectation that
still holds stays as it is, with its placeholders. Each case is performed twice: where the two differ beyond an expectation's
placeholders `record` says so, and the author puts placeholders or a `select`.
"""

import argparse
import io
import json
import lzma
import pathlib
import re
import sys
import tarfile
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2].parent / "compat"))

from compare import HEADERS, compare, select
from real_server import RealServers, why_not
from recorded_cases import HERE, read_cases, unpack
from steps import perform

ARCHIVE = HERE / "recorded.tar.xz"
PRESET = 9 | lzma.PRESET_EXTREME
KEPT_HEADERS = {*HEADERS, "content-length"}


def expectation(step, seen):
    """What a case says of an observation."""
    found = select(step, seen)
    if "all" in found:
        return {"all": [expectation(one, each) for one, each in zip(step["parallel"], found["all"], strict=True)]}
    if "headers" in found:
        found["headers"] = [[name, value] for name, value in found["headers"] if name.lower() in KEPT_HEADERS]
    return found


def ends_connection(seen):
    error = seen.get("error")
    return seen.get("closed") or (isinstance(error, dict) and error.get("code") == "UNAVAILABLE")


def perform_steps(case, servers):
    """What was observed, and whether the server has ended by itself meanwhile: in one of two tries, since an earlier case may
    be at fault."""
    for _ in range(2):
        peer, seen = servers.peer(case["profile"]), []
        try:
            for step in case["steps"]:
                seen.append(perform(step, peer))
            is_lost = any(
                ends_connection(s) and not ends_connection(step.get("expect", {}))
                for step, s in zip(case["steps"], seen, strict=True)
            )
        except ConnectionError:
            is_lost = True
        if not (is_lost and servers.forget_if_ended(case["profile"])):
            return seen
    return None


def record(case, servers):
    """The case with what the server answers, and texts of what differs from what it says or between two runs."""
    seen, again = perform_steps(case, servers), perform_steps(case, servers)
    if seen is None or again is None:
        return case, ["the server ends by itself"]
    notes = []
    for number, step in enumerate(case["steps"]):
        if "expect" not in step:
            continue
        is_new = not step["expect"]
        differences = [] if is_new else compare(step, step["expect"], seen[number])
        if is_new or differences:
            notes += [f"step {number}: {difference}" for difference in differences]
            step["expect"] = expectation(step, seen[number])
        notes += [f"step {number} varies: {difference}" for difference in compare(step, step["expect"], again[number])]
    return case, notes


def check(servers, pattern):
    """Performs the committed cases once; the number of those that the server answers otherwise."""
    failed = 0
    cases = [case for protocol in ("http", "grpc") for case in read_cases(protocol) if re.search(pattern, case["id"])]
    for case in cases:
        seen = perform_steps(case, servers)
        differences = ["the server ends by itself"] if seen is None else [
            f"step {number}: {difference}"
            for number, step in enumerate(case["steps"])
            if "expect" in step
            for difference in compare(step, step["expect"], seen[number])
        ]  # fmt: skip
        if differences:
            failed += 1
            print(case["id"], *differences, sep="\n  ")
    print(f"{len(cases)} cases, {failed} of which the server answers otherwise")
    return failed


def record_folder(servers, folder):
    for path in sorted(folder.rglob("*.case.json")):
        case, notes = record(json.loads(path.read_text()), servers)
        path.write_text(json.dumps(case, indent=1) + "\n")
        print(case["id"], *notes, sep="\n  ")


def add(folder):
    """The archive with the cases of the folder, in one order and without times, so that equal contents are equal files."""
    with tempfile.TemporaryDirectory() as unpacked:
        root = pathlib.Path(unpacked)
        unpack(root)
        for path in folder.rglob("*.case.json"):
            case = json.loads(path.read_text())
            open_steps = [step for step in case["steps"] if step.get("expect") == {}]
            if open_steps or f"{case['id']}.case.json" != str(path.relative_to(folder)):
                sys.exit(f"{path}: is not recorded yet" if open_steps else f"{path}: its id is {case['id']}")
            target = root / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(path.read_text())
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for path in sorted(root.rglob("*")):
                archive.add(path, str(path.relative_to(root)), recursive=False, filter=without_owner)
        ARCHIVE.write_bytes(lzma.compress(packed.getvalue(), preset=PRESET))


def without_owner(entry):
    entry.mtime = entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def main():
    parser = argparse.ArgumentParser(description="Records exchanges from NVIDIA's Triton server.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="the committed cases").add_argument("pattern", nargs="?", default="", help="of ids")
    for name in ("record", "add"):
        commands.add_parser(name, help="cases of a folder").add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.command == "add":
        add(arguments.folder)
        return
    if reason := why_not():
        sys.exit(f"nothing can be recorded: {reason}")
    with tempfile.TemporaryDirectory() as folder:
        servers = RealServers(pathlib.Path(folder))
        try:
            if arguments.command == "record":
                record_folder(servers, arguments.folder)
            elif check(servers, arguments.pattern):
                sys.exit(1)
        finally:
            servers.stop()


if __name__ == "__main__":
    main()
