# SPDX-License-Identifier: Apache-2.0
"""What gateways read of a replica, and how one that is to end leaves them time to notice.

The specifications are those of the model server protocol
(kubernetes-sigs/gateway-api-inference-extension/docs/proposals/003-model-server-protocol/) and the presets of
llm-d/llm-d-inference-scheduler/pkg/epp/framework/plugins/datalayer/extractor/metrics/factories.go; the page is parsed by
Prometheus' own client, and read as the latter's extractor reads it.
"""

import re
import shutil
import signal
import threading
import time

import grpc
import numpy as np
import pytest
import requests
import tritonclient.http as http
from live_server import DEMO, ROOT, start_server
from prometheus_client.parser import text_string_to_metric_families

GOLDEN = ROOT / "tests/golden"
# What a preset of the endpoint picker asks for: a family, with the labels that choose one of its series.
TRITON = {
    "queued": "nv_trt_llm_request_metrics{request_type=waiting}",
    "running": "nv_trt_llm_request_metrics{request_type=scheduled}",
    "kv usage": "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}",
    "block size": "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=tokens_per}",
    "blocks": "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=max}",
}
VLLM = {
    "queued": "vllm:num_requests_waiting",
    "running": "vllm:num_requests_running",
    "kv usage": "vllm:kv_cache_usage_perc",
}
INFO = "vllm:cache_config_info"
LORA = "vllm:lora_requests_info"


def families(server):
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
    return {family.name: family for family in text_string_to_metric_families(page)}


def series(page, specification):
    """The first series that has the labels, as the extractor takes it where none has a timestamp."""
    name, labels = re.fullmatch(r"([\w:]+)(?:\{(.*)\})?", specification).groups()
    wanted = dict(label.split("=") for label in labels.split(",")) if labels else {}
    assert page[name].type == "gauge"
    return next(s for s in page[name].samples if wanted.items() <= s.labels.items())


@pytest.fixture(scope="module")
def replica(tmp_path_factory):
    """llama_gqa2 with named adapters."""
    work = tmp_path_factory.mktemp("replica")
    shutil.copytree(GOLDEN / "lora/llama_gqa2/mlp_4", work / "adapters/mlp_4")
    server = start_server(
        work, GOLDEN / "data/llama_gqa2", "--metrics-vllm-names=true", "--http-metrics=true", "--lora-dir", work / "adapters",
        "--lora-modules", f"first={GOLDEN / 'lora/llama_gqa2/all_16'}", max_kv_tokens=8192,
    )  # fmt: skip
    yield server
    assert server.stop() == 0


def ask(server, name, tokens=4):
    """One answer of the model with an adapter."""
    inputs = []
    values = {
        "input_ids": np.array([[1, 2, 3]], np.int32),
        "input_lengths": np.array([[3]], np.int32),
        "request_output_len": np.array([[tokens]], np.int32),
    }
    for tensor, value in values.items():
        inputs.append(http.InferInput(tensor, value.shape, "INT32"))
        inputs[-1].set_data_from_numpy(value)
    with http.InferenceServerClient(server.http) as client:
        client.infer("tensorrt_llm", inputs, parameters={"lora_name": name})


def test_both_presets_read_the_same_load(replica):
    page = families(replica)
    values = {what: series(page, specification).value for what, specification in TRITON.items()}
    assert values["blocks"] * values["block size"] == 8192
    assert {what: series(page, specification).value for what, specification in VLLM.items()} == {
        what: values[what] for what in VLLM
    }
    info = series(page, INFO)
    assert (float(info.labels["block_size"]), float(info.labels["num_gpu_blocks"])) == (values["block size"], values["blocks"])
    assert info.value == 1


