# SPDX-License-Identifier: Apache-2.0
"""What tests of packages have in common: where they run, CI's part `tests` among it, and where they do not."""

import re
import shutil

import pytest
from command import BUILD

CACHE = (BUILD / "CMakeCache.txt").read_text()
MARKS = [
    pytest.mark.skipif(
        not shutil.which("dpkg-shlibdeps"), reason="this machine has no dpkg-dev, by which Debian's package is made"
    ),
    pytest.mark.skipif(
        bool(re.search(r"INFLIGHT_SANITIZERS:STRING=\w", CACHE)),
        reason="a build with sanitizers is for tests alone; CI's part `tests` packages one that is not",
    ),
]
