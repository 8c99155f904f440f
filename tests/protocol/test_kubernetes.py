# SPDX-License-Identifier: Apache-2.0
"""deploy/kubernetes/ fits the API that it is written for, itself, and a server that runs with its arguments.

The fields of an InferencePool and their bounds are those of
kubernetes-sigs/gateway-api-inference-extension/config/crd/bases/inference.networking.k8s.io_inferencepools.yaml, of a
Deployment and a Service those of kubernetes/api/apps/v1/types.go and kubernetes/api/core/v1/types.go.
"""

import copy
import re

import jsonschema
import pytest
import requests
import yaml
from live_server import DEMO, ROOT, start_server

FOLDER = ROOT / "deploy/kubernetes"
PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
LABELS = {
    "type": "object", "minProperties": 1, "maxProperties": 64,
    "additionalProperties": {"type": "string", "maxLength": 63, "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"},
}  # fmt: skip
NUMBERED = {"type": "object", "required": ["number"], "additionalProperties": False, "properties": {"number": PORT}}
POOL = {
    "type": "object", "required": ["selector", "targetPorts"], "additionalProperties": False,
    "properties": {
        "selector": {
            "type": "object", "required": ["matchLabels"], "additionalProperties": False, "properties": {"matchLabels": LABELS},
        },
        "targetPorts": {"type": "array", "minItems": 1, "maxItems": 8, "items": NUMBERED},
        "appProtocol": {"enum": ["http", "kubernetes.io/h2c"]},
        "endpointPickerRef": {
            "type": "object", "required": ["name", "port"], "additionalProperties": False,  # the port: of a Service
            "properties": {
                "group": {"type": "string", "maxLength": 253}, "kind": {"type": "string", "minLength": 1, "maxLength": 63},
                "name": {"type": "string", "minLength": 1, "maxLength": 253}, "port": NUMBERED,
                "failureMode": {"enum": ["FailOpen", "FailClose"]},
            },
        },
    },
}  # fmt: skip
PROBE = {
    "type": "object", "required": ["httpGet"], "additionalProperties": False,
    "properties": {
        "httpGet": {
            "type": "object", "required": ["port"], "additionalProperties": False,
            "properties": {"path": {"type": "string"}, "port": {"type": "string"}},
        },
        **{name: {"type": "integer", "minimum": 1} for name in ("periodSeconds", "timeoutSeconds", "failureThreshold")},
    },
}  # fmt: skip
# llm-d/llm-d-inference-scheduler/pkg/epp/framework/plugins/datalayer/extractor/metrics/factories.go
ENGINES = {"vllm", "sglang", "trtllm-serve", "triton-tensorrt-llm"}


def documents(name):
    return {document["kind"]: document for document in yaml.safe_load_all((FOLDER / name).read_text())}


@pytest.fixture
def replicas():
    return documents("replicas.yaml")


@pytest.fixture
def pool():
    return documents("inference-pool.yaml")


def container_of(replicas):
    (container,) = replicas["Deployment"]["spec"]["template"]["spec"]["containers"]
    return container


def option(container, name):
    (found,) = [argument.split("=", 1)[1] for argument in container["args"] if argument.startswith(f"{name}=")]
    return found


def test_the_pool_is_one_of_the_api(pool):
    document = pool["InferencePool"]
    assert document["apiVersion"] == "inference.networking.k8s.io/v1"
    jsonschema.validate(document["spec"], POOL)
    for field in ("selector", "targetPorts"):  # the check itself can fail
        broken = copy.deepcopy(document["spec"])
        del broken[field]
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, POOL)


def test_the_pool_has_the_pods_and_their_port(replicas, pool):
    template = replicas["Deployment"]["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert pool["InferencePool"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (port,) = pool["InferencePool"]["spec"]["targetPorts"]
    ports = {port["name"]: port["containerPort"] for port in container_of(replicas)["ports"]}
    assert port["number"] == ports["http"]
    assert labels["llm-d.ai/engine-type"] in ENGINES
    assert "--http-metrics=true" in container_of(replicas)["args"], "a picker reads /metrics of the pool's port"


def test_the_route_leads_to_the_pool(pool):
    (rule,) = pool["HTTPRoute"]["spec"]["rules"]
    (backend,) = rule["backendRefs"]
    document = pool["InferencePool"]
    assert (backend["group"], backend["kind"], backend["name"]) == (
        document["apiVersion"].split("/")[0], document["kind"], document["metadata"]["name"],
    )  # fmt: skip


def test_the_deployment_selects_its_pods(replicas):
    deployment, service = replicas["Deployment"], replicas["Service"]
    assert (deployment["apiVersion"], service["apiVersion"]) == ("apps/v1", "v1")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert service["spec"]["selector"].items() <= labels.items()
    names = {port["name"] for port in container_of(replicas)["ports"]}
    for port in service["spec"]["ports"]:
        assert port["targetPort"] in names
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", port["name"])
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        jsonschema.validate(container_of(replicas)[probe], PROBE)
        assert container_of(replicas)[probe]["httpGet"]["port"] in names


def test_a_pod_has_time_to_end(replicas):
    """The grace counts from SIGTERM on, as the delay does; unready is seen within the delay."""
    container = container_of(replicas)
    delay, timeout = int(option(container, "--exit-delay-secs")), int(option(container, "--exit-timeout-secs"))
    assert delay + timeout < replicas["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    ready = container["readinessProbe"]
    assert ready["periodSeconds"] * ready["failureThreshold"] < delay


def test_a_server_with_these_arguments_answers_the_probes(tmp_path, replicas):
    container = container_of(replicas)
    assert container["command"] == ["inflight", "serve", "--model-repository", "/models"]
    arguments = [argument.replace("0.0.0.0", "127.0.0.1") for argument in container["args"]]
    arguments = [argument for argument in arguments if not argument.startswith("--exit-delay-secs")]
    server = start_server(tmp_path, DEMO, *arguments)
    try:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert requests.get(f"http://{server.http}{container[probe]['httpGet']['path']}", timeout=30).status_code == 200
        assert requests.get(f"http://{server.http}/metrics", timeout=30).ok
    finally:
        assert server.stop() == 0