def test_dashboards_of_vllm_find_their_families(tmp_path):
    """Names and labels of vllm-project/vllm/vllm/v1/metrics/loggers.py; values are those of our own families."""
    other = start_server(tmp_path, DEMO, "--vllm-metrics=true")
    try:
        body = {"text_input": "The fox", "max_tokens": 5, "stream": True}
        for _ in range(3):
            assert requests.post(f"http://{other.http}/v2/models/ensemble/generate_stream", json=body, timeout=60).ok
        page = families(other)
    finally:
        assert other.stop() == 0

    def value(name, suffix="", labels=()):
        (sample,) = [s for s in page[name].samples if s.name == name + suffix and set(labels) <= set(s.labels.items())]
        return sample

    for theirs, ours in (("prompt_tokens", "prompt_tokens"), ("generation_tokens", "tokens_generated"),
                         ("prefix_cache_queries", "prompt_tokens"), ("prefix_cache_hits", "prompt_tokens_cached"),
                         ("spec_decode_num_draft_tokens", "draft_tokens"),
                         ("spec_decode_num_accepted_tokens", "draft_tokens_accepted")):  # fmt: skip
        found = value(f"vllm:{theirs}", "_total")
        assert page[f"vllm:{theirs}"].type == "counter"
        assert found.value == value(f"inflight_{ours}", "_total").value
        assert set(found.labels) == {"engine", "model_name"}
    assert value("vllm:generation_tokens", "_total").value == 15
    for theirs, ours, unit in (("time_to_first_token_seconds", "time_to_first_token_ms", 1000),
                               ("inter_token_latency_seconds", "inter_token_ms", 1000),
                               ("time_per_output_token_seconds", "inter_token_ms", 1000),
                               ("request_queue_time_seconds", "queue_ms", 1000),
                               ("e2e_request_latency_seconds", "request_ms", 1000),
                               ("request_prompt_tokens", "request_prompt_tokens", 1),
                               ("request_generation_tokens", "request_output_tokens", 1)):  # fmt: skip
        name, mine = f"vllm:{theirs}", f"inflight_{ours}"
        assert page[name].type == "histogram"
        model = {("model", value(name, "_count").labels["model_name"])}
        assert value(name, "_count").value == value(mine, "_count", model).value > 0
        assert value(name, "_sum").value * unit == pytest.approx(value(mine, "_sum", model).value)
        bounds = [float(s.labels["le"]) * unit for s in page[name].samples if s.name.endswith("_bucket")]
        ours_in_order = [s for s in page[mine].samples if s.name.endswith("_bucket") and model <= set(s.labels.items())]
        assert bounds == pytest.approx([float(s.labels["le"]) for s in ours_in_order])


def test_requests_end_for_the_reasons_of_vllm(tmp_path):
    """FinishReason of vllm-project/vllm/vllm/v1/engine/__init__.py, as the same file's counter has it for a label."""
    other = start_server(tmp_path, DEMO, "--vllm-metrics=true")
    url = f"http://{other.http}/v2/models/ensemble/generate"
    seconds = []

    def generate(text, max_tokens, **more):
        begun = time.monotonic()
        answer = requests.post(url, json={"text_input": text, "max_tokens": max_tokens, **more}, timeout=60)
        seconds.append(time.monotonic() - begun)
        return answer.json()["text_output"]

    try:
        cut = generate("Once upon a time", 12)
        generate("Once upon a time", 11)
        assert generate("What is 27 + 54?", 40).strip() == "27 + 54 = 81."  # ends by itself
        stopped = generate("Once upon a time", 12, stop_words=cut.split()[2])
        assert cut.startswith(stopped) and len(stopped) < len(cut)
        assert requests.post(url, json={"text_input": "Once " * 9000, "max_tokens": 5}, timeout=60).status_code >= 400
        page = families(other)
    finally:
        assert other.stop() == 0

    def counts(family, label):
        return {s.labels[label]: s.value for s in page[family].samples if s.name == f"{family}_total"}

    assert counts("vllm:request_success", "finished_reason") == {"stop": 2, "length": 2, "abort": 0}
    assert counts("inflight_requests_finished", "finish_reason") == {"end_id": 1, "stop_words": 1, "length": 2, "cancelled": 0}
    latency = {s.name.removeprefix("vllm:e2e_request_latency_seconds"): s.value
               for s in page["vllm:e2e_request_latency_seconds"].samples if not s.name.endswith("_bucket")}  # fmt: skip
    (first_tokens,) = [s.value for s in page["vllm:time_to_first_token_seconds"].samples if s.name.endswith("_sum")]
    assert latency["_count"] == 4
    assert first_tokens < latency["_sum"] < sum(seconds)


