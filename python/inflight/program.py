# SPDX-License-Identifier: Apache-2.0
"""Where the program is, and the demo model that comes with it."""

from __future__ import annotations

import os
import shutil
import sysconfig
from importlib import metadata
from pathlib import Path


def program() -> Path:
    """INFLIGHT of the environment; else the one that was installed with this package; else the one on the PATH."""
    asked = os.environ.get("INFLIGHT")
    if asked:
        return Path(asked)
    beside = Path(__file__).resolve().parent.parent / "bin" / "inflight"  # of `pip install --target`
    try:
        files = metadata.files("inflight") or []
    except metadata.PackageNotFoundError:
        files = []
    installed = [Path(str(file.locate())).resolve() for file in files if file.parts[-2:] == ("bin", "inflight")]
    schemes = [scheme for scheme in sysconfig.get_scheme_names() if scheme.startswith("posix")]
    folders = [sysconfig.get_path("scripts"), *(sysconfig.get_path("scripts", scheme) for scheme in schemes)]
    for path in [*installed, beside, *(Path(folder) / "inflight" for folder in folders)]:
        if path.is_file():
            return path
    found = shutil.which("inflight")
    if found is None:
        raise FileNotFoundError("the program inflight is not there: install the wheel or a package, or name it by INFLIGHT")
    return Path(found)


def demo_model() -> Path:
    """The folder of the demo model, beside the program: ../share/inflight/demo."""
    folder = program().resolve().parent.parent / "share" / "inflight" / "demo"
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} is not there: this program came without the demo model; name a model of yours")
    return folder
