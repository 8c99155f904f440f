# SPDX-License-Identifier: Apache-2.0
"""The chart of deploy/helm/inflight, rendered by Helm's own code (scripts/fetch_helm.py)."""

import importlib
import sys

import pytest
import yaml
from live_server import ROOT

CHART = ROOT / "deploy/helm/inflight"
VALUE_SETS = sorted((CHART / "ci").glob("*.yaml"))
FETCHED = ROOT / "build/helm"
# CI has it by scripts/install_deps.sh, and takes a skip for want of it as a failure (tests/conftest.py); Helm's package is
# for x86_64 alone.
MISSING = "this machine has no Helm: scripts/fetch_helm.py brings it"


def load_helm():
    """The module helm_python of build/helm."""
    if not (FETCHED / "helm_python/lib/libhelm_c.so").exists():
        pytest.skip(MISSING)
    if str(FETCHED) not in sys.path:
        sys.path.append(str(FETCHED))
    return importlib.import_module("helm_python")


def container_of(release):
    """Of the pods of a release, as render() gives it."""
    (container,) = release["Deployment"]["spec"]["template"]["spec"]["containers"]
    return container


def values_of(name):
    """The value set ci/<name>.yaml."""
    return yaml.safe_load((CHART / "ci" / f"{name}.yaml").read_text())


def render(helm, values, name="demo", namespace="prod"):
    """{kind: object} of a release; the notes under NOTES."""
    with helm.Chart.load(CHART) as chart:
        chart.validate_schema(values)
        texts = chart.render(values, name=name, namespace=namespace)
    found = {}
    for path, text in texts.items():
        if path.endswith("NOTES.txt"):
            found["NOTES"] = text
            continue
        for document in filter(None, yaml.safe_load_all(text)):
            assert document["kind"] not in found, f"{path}: a second {document['kind']}"
            found[document["kind"]] = document
    return found
