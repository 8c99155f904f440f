# SPDX-License-Identifier: Apache-2.0
"""Where the tests of documents find what runs the binary and the server."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
for folder in ("protocol", "tools"):
    sys.path.insert(0, str(HERE.parent / folder))
