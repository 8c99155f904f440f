# SPDX-License-Identifier: Apache-2.0
"""Servers that run as the chart says: with its arguments and Secrets, and to their end by its hook, under load."""

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import textwrap
import threading
import time

import pytest
import requests
import tritonclient.grpc as triton
import yaml
from chart import container_of, render, values_of
from light_models import write_light_repository
from live_server import DEMO, ROOT, start_server
from llm_client import wait_until
from promql import named
from stand_ins import KEY_ID, S3, SECRET

KEY, METRICS_KEY = "key-of-a-client", "key-of-prometheus"
CLIENTS = 4
PAGE = ROOT / "docs/kubernetes.md"


def write_secret(folder, files):
    """Files as the kubelet lays them out: links into a folder that `..data` names, which is exchanged as a whole."""
    folder.mkdir(exist_ok=True)
    content = folder / f"..{time.monotonic_ns()}"
    content.mkdir()
    for name, data in files.items():
        (content / name).write_bytes(data)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    (folder / "..new").symlink_to(content.name)
    os.replace(folder / "..new", folder / "..data")


def access(keys):
    """The file of --access for {key: roles}."""
    rows = [{"name": key, "sha256": hashlib.sha256(key.encode()).hexdigest(), "roles": roles} for key, roles in keys.items()]
    return json.dumps({"keys": rows}).encode()


def local(arguments, mounts):
    """Arguments of a pod for a server of this machine: its volumes elsewhere, on free ports of loopback."""
    found = []
    for argument in arguments:
        flag, _, value = argument.partition("=")
        if flag.endswith(("-address", "-port")) or flag in ("--model", "--model-repository", "--device"):
            continue
        for path, folder in mounts.items():
            if value == path or value.startswith(f"{path}/"):
                value = f"{folder}{value.removeprefix(path)}"
        found.append(f"{flag}={value}")
    return found


def adapter_rules():
    """The rules of prometheus-adapter in docs/kubernetes.md."""
    text = re.search(r"\n((?:    .*\n)+)", PAGE.read_text().split("Rules of prometheus-adapter:\n", 1)[1])
    return yaml.safe_load(textwrap.dedent(text[1]))


def autoscaling_metrics(release):
    """[(metric, labels)] that an autoscaler of the chart reads."""
    if "ScaledObject" in release:
        triggers = release["ScaledObject"]["spec"]["triggers"]
        return [pair for trigger in triggers for pair in named(trigger["metadata"]["query"])[0]]
    rows = release["HorizontalPodAutoscaler"]["spec"]["metrics"]
    (external,) = [row["external"]["metric"] for row in rows if row["type"] == "External"]
    (rule,) = [rule for rule in adapter_rules()["externalRules"] if rule["name"]["as"] == external["name"]]
    matchers = ",".join(f'{label}="x"' for label in external["selector"]["matchLabels"])
    found = named(rule["metricsQuery"].replace("<<.LabelMatchers>>", matchers))[0]
    (series,) = [rule["seriesQuery"] for rule in adapter_rules()["rules"]]
    for metric in (row["pods"]["metric"] for row in rows if row["type"] == "Pods"):
        assert re.fullmatch(re.search(r'=~"(.*)"', series)[1], metric["name"]), "the adapter serves it"
        found.append((metric["name"], set(metric["selector"]["matchLabels"])))
    return found


@pytest.mark.parametrize("name", ["gpu-hub", "bucket"])
def test_what_scales_reads_what_a_server_exports(helm, families, name):
    release = render(helm, values_of(name))
    found = autoscaling_metrics(release)
    assert {metric for metric, _ in found} >= {"inflight_queue_ms_bucket", "nv_trt_llm_kv_cache_block_metrics"}
    for metric, labels in found:
        assert metric in families
        assert labels <= families[metric] | {"namespace", "service"}, "labels of the metric, and those that a scrape adds"


