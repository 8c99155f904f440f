# SPDX-License-Identifier: Apache-2.0
"""The manifests of deploy/kubernetes: what Kubernetes and its platforms take, with flags and ports that the server has."""

import pytest
from manifests import MANIFESTS, check, check_arguments, check_pod, documents, lws, of_kind, runtime_container

FILES = sorted(path.name for path in MANIFESTS.glob("*.yaml"))


@pytest.mark.parametrize("name", FILES)
def test_kubernetes_takes_each_manifest(schemas, name):
    for document in documents(name):
        check(document, schemas)


def test_a_runtime_of_kserve_has_what_the_platform_asks_for():
    """The platform's names: kserve/kserve/pkg/constants/constants.go."""
    runtimes = {runtime["metadata"]["name"]: runtime for runtime in of_kind("kserve.yaml", "ServingRuntime")}
    for service in of_kind("kserve.yaml", "InferenceService"):
        predictor = service["spec"]["predictor"]
        runtime = runtimes[predictor["model"]["runtime"]]
        formats = {form["name"] for form in runtime["spec"]["supportedModelFormats"]}
        assert predictor["model"]["modelFormat"]["name"] in formats
        container = runtime_container(runtime)
        assert container["name"] == "kserve-container"
        assert any(word in container["args"] for word in ("--model=/mnt/models", "--model-repository=/mnt/models"))
        arguments = dict(word.partition("=")[::2] for word in container["args"])
        assert arguments["--http-port"] == "8080"
        assert {port["containerPort"] for port in container["ports"]} == {8080}
        check_arguments([word.replace("{{.Name}}", "name") for word in container["args"]])
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe]["httpGet"]["port"] == 8080
        grace = predictor["terminationGracePeriodSeconds"]
        assert int(arguments["--exit-delay-secs"]) + int(arguments["--exit-timeout-secs"]) < grace
        assert runtime["spec"]["annotations"]["prometheus.kserve.io/port"] == "8002"  # --metrics-port, where it is not given


def test_ranks_of_a_leader_worker_set_fit_its_size():
    template = lws()
    leader, worker = (template[name]["spec"] for name in ("leaderTemplate", "workerTemplate"))
    (first,), (other,) = leader["containers"], worker["containers"]
    assert first["args"] == other["args"], "all ranks have the same command line"
    assert f"--tensor-parallel-size={template['size']}" in first["args"]
    check_arguments(first["args"])
    for pod in (leader, worker):
        check_pod(pod)
    assert leader["terminationGracePeriodSeconds"] == worker["terminationGracePeriodSeconds"]
    assert not any(name.endswith("Probe") for name in other), "a rank above 0 opens no port"
    (service,) = of_kind("leader-worker-set.yaml", "Service")
    assert service["spec"]["selector"].items() <= template["leaderTemplate"]["metadata"]["labels"].items()
    assert not service["spec"]["selector"].items() <= template["workerTemplate"]["metadata"]["labels"].items()


def test_replicas_have_no_more_rights_than_they_need():
    (deployment,) = of_kind("replicas.yaml", "Deployment")
    check_pod(deployment["spec"]["template"]["spec"])
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    check_arguments(container["args"])
