# SPDX-License-Identifier: Apache-2.0
"""Order of test files: the longest first, so that workers which take one file at a time end together.

No test depends on it. A copy of the durations.json that scripts/run_tests.py writes is read, where it is here.
"""

import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE = ROOT / "tests/durations.json"
DURATIONS = json.loads(FILE.read_text()) if FILE.exists() else {}


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: -DURATIONS.get(str(item.path.relative_to(ROOT)), 0))
