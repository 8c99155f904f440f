#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs test suites of a build folder and ends with the line `N passed, N failed`.

usage: scripts/run_tests.py BUILD_DIR [SUITE...]

Suites: `unit` (every *_test binary but those of the others), `simulation`, `golden` (tiny models against
transformers), `python` (tests/**/test_*.py with the build's binaries, or what INFLIGHT_PYTHON_TESTS lists), `cuda`
(those that need a GPU for nearly all of their tests). Default: all but `cuda`.
Counts single tests, not binaries, and no skipped ones: these say why in their binary's output. Exit status 1 if any
failed or none ran. How long each binary and each file of Python tests took is written to BUILD_DIR/durations.json;
where a copy of that is in tests, what took longest begins first.
"""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUITES = {"simulation_test": "simulation", "server_simulation_test": "simulation", "golden_test": "golden",
          "cuda_backend_test": "cuda", "cuda_calls_test": "cuda", "cuda_golden_test": "cuda", "cuda_ops_test": "cuda",
          "cuda_ranks_test": "cuda", "cuda_shared_ranks_test": "cuda", "cuda_sleep_test": "cuda", "decoding_cuda_test": "cuda",
          "sleep_test": "golden"}  # others are `unit`
TIMEOUT_S = 900
AT_ONCE = 2
SHARDED_S = 150  # a binary that takes longer runs in two halves beside each other: no core waits for it at the end
LONGEST = {"simulation_test", "golden_test", "decoding_test", "artifact_test"}  # these first, where durations are unknown
DURATIONS = ROOT / "tests/durations.json"  # seconds by name of a binary or path of a file; tests/conftest.py reads it too
FILES_AT_ONCE = ["-n", os.environ.get("INFLIGHT_TEST_FILES_AT_ONCE", str(AT_ONCE)), "--dist", "loadfile"]
if DURATIONS.exists():
    FILES_AT_ONCE.append("--no-loadscope-reorder")  # which would put those with most tests first
measured: dict[str, float] = {}


def run_gtest(binary: pathlib.Path, shard: int = 0, num_shards: int = 1) -> tuple[int, int]:
    """Passed and failed tests of one GoogleTest binary, or of a part of them; a crash counts as one failure."""
    # A folder of its own: parts of a binary run the same code beside each other.
    with tempfile.TemporaryDirectory(prefix="inflight-", ignore_cleanup_errors=True) as folder:
        report = pathlib.Path(folder) / "report.json"
        start = time.monotonic()
        try:
            done = subprocess.run(
                [binary, f"--gtest_output=json:{report}", "--gtest_brief=1"], timeout=TIMEOUT_S, check=False,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env=dict(os.environ, GTEST_TOTAL_SHARDS=str(num_shards), GTEST_SHARD_INDEX=str(shard),
                         TEST_TMPDIR=folder, TMPDIR=folder),
            )
            code, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            code, output = -1, late.stdout or b""
        try:
            result = json.loads(report.read_text())
            total, failed = result["tests"] - result.get("disabled", 0), result["failures"]
            tests = [test for suite in result["testsuites"] for test in suite["testsuite"]]
            skipped = sum(test["result"] == "SKIPPED" for test in tests)
        except (OSError, ValueError, KeyError):
            total, failed, skipped = 0, 0, 0
    total -= skipped
    if code != 0 and failed == 0:
        total, failed = total + 1, 1
    note = f", {skipped} skipped" if skipped else ""
    seconds = time.monotonic() - start
    measured[binary.name] = measured.get(binary.name, 0) + seconds
    part = f"part {shard + 1} of {num_shards}, " if num_shards > 1 else ""
    line = f"{binary.name}: {total - failed} passed, {failed} failed{note} ({part}{seconds:.1f} s)"
    print(output.decode(errors="replace") + line, flush=True)
    return total - failed, failed


def run_pytest(build: pathlib.Path) -> tuple[int, int]:
    """Passed and failed Python tests, run against the binaries of a build."""
    python = ROOT / ".venv/bin/python"
    if not python.exists():  # a machine with the packages of tests/requirements.txt of its own
        python = sys.executable
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        env = dict(os.environ, INFLIGHT_BIN_DIR=str(build / "bin"))
        paths = os.environ.get("INFLIGHT_PYTHON_TESTS", "tests").split()
        code = subprocess.run(
            [python, "-m", "pytest", "-q", *FILES_AT_ONCE, "--durations=5", f"--junitxml={report.name}", *paths],
            cwd=ROOT, env=env, check=False,
        ).returncode
        try:
            suite = ElementTree.parse(report.name).getroot().find("testsuite")
            counts = {key: int(suite.get(key)) for key in ("tests", "failures", "errors", "skipped")}
            for case in suite.iter("testcase"):
                add_python_test(case.get("classname", ""), float(case.get("time", 0)))
        except (ElementTree.ParseError, AttributeError):
            return 0, 1
    failed = counts["failures"] + counts["errors"]
    passed = counts["tests"] - failed - counts["skipped"]
    return passed, failed if failed or code == 0 else 1


def add_python_test(classname: str, seconds: float) -> None:
    """Adds the time of one test to that of its file; `classname` is the file's path with dots, and a class's name maybe."""
    parts = classname.split(".")
    for end in range(len(parts), 0, -1):
        path = "/".join(parts[:end]) + ".py"
        if (ROOT / path).is_file():
            measured[path] = measured.get(path, 0) + seconds
            return


def main() -> int:
    build = pathlib.Path(sys.argv[1]).resolve()
    suites = sys.argv[2:] or ["unit", "simulation", "golden", "python"]
    durations = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    passed = failed = 0
    binaries = [path for path in sorted((build / "bin").glob("*_test")) if SUITES.get(path.name, "unit") in suites]
    binaries.sort(key=lambda path: (-durations.get(path.name, 0), path.name not in LONGEST))
    # A GPU runs one at a time: each takes most of its memory.
    with concurrent.futures.ThreadPoolExecutor(1 if "cuda" in suites else AT_ONCE) as pool:
        running = []
        for binary in binaries:
            num_shards = AT_ONCE if durations.get(binary.name, 0) > SHARDED_S and "cuda" not in suites else 1
            running += [pool.submit(run_gtest, binary, shard, num_shards) for shard in range(num_shards)]
        for counts in (run.result() for run in running):
            passed, failed = passed + counts[0], failed + counts[1]
    if "python" in suites:
        counts = run_pytest(build)
        passed, failed = passed + counts[0], failed + counts[1]
    rounded = {name: round(seconds, 1) for name, seconds in sorted(measured.items())}
    (build / "durations.json").write_text(json.dumps(rounded, indent=1) + "\n")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