def test_adapters_that_are_loaded_are_named(replica):
    before = time.time()
    info = series(families(replica), LORA)
    assert (info.labels["running_lora_adapters"], info.labels["waiting_lora_adapters"]) == ("", "")
    assert before - 1 <= info.value <= time.time() + 1
    ask(replica, "first")
    ask(replica, "mlp_4")
    info = series(families(replica), LORA)
    assert info.labels["running_lora_adapters"].split(",") == ["mlp_4", "first"]
    ask(replica, "first")
    info = series(families(replica), LORA)
    assert info.labels["running_lora_adapters"].split(",") == ["first", "mlp_4"]
    assert int(info.labels["max_lora"]) >= 2
    assert info.labels["model_name"] == "tensorrt_llm"


def test_the_names_of_vllm_are_there_where_they_are_asked_for(server):
    page = families(server)
    assert not [name for name in page if name.startswith("vllm:")]
    for specification in TRITON.values():
        assert series(page, specification).value >= 0


def test_load_is_seen_while_requests_run(replica):
    """Values move: a request that runs holds blocks."""
    stop = threading.Event()

    def run():
        while not stop.is_set():
            ask(replica, "first", tokens=200)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        until = time.monotonic() + 60
        seen = {}
        while time.monotonic() < until and not (seen.get("running") and seen.get("kv usage")):
            page = families(replica)
            for what, specification in VLLM.items():
                seen[what] = max(seen.get(what, 0), series(page, specification).value)
        assert seen["running"] == 1 and 0 < seen["kv usage"] <= 1
    finally:
        stop.set()
        thread.join()


def test_the_http_port_has_the_page_where_it_is_asked_for(tmp_path, server, replica):
    assert requests.get(f"http://{server.http}/metrics", timeout=30).status_code == 404
    answer = requests.get(f"http://{replica.http}/metrics", timeout=30)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
    at_http = {family.name for family in text_string_to_metric_families(answer.text)}
    assert at_http == families(replica).keys()
    assert requests.post(f"http://{replica.http}/metrics", timeout=30).status_code == 405
    keys = tmp_path / "keys"
    keys.write_text("reads-metrics-0123456789abcdef\n")
    closed = start_server(tmp_path, DEMO, "--http-metrics=true", "--api-key-file", keys)
    try:
        url = f"http://{closed.http}/metrics"
        assert requests.get(url, timeout=30).status_code == 401
        assert requests.get(url, headers={"Authorization": f"Bearer {keys.read_text().strip()}"}, timeout=30).ok
    finally:
        assert closed.stop() == 0


def is_serving(server):
    """What grpc.health.v1.Health/Check says; its response's field 1 is the status, 1 being SERVING."""
    with grpc.insecure_channel(server.grpc) as channel:
        return channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=30) == b"\x08\x01"


def test_a_replica_that_is_to_end_is_not_ready_and_serves(tmp_path):
    server = start_server(tmp_path, DEMO, "--exit-delay-secs=3600")
    url = f"http://{server.http}/v2"
    body = {"text_input": "Once", "max_tokens": 2, "bad_words": "", "stop_words": ""}
    assert requests.get(f"{url}/health/ready", timeout=30).status_code == 200
    assert is_serving(server)
    server.process.send_signal(signal.SIGTERM)
    until = time.monotonic() + 60
    while (ready := requests.get(f"{url}/health/ready", timeout=30)).status_code == 200 and time.monotonic() < until:
        time.sleep(0.02)
    assert (ready.status_code, ready.json()) == (503, {"error": "Server exiting"})
    assert not is_serving(server)
    assert requests.get(f"{url}/health/live", timeout=30).status_code == 200
    assert requests.post(f"{url}/models/ensemble/generate", json=body, timeout=60).status_code == 200
    assert requests.get(f"http://{server.metrics}/metrics", timeout=30).ok
    assert server.process.poll() is None
    assert server.stop() == 0, "a second signal ends the delay"
    assert "Not ready any more; requests are taken for 3600 s." in server.log.read_text()
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{url}/health/live", timeout=30)


def test_the_delay_ends_by_itself(tmp_path):
    server = start_server(tmp_path, DEMO, "--exit-delay-secs=1")
    assert server.stop() == 0
    log = server.log.read_text()
    assert log.index("Not ready any more") < log.index("Waiting for in-flight requests to complete")
