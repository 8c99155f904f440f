# SPDX-License-Identifier: Apache-2.0
"""What holds for each manifest of this repository: it fits the schema of its kind, and names what the server has."""

import functools
import json
import re

import jsonschema
import pytest
import referencing
import yaml
from custom_resources import CUSTOM
from live_server import ROOT
from referencing.jsonschema import DRAFT202012

MANIFESTS = ROOT / "deploy/kubernetes"
SCHEMAS = ROOT / "build/helm/schemas"
ID = "https://kubernetes.io/api/_definitions.json"


def load_schemas():
    """{version: {"registry": …, "kinds": {(apiVersion, kind): schema}}} of the versions in build/helm."""
    files = sorted(SCHEMAS.glob("v*.json"))
    if not files:  # a failure in CI, which has them by scripts/install_deps.sh (tests/conftest.py)
        pytest.skip("this machine has no schemas of Kubernetes: scripts/fetch_helm.py brings them")
    found = {}
    for path in files:
        definitions = json.loads(path.read_text())
        definitions["$id"] = ID
        kinds = {}
        for name, schema in definitions["$defs"].items():
            for kind in schema.get("x-kubernetes-group-version-kind", []):
                version = "/".join(filter(None, (kind["group"], kind["version"])))
                kinds[version, kind["kind"]] = {"$ref": f"{ID}#/$defs/{name}"}
        resource = referencing.Resource.from_contents(definitions, default_specification=DRAFT202012)
        found[path.stem] = {"registry": resource @ referencing.Registry(), "kinds": kinds}
    return found


def check(document, schemas):
    """Fails where a manifest is none of its kind, in any version of Kubernetes."""
    key = document["apiVersion"], document["kind"]
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", document["metadata"]["name"]), document["metadata"]["name"]
    for version, schema in schemas.items():
        of_kind = CUSTOM.get(key) or schema["kinds"].get(key)
        assert of_kind, f"{key} is in no schema of {version}"
        validator = jsonschema.Draft202012Validator(of_kind, registry=schema["registry"])
        faults = [f"{fault.json_path}: {fault.message[:300]}" for fault in validator.iter_errors(document)]
        assert not faults, f"{document['kind']} {document['metadata']['name']}, {version}: {faults}"


@functools.cache
def flags():
    """{flag: (type, default and bounds)} of `inflight serve`, of the page that is what `inflight options` prints."""
    page = (ROOT / "docs/configuration.md").read_text()
    section = page.split("\n## inflight serve\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(--[\w-]+)` \| `\w+` \| ([\w ]+) \| ([^|]*) \|", section, re.MULTILINE)
    assert rows
    return {flag: (kind, bounds) for flag, kind, bounds in rows}


def check_arguments(arguments):
    """Fails where an argument is no flag of `inflight serve`, its value is of another type, or a flag is twice there."""
    seen = set()
    for argument in arguments:
        flag, _, value = argument.partition("=")
        assert flag in flags(), f"{argument}: no flag of inflight serve"
        kind, bounds = flags()[flag]
        assert flag not in seen or kind.startswith("list"), f"{flag} twice"
        seen.add(flag)
        if kind == "boolean":
            assert value in ("true", "false"), argument
        elif kind == "integer":
            assert re.fullmatch(r"-?\d+", value), argument
            low, high = re.search(r"(?:at least |\b)(\d+)(?: to (\d+))?$", bounds.split("; also")[0]).groups()
            assert int(low) <= int(value) <= int(high or value), f"{argument}: {bounds}"
        elif kind == "number":
            float(value)
        else:
            assert value, argument
            choices = bounds.split("; ")[-1].split(", ")
            if len(choices) > 1 and all(re.fullmatch(r"[\w-]+", choice) for choice in choices):
                assert value in choices, f"{argument}: {bounds}"


def check_container(container):
    """Fails where ports, probes, mounts and arguments of a container that runs the server do not fit each other."""
    assert container["command"] == ["inflight", "serve"]
    arguments = dict(argument.partition("=")[::2] for argument in container["args"])
    check_arguments(container["args"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    # The tables of a section have each default as "default N; bounds".
    for name, number in ports.items():
        assert number == int(arguments.get(f"--{name}-port") or re.search(r"default (\d+)", flags()[f"--{name}-port"][1])[1])
    assert arguments["--http-address"] == "0.0.0.0" and arguments.get("--grpc-address", "0.0.0.0") == "0.0.0.0"
    scheme = "HTTPS" if arguments.get("--http-use-ssl") == "true" else "HTTP"
    for probe, path in (("startupProbe", "ready"), ("readinessProbe", "ready"), ("livenessProbe", "live")):
        get = container[probe]["httpGet"]
        assert get["path"] == f"/v2/health/{path}" and get["port"] in ports and get.get("scheme", "HTTP") == scheme
    mounts = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
    environment = [variable.get("value", "") for variable in container.get("env", [])]
    for value in [*arguments.values(), *environment]:
        if value.startswith("/"):
            assert any(value == mount or value.startswith(f"{mount}/") for mount in mounts), f"{value} is in no volume"


def check_pod(pod):
    """Fails where a pod may do more than it needs, or lacks the time to end."""
    volumes = {volume["name"] for volume in pod.get("volumes", [])}
    for container in pod["containers"]:
        assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert "memory" in container["resources"]["limits"]
    context = pod["securityContext"]
    assert context["runAsNonRoot"] and context["runAsUser"] > 0 and context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False


def documents(name):
    """Of a file of deploy/kubernetes."""
    return [document for document in yaml.safe_load_all((MANIFESTS / name).read_text()) if document]


def of_kind(name, kind):
    return [document for document in documents(name) if document["kind"] == kind]


def runtime_container(runtime):
    (container,) = runtime["spec"]["containers"]
    return container


def without(words, *flags):
    """Arguments but for these flags."""
    return [word for word in words if word.partition("=")[0] not in flags]


def lws():
    """The template of the LeaderWorkerSet."""
    (found,) = of_kind("leader-worker-set.yaml", "LeaderWorkerSet")
    return found["spec"]["leaderWorkerTemplate"]
