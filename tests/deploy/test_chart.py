# SPDX-License-Identifier: Apache-2.0
"""The chart, rendered by Helm itself: objects that Kubernetes takes, with flags, ports and paths that the server has."""

import copy
import re

import pytest
import yaml
from chart import CHART, VALUE_SETS, container_of, render, values_of
from live_server import ROOT
from manifests import check, check_container, check_pod, flags

NAMES = [path.stem for path in VALUE_SETS]
PAGE = ROOT / "docs/kubernetes.md"


@pytest.fixture(scope="module")
def releases(helm):
    """{value set: {kind: object}}."""
    return {name: render(helm, values_of(name)) for name in NAMES}


def argument(release, flag):
    found = [word.partition("=")[2] for word in container_of(release)["args"] if word.partition("=")[0] == flag]
    return found[0] if found else None


def test_there_are_six_value_sets():
    assert len(NAMES) >= 6


@pytest.mark.parametrize("name", NAMES)
def test_helm_finds_no_fault(helm, name):
    report = helm.lint(CHART, values_of(name), strict=True, kube_version="v1.28.0")
    assert report["errors"] == []
    assert [message["error"] for message in report["messages"] if message["severity"] > 1] == []


@pytest.mark.parametrize("name", NAMES)
def test_objects_are_what_kubernetes_takes(releases, schemas, name):
    for kind, document in releases[name].items():
        if kind != "NOTES":
            check(document, schemas)


def test_a_wrong_object_would_be_found(releases, schemas):
    """The check itself can fail, in Kubernetes' own kinds and in others."""
    for name, kind, where in (
        ("cpu-claim", "Deployment", ("spec", "template", "spec")), ("bucket", "ScaledObject", ("spec",)),
        ("bucket", "ServiceMonitor", ("spec",)), ("cpu-claim", "NetworkPolicy", ("spec",)),
    ):  # fmt: skip
        wrong = copy.deepcopy(releases[name][kind])
        inner = wrong
        for step in where:
            inner = inner[step]
        inner["replicaz"] = 1
        with pytest.raises(AssertionError, match="replicaz"):
            check(wrong, schemas)


