# SPDX-License-Identifier: Apache-2.0
"""deploy/kubernetes/ fits the API that it is written for, itself, and a server that runs with its arguments.

The fields of a probe and their bounds are those of kubernetes/api/core/v1/types.go.
"""

import copy
import re

import jsonschema
import pytest
import requests
from custom_resources import INFERENCE_POOL
from live_server import DEMO, start_server
from manifests import documents

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


def by_kind(name):
    return {document["kind"]: document for document in documents(name)}


@pytest.fixture
def replicas():
    return by_kind("replicas.yaml")


@pytest.fixture
def pool():
    return by_kind("inference-pool.yaml")


def container_of(replicas):
    (container,) = replicas["Deployment"]["spec"]["template"]["spec"]["containers"]
    return container


def option(container, name):
    (found,) = [argument.split("=", 1)[1] for argument in container["args"] if argument.startswith(f"{name}=")]
    return found


def test_the_pool_is_one_of_the_api(pool):
    document = pool["InferencePool"]
    assert document["apiVersion"] == "inference.networking.k8s.io/v1"
    jsonschema.validate(document["spec"], INFERENCE_POOL)
    for field in ("selector", "targetPorts"):  # the check itself can fail
        broken = copy.deepcopy(document["spec"])
        del broken[field]
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, INFERENCE_POOL)


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
