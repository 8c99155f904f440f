# SPDX-License-Identifier: Apache-2.0
"""Order of test files, and what may be skipped.

The longest files come first, so that workers which take one file at a time end together; no test depends on it. A copy of
the durations.json that scripts/run_tests.py writes is read, where it is here.

A skip whose reason begins with "this machine" is for what CI's machine has: a failure where INFLIGHT_TEST_WHOLE_MACHINE=1
(.ci/run); src/base/machine_fixture.h says the same of GoogleTest.
"""

import json
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "compat"))  # release_repositories: the releases' repositories, from their tables
FILE = ROOT / "tests/durations.json"
DURATIONS = json.loads(FILE.read_text()) if FILE.exists() else {}


IS_WHOLE_MACHINE = os.environ.get("INFLIGHT_TEST_WHOLE_MACHINE") == "1"


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: -DURATIONS.get(str(item.path.relative_to(ROOT)), 0))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    report = (yield).get_result()
    if IS_WHOLE_MACHINE and report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason.startswith("this machine"):
            report.outcome, report.longrepr = "failed", f"skipped where nothing may be (INFLIGHT_TEST_WHOLE_MACHINE): {reason}"
