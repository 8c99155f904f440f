# SPDX-License-Identifier: Apache-2.0
"""Dashboards and rules of deploy/ in Debian's Prometheus, which scrapes a server under load: each panel shows something, each
rule is evaluated, and each alert fires where it should."""

import shutil
import subprocess
import time

import pytest
import requests
import yaml
from free_ports import free_port
from live_server import DEMO, ROOT, start_server
from promql import named
from test_rules import DASHBOARDS, OF_GPUS, RULES, alerts, panels, rules

PACKAGE = ROOT / "build/prometheus/usr/bin"  # where install_deps.sh unpacks Debian's
PATIENCE_S = 60
INTERVAL = "5s"


def program(name):
    found = shutil.which(name, path=str(PACKAGE)) or shutil.which(name)
    if found is None:
        # Not of test.sh alone: the package starts a server, so that only CI's dependencies unpack it. There it must be.
        pytest.skip(f"this machine has no {name}, which scripts/install_deps.sh ci unpacks in build/prometheus")
    return found


def expression_of(target):
    """As Grafana sends it where all servers and models are chosen."""
    text = target["expr"].replace("$__rate_interval", INTERVAL)
    return text.replace("$instance", ".*").replace("$model", ".*")


class Prometheus:
    def __init__(self, folder, metrics_address):
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "inflight", "static_configs": [{"targets": [metrics_address]}]}],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
        self.address = f"127.0.0.1:{free_port()}"
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [program("prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address={self.address}"],
                stdout=log, stderr=log,
            )  # fmt: skip

    def get(self, path, **query):
        """The data of an answer; none while it starts."""
        try:
            answer = requests.get(f"http://{self.address}/api/v1/{path}", params=query, timeout=30)
        except requests.ConnectionError:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            return None
        if answer.status_code == 503:
            return None
        body = answer.json()
        assert body["status"] == "success", f"{query}: {body}"
        return body["data"]

    def query(self, expression):
        data = self.get("query", query=expression)
        return data["result"] if data else []

    def wait(self, found, what):
        until = time.monotonic() + PATIENCE_S
        while not found():
            assert time.monotonic() < until, f"{what} after {PATIENCE_S} s"
            time.sleep(0.25)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = start_server(tmp_path_factory.mktemp("scraped"), DEMO)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def prometheus(server, tmp_path_factory):
    started = Prometheus(tmp_path_factory.mktemp("prometheus"), server.metrics)
    try:
        started.wait(lambda: started.query("up == 1"), "the server is not scraped")
        ask(server)
        yield started
    finally:
        started.process.terminate()
        started.process.wait(60)


def ask(server):
    """Answers, streams, and requests that fail."""
    url = f"http://{server.http}/v2/models/ensemble"
    for number in range(4):
        body = {"text_input": f"{number} + 30 =", "max_tokens": 8}
        assert requests.post(f"{url}/generate", json=body, timeout=60).ok
        assert requests.post(f"{url}/generate_stream", json={**body, "stream": True}, timeout=60).ok
    assert not requests.post(f"{url}/generate", json={"text_input": "x", "max_tokens": -1}, timeout=60).ok
    chat = {"model": "demo", "messages": [{"role": "user", "content": "2 + 2"}], "max_tokens": 4}
    requests.post(f"http://{server.http}/v1/chat/completions", json=chat, timeout=60)


def targets():
    return [
        pytest.param(expression_of(target), id=f"{dashboard.stem}: {panel['title']}: {target['legendFormat']}")
        for dashboard in DASHBOARDS
        for panel in panels(dashboard)
        for target in panel["targets"]
    ]


@pytest.mark.parametrize("expression", targets())
def test_a_panel_shows_something(prometheus, expression):
    if any(OF_GPUS.fullmatch(metric) for metric, _ in named(expression)[0]):
        prometheus.query(expression)  # a server without a GPU has none; it is well formed
        return
    prometheus.wait(lambda: prometheus.query(expression), f"nothing from {expression}")