@pytest.mark.parametrize("name", NAMES)
def test_the_server_has_what_the_pod_names(releases, name):
    deployment = releases[name]["Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    check_pod(pod)
    check_container(container_of(releases[name]))
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert selector.items() <= labels.items()
    selectors = [releases[name]["Service"]["spec"]["selector"]]
    for kind in ("PodDisruptionBudget", "InferencePool"):
        if kind in releases[name]:
            selectors.append(releases[name][kind]["spec"]["selector"]["matchLabels"])
    if "NetworkPolicy" in releases[name]:
        selectors.append(releases[name]["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"])
    selectors += [spread["labelSelector"]["matchLabels"] for spread in pod["topologySpreadConstraints"]]
    assert all(found == selector for found in selectors)
    names = {port["name"] for port in container_of(releases[name])["ports"]}
    assert {port["targetPort"] for port in releases[name]["Service"]["spec"]["ports"]} == names


@pytest.mark.parametrize("name", NAMES)
def test_a_pod_has_time_to_start_and_to_end(releases, name):
    values, container = values_of(name), container_of(releases[name])
    pod = releases[name]["Deployment"]["spec"]["template"]["spec"]
    hook = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    delay, timeout = int(argument(releases[name], "--exit-delay-secs")), int(argument(releases[name], "--exit-timeout-secs"))
    assert hook + delay + timeout < pod["terminationGracePeriodSeconds"]
    ready = container["readinessProbe"]
    assert ready["periodSeconds"] * ready["failureThreshold"] < hook + delay
    startup = container["startupProbe"]
    budget = values.get("probes", {}).get("startup", {}).get("budget", 600)
    assert startup["periodSeconds"] * startup["failureThreshold"] >= budget
    assert releases[name]["Deployment"]["spec"]["progressDeadlineSeconds"] > budget


def test_models_come_from_a_claim_the_hub_or_a_bucket(releases):
    assert argument(releases["cpu-claim"], "--model-repository") == "/models"
    assert argument(releases["gateway"], "--model") == "/models/llama-3.1-8b"
    assert argument(releases["gpu-hub"], "--model") == "meta-llama/Llama-3.1-8B-Instruct"
    assert {"name": "HF_HUB_CACHE", "value": "/hub"} in container_of(releases["gpu-hub"])["env"]
    bucket = container_of(releases["bucket"])
    assert argument(releases["bucket"], "--model-repository") == "s3://models/inflight"
    assert argument(releases["bucket"], "--remote-cache-dir").startswith("/cache/"), "a folder of the server's own"
    assert bucket["envFrom"] == [{"secretRef": {"name": "inflight-s3"}}]
    assert argument(releases["ranks"], "--model") == "gs://models/llama-3.1-70b"
    path = {variable["name"]: variable["value"] for variable in container_of(releases["ranks"])["env"]}
    assert path["TRITON_CLOUD_CREDENTIAL_PATH"] == "/etc/inflight/bucket/credentials.json"


@pytest.mark.parametrize("name", ["org/name", "org/name:Q8_0", "org/name@refs/pr/1", "org/name:Q4_K_M@v1.0"])
def test_a_name_of_the_hub_says_what_the_server_reads(helm, name):
    """Those of artifact/hub_cache.h, "HubId"."""
    assert argument(render(helm, {"model": {"source": "hub", "hub": {"name": name}}}), "--model") == name


def test_gpus_are_asked_for_and_used(releases):
    assert "nvidia.com/gpu" not in container_of(releases["cpu-claim"])["resources"]["limits"]
    assert argument(releases["cpu-claim"], "--device") == "cpu"
    for name, count in (("gpu-hub", "1"), ("ranks", "4")):
        assert container_of(releases[name])["resources"]["limits"]["nvidia.com/gpu"] == count
        assert argument(releases[name], "--device") == "cuda"
    assert argument(releases["gpu-hub"], "--tensor-parallel-size") is None
    assert argument(releases["ranks"], "--tensor-parallel-size") == "4"
    memory = {mount["mountPath"]: mount["name"] for mount in container_of(releases["ranks"])["volumeMounts"]}
    assert memory["/dev/shm"] == "shared-memory"


def test_large_numbers_and_lists_are_flags(releases):
    assert argument(releases["secure"], "--request-memory-byte-size") == "2147483648"
    words = container_of(releases["ranks"])["args"]
    assert [word for word in words if word.startswith("--lora-modules")] == [
        "--lora-modules=first=/models/first", "--lora-modules=second=/models/second",
    ]  # fmt: skip
    assert argument(releases["gateway"], "--metrics-vllm-names") == "true"


def test_secrets_are_files_of_the_group_alone(releases):
    pod = releases["secure"]["Deployment"]["spec"]["template"]["spec"]
    secrets = {volume["name"]: volume["secret"] for volume in pod["volumes"] if "secret" in volume}
    assert {name: secret["secretName"] for name, secret in secrets.items()} == {"keys": "inflight-keys", "tls": "inflight-tls"}
    assert all(secret["defaultMode"] == 0o440 for secret in secrets.values())
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsUser"]
    assert releases["secure"]["ServiceAccount"]["automountServiceAccountToken"] is False


def test_whoever_may_reach_a_pod_is_named(releases):
    for name in NAMES:
        if "NetworkPolicy" not in releases[name]:
            assert "no network policy" in releases[name]["NOTES"]
            continue
        policy = releases[name]["NetworkPolicy"]["spec"]
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        assert all(rule["from"] for rule in policy["ingress"])
        ports = [{port["port"] for port in rule["ports"]} for rule in policy["ingress"]]
        assert ports == [{"http", "grpc"}, {"metrics"}]
        is_bucket = values_of(name).get("model", {}).get("source") == "bucket"
        assert bool(policy["egress"]) == is_bucket, "what has its model calls nobody"
    monitoring = releases["bucket"]["NetworkPolicy"]["spec"]["ingress"][1]["from"][0]["namespaceSelector"]["matchLabels"]
    assert monitoring == {"kubernetes.io/metadata.name": "monitoring"}


def test_metrics_are_scraped_as_the_rules_ask(releases):
    rules = (CHART.parents[1] / "prometheus/rules.yaml").read_text()
    job = re.search(r'up\{job="(\w+)"\}', rules)[1]
    for name in ("bucket", "secure"):
        monitor = releases[name]["ServiceMonitor"]["spec"]
        labels = releases[name]["Service"]["metadata"]["labels"]
        assert monitor["selector"]["matchLabels"].items() <= labels.items()
        assert labels[monitor["jobLabel"]] == job
        (endpoint,) = monitor["endpoints"]
        assert endpoint["port"] in {port["name"] for port in releases[name]["Service"]["spec"]["ports"]}
    (secure,) = releases["secure"]["ServiceMonitor"]["spec"]["endpoints"]
    assert secure["scheme"] == "https" and secure["authorization"]["credentials"]["name"] == "inflight-metrics-key"
    assert {"ca", "cert", "keySecret", "serverName"} == set(secure["tlsConfig"])


def test_what_scales_owns_the_number_of_pods(releases):
    for name, kind in (("gpu-hub", "HorizontalPodAutoscaler"), ("bucket", "ScaledObject")):
        deployment = releases[name]["Deployment"]
        assert "replicas" not in deployment["spec"]
        target = releases[name][kind]["spec"]["scaleTargetRef"]
        assert (target["apiVersion"], target["kind"], target["name"]) == (
            deployment["apiVersion"], deployment["kind"], deployment["metadata"]["name"],
        )  # fmt: skip
    assert releases["gateway"]["Deployment"]["spec"]["replicas"] == 3


def test_the_route_leads_to_the_pool(releases):
    release = releases["gateway"]
    (rule,) = release["HTTPRoute"]["spec"]["rules"]
    assert {match["path"]["value"] for match in rule["matches"]} == {"/v1/", "/v2/models/"}
    (backend,) = rule["backendRefs"]
    assert backend["name"] == release["InferencePool"]["metadata"]["name"]
    (port,) = release["InferencePool"]["spec"]["targetPorts"]
    assert port["number"] == {port["name"]: port["containerPort"] for port in container_of(release)["ports"]}["http"]
    assert argument(release, "--http-metrics") == "true", "a picker reads /metrics of the pool's port"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replica": 2}, "replica"),
        ({"device": "tpu"}, "device"),
        ({"model": {"source": "hub"}}, "hub"),
        ({"model": {"source": "hub", "hub": {"name": "org/name:"}}}, "name"),
        ({"model": {"source": "bucket"}}, "uri"),
        ({"model": {"source": "bucket", "bucket": {"uri": "http://models"}}}, "uri"),
        ({"model": {"claim": {"path": "../other"}}}, "path"),
        ({"options": {"http_port": 1}}, "http_port"),
        ({"options": {"http-port": 1}}, "http-port"),
        ({"ports": {"http": 70000}}, "http"),
        ({"keys": {"format": "yaml"}}, "format"),
        ({"autoscaling": {"kvUse": 80}}, "kvUse"),
    ],
)
def test_wrong_values_are_refused_by_name(helm, values, said):
    with pytest.raises(helm.HelmError, match=said):
        render(helm, values)