def test_the_labels_that_choose_a_series_have_one(helm, demo):
    """The values of the labels too, by the page itself."""
    page = requests.get(f"http://{demo.metrics}/metrics", timeout=30).text
    metrics = render(helm, values_of("gpu-hub"))["HorizontalPodAutoscaler"]["spec"]["metrics"]
    for metric in [row for row in metrics if row["type"] == "Pods"]:
        name, labels = metric["pods"]["metric"]["name"], metric["pods"]["metric"]["selector"]["matchLabels"]
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        lines = [line for line in page.splitlines() if line.startswith(f"{name}{{") and all(word in line for word in wanted)]
        assert len(lines) == 1, f"{name} {labels}"


@pytest.fixture(scope="module")
def secure(helm, tmp_path_factory, certificates):
    """A server with the arguments of the value set `secure`, and the folders of its Secrets."""
    work = tmp_path_factory.mktemp("secure")
    container = container_of(render(helm, values_of("secure")))
    write_secret(work / "keys", {"access.json": access({KEY: ["inference"], METRICS_KEY: ["metrics"]})})
    write_secret(work / "tls", {
        "tls.crt": certificates.server.certificate.read_bytes(), "tls.key": certificates.server.key.read_bytes(),
        "ca.crt": certificates.root.certificate.read_bytes(),
    })  # fmt: skip
    mounts = {"/etc/inflight/keys": work / "keys", "/etc/inflight/tls": work / "tls"}
    words = [word for word in local(container["args"], mounts) if not word.startswith("--exit-delay")]
    server = start_server(work, DEMO, *words)
    yield server, container, work
    assert server.stop() == 0


def infer(url, key, **options):
    return requests.post(f"{url}/v2/models/ensemble/generate", json={"text_input": "The fox", "max_tokens": 2}, timeout=60,
                         headers={"Authorization": f"Bearer {key}"}, **options)  # fmt: skip


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
def test_a_pod_with_keys_and_certificates_answers_probes_and_clients(secure, certificates):
    server, container, _ = secure
    url, trusted = f"https://{server.http}", {"verify": str(certificates.root.certificate)}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        get = container[probe]["httpGet"]
        assert get["scheme"] == "HTTPS"  # the kubelet verifies no certificate, and has neither key nor certificate
        assert requests.get(f"{url}{get['path']}", verify=False, timeout=30).status_code == 200
    assert infer(url, KEY, **trusted).ok
    assert infer(url, "another", **trusted).status_code == 401
    page = f"https://{server.metrics}/metrics"
    bearer = {"Authorization": f"Bearer {METRICS_KEY}"}
    pair = (str(certificates.client.certificate), str(certificates.client.key))
    assert requests.get(page, headers=bearer, cert=pair, timeout=30, **trusted).ok
    with pytest.raises((requests.exceptions.SSLError, requests.exceptions.ConnectionError)):
        requests.get(page, headers=bearer, timeout=30, **trusted)
    client = triton.InferenceServerClient(
        server.grpc, ssl=True, root_certificates=trusted["verify"], certificate_chain=pair[0], private_key=pair[1]
    )
    assert client.is_server_ready()
    client.close()


def test_a_secret_that_changes_is_in_force_without_a_restart(secure, certificates):
    server, _, work = secure
    url, trusted = f"https://{server.http}", {"verify": str(certificates.root.certificate)}
    before = (work / "keys/access.json").read_bytes()
    write_secret(work / "keys", {"access.json": access({"key-of-tomorrow": ["inference"]})})
    wait_until(lambda: infer(url, "key-of-tomorrow", **trusted).ok)
    assert infer(url, KEY, **trusted).status_code == 401
    write_secret(work / "keys", {"access.json": before})
    wait_until(lambda: infer(url, KEY, **trusted).ok)