def test_rules_are_evaluated(prometheus):
    def states():
        groups = (prometheus.get("rules") or {"groups": []})["groups"]
        return [rule for group in groups for rule in group["rules"]]

    prometheus.wait(lambda: states() and all(rule["health"] == "ok" for rule in states()), "rules are not evaluated")
    assert len(states()) == len(rules())
    assert [rule["name"] for rule in states() if rule["type"] == "alerting" and rule["state"] == "firing"] == []
    for rule in rules():
        if "record" in rule:
            prometheus.wait(lambda name=rule["record"]: prometheus.query(name), f"nothing from {rule['record']}")


def buckets(metric, **counts):
    """Of a histogram that grows by these each minute."""
    return {f'{metric}_bucket{{model="m",le="{edge.lstrip("_")}"}}': f"0+{n}x30" for edge, n in counts.items()}


ACTIVE = 'nv_trt_llm_request_metrics{instance="a",model="m",request_type="active"}'
STEPS = 'inflight_step_ms_count{instance="a",model="m"}'
USED, MOST = (f'nv_trt_llm_kv_cache_block_metrics{{instance="a",model="m",kv_cache_block_type="{k}"}}' for k in ("used", "max"))
SUCCESS = 'nv_inference_request_success{instance="a",model="m"}'
OTHER, REJECTED = (f'nv_inference_request_failure{{instance="a",model="m",reason="{k}"}}' for k in ("OTHER", "REJECTED"))
GPU_USED, GPU_TOTAL = (f'nv_gpu_memory_{k}_bytes{{instance="a",gpu_uuid="g"}}' for k in ("used", "total"))
FIRST, QUEUE = "inflight_time_to_first_token_ms", "inflight_queue_ms"
# By alert: series, a value each minute, of which it fires, and series of which it does not.
CASES = {
    "InflightDown": ({'up{job="inflight",instance="a"}': "1 0x29"}, {'up{job="inflight",instance="a"}': "1x30"}),
    "InflightRequestsFail": ({SUCCESS: "0+90x30", OTHER: "0+10x30"}, {SUCCESS: "0+98x30", OTHER: "0+2x30"}),
    "InflightRequestsRejected": ({REJECTED: "0+1x30"}, {REJECTED: "5x30"}),
    "InflightFirstTokenSlow": (
        buckets(FIRST, _5000=90, _10000=100, **{"+Inf": 100}), buckets(FIRST, _2500=100, _5000=100, **{"+Inf": 100}),
    ),
    "InflightQueueSlow": (
        buckets(QUEUE, _2000=80, _5000=100, **{"+Inf": 100}), buckets(QUEUE, _2000=95, _5000=100, **{"+Inf": 100}),
    ),
    "InflightStuck": ({ACTIVE: "1x30", STEPS: "7x30"}, {ACTIVE: "1x30", STEPS: "0+600x30"}),
    "InflightRequestMemoryFull": (
        {'inflight_request_memory_refused_total{instance="a"}': "0+1x30"},
        {'inflight_request_memory_refused_total{instance="a"}': "3x30"},
    ),
    "InflightKvCacheFull": ({USED: "96x30", MOST: "100x30"}, {USED: "90x30", MOST: "100x30"}),
    "InflightGpuMemoryFull": ({GPU_USED: "99x30", GPU_TOTAL: "100x30"}, {GPU_USED: "97x30", GPU_TOTAL: "100x30"}),
}  # fmt: skip


def test_each_alert_fires_where_it_should(tmp_path):
    def case(alert, series, samples):
        expected = [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if samples else []
        expression = f'count by (alertname) (ALERTS{{alertname="{alert}",alertstate="firing"}})'
        return {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [{"expr": expression, "eval_time": "25m", "exp_samples": expected}],
        }

    assert set(CASES) == {rule["alert"] for rule in alerts()}
    tests = [case(alert, both[i], i == 0) for alert, both in CASES.items() for i in range(2)]
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([program("promtool"), "test", "rules", file], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_does_not_answer_is_told(prometheus, server):
    """Last: the server ends."""
    server.stop()

    def pending():
        found = (prometheus.get("alerts") or {"alerts": []})["alerts"]
        return [alert["labels"] for alert in found if alert["labels"]["alertname"] == "InflightDown"]

    prometheus.wait(pending, "InflightDown is not told of")
    assert pending()[0]["instance"] == server.metrics