def test_each_value_is_explained_by_its_schema(helm):
    """values.yaml has no value that the schema does not know, and the other way round."""
    def walk(values, schema, path=""):
        assert set(values) == set(schema["properties"]) - {"global"}, path
        for name, value in values.items():
            inner = schema["properties"][name]
            if isinstance(value, dict) and "properties" in inner:
                walk(value, inner, f"{path}.{name}")

    walk(yaml.safe_load((CHART / "values.yaml").read_text()), load_schema(helm))


def test_notes_tell_what_is_open(releases):
    assert "WARNING: no keys" in releases["cpu-claim"]["NOTES"]
    assert "WARNING" not in releases["secure"]["NOTES"]
    assert "https://localhost:8000" in releases["secure"]["NOTES"]
    assert "--timeout=720s" in releases["cpu-claim"]["NOTES"]


def test_commands_of_the_page_are_ones_that_helm_takes(helm, releases):
    """docs/kubernetes.md: values that it sets, values and files that it names, flags."""
    page = PAGE.read_text()
    values = helm.parse_set_string(",".join(re.findall(r"--set ([\w.]+=[^\s\\]+)", page)))
    pod = render(helm, values)["Deployment"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"].startswith("registry.example.org/inflight:")
    assert pod["volumes"][1]["persistentVolumeClaim"]["claimName"] == "models"
    (options,) = re.findall(r"^    (options: \{.*\})$", page, re.MULTILINE)
    words = container_of(render(helm, yaml.safe_load(options)))["args"]
    assert {"--max-queue-size=512", "--kv-cache-dtype=fp8", "--lora-modules=first=/models/first"} <= set(words)
    for path in re.findall(r"`((?:\w+\.)+\w+)`", page):
        top = path.split(".")[0]
        schema = load_schema(helm)
        if top not in schema["properties"]:
            continue
        for step in path.split("."):
            assert step in schema.get("properties", {}), f"{path}: no value of the chart"
            schema = schema["properties"][step]
    for flag in re.findall(r"`(--[a-z][\w-]+)[=\s`]", page):
        assert flag in flags(), flag


def load_schema(helm):
    with helm.Chart.load(CHART) as chart:
        return chart.schema