def test_a_pod_of_a_bucket_downloads_into_its_volume(helm, tmp_path, monkeypatch):
    """The Secret's and the values' variables, the arguments, and a volume as the kubelet makes it: open to the group."""
    container = container_of(render(helm, values_of("bucket")))
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    repository = write_light_repository(tmp_path / "repository")
    for version in repository.glob("*/1"):
        (version / "note").write_text("a folder without files is none in a store\n")
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o2777)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with S3(region=variables["AWS_REGION"]) as store:
        store.put_folder(repository, "inflight")
        secret = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL_S3": f"http://{store.host}"}
        for name, value in (secret | variables | {"HOME": str(tmp_path), "no_proxy": "127.0.0.1"}).items():
            monkeypatch.setenv(name, value)
        (uri,) = [word.partition("=")[2] for word in container["args"] if word.startswith("--model-repository=")]
        words = [word for word in local(container["args"], {"/cache": cache}) if not word.startswith("--exit-delay")]
        server = start_server(tmp_path, None, f"--model-repository={uri}", *words)
        assert requests.get(f"http://{server.http}{container['readinessProbe']['httpGet']['path']}", timeout=30).ok
        assert requests.get(f"http://{server.http}/v2/models/identity/ready", timeout=30).ok
        assert server.stop() == 0
    kept = {path.read_bytes() for path in cache.rglob("*") if path.is_file()}
    assert {path.read_bytes() for path in repository.glob("*/config.pbtxt")} <= kept, "the models lie in the volume"
    assert (cache / "objects").stat().st_mode & 0o077 == 0


class Balancer:
    """Clients of a Service with two pods: one that ends is taken out some time after its hook began."""

    def __init__(self, urls):
        self.urls = list(urls)
        self.answers = {url: [] for url in urls}  # status of each request that was sent there
        self.lock = threading.Lock()
        self.ends = threading.Event()
        self.threads = [threading.Thread(target=self.ask, args=(i,)) for i in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def ask(self, turn):
        with requests.Session() as session:
            while not self.ends.is_set():
                with self.lock:
                    url = self.urls[turn % len(self.urls)]
                turn += 1
                try:
                    body = {"text_input": "The fox", "max_tokens": 24}
                    answer = session.post(f"http://{url}/v2/models/ensemble/generate", json=body, timeout=60)
                    status = answer.status_code if "text_output" in answer.json() else answer.text
                except (requests.RequestException, ValueError) as fault:
                    status = repr(fault)
                with self.lock:
                    self.answers[url].append(status)

    def take_out(self, url):
        with self.lock:
            self.urls.remove(url)
            return len(self.answers[url])

    def close(self):
        self.ends.set()
        for thread in self.threads:
            thread.join()


def test_a_pod_that_ends_loses_no_request(helm, tmp_path):
    """The hook's command, then SIGTERM, as the kubelet does; the endpoint is taken out late, near the end of the hook."""
    container = container_of(render(helm, values_of("cpu-claim") | {"drain": {"preStop": 1, "exitDelay": 1, "exitTimeout": 30}}))
    servers = []
    try:
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
            servers.append(start_server(tmp_path / name, DEMO, *local(container["args"], {})))
        one, other = servers
        load = Balancer([one.http, other.http])
        try:
            wait_until(lambda: all(len(answers) >= CLIENTS for answers in load.answers.values()))
            hook = container["lifecycle"]["preStop"]["exec"]["command"]
            before = len(load.answers[one.http])
            began = time.monotonic()
            with subprocess.Popen(hook) as running:
                # The server goes on as before while the hook runs; some learn of its end only after it.
                assert running.wait(60) == 0
            one.process.send_signal(signal.SIGTERM)
            wait_until(lambda: requests.get(f"http://{one.http}/v2/health/ready", timeout=30).status_code == 503)
            asked = load.take_out(one.http)
            assert asked > before, "requests came while the hook ran"
            assert one.process.wait(60) == 0
            assert time.monotonic() - began >= 1, "the hook left time for endpoints"
            seen = len(load.answers[other.http])
            wait_until(lambda: len(load.answers[other.http]) >= seen + CLIENTS)
        finally:
            load.close()
        answers = load.answers[one.http] + load.answers[other.http]
        assert set(answers) == {200}, [answer for answer in answers if answer != 200][:3]
        assert other.stop() == 0
    finally:
        for server in servers:
            with contextlib.suppress(ProcessLookupError):
                server.process.kill()
