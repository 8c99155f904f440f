# SPDX-License-Identifier: Apache-2.0
"""What a server has counted, and whether that is what its clients saw."""

import json
import pathlib
import re
import time
import urllib.request

SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="([^"]*)"')
FAILURES = {"rejected": "REJECTED", "canceled": "CANCELED", "backend": "BACKEND"}


def get(url):
    with urllib.request.urlopen(url, timeout=30) as response:
        return response.read().decode()


class Counts:
    """One reading of the metrics page and of the statistics."""

    def __init__(self, server):
        self.samples = {}
        for line in get(f"http://{server.metrics}/metrics").splitlines():
            if match := SAMPLE.match(line):
                name, labels, value = match.groups()
                pairs = [pair for pair in LABEL.findall(labels or "") if pair[0] != "gpu_uuid"]  # one GPU, or none
                self.samples[name, frozenset(pairs)] = float(value)
        stats = json.loads(get(f"http://{server.http}/v2/models/stats"))["model_stats"]
        self.stats = {entry["name"]: entry for entry in stats}

    def metric(self, name, model, **labels):
        return self.samples[name, frozenset({"model": model, "version": "1", **labels}.items())]

    def gauge(self, family, kind):
        """A sample of nv_trt_llm_<family>_metrics by the label value that tells it apart."""
        name = f"nv_trt_llm_{family}_metrics"
        found = [v for (n, labels), v in self.samples.items() if n == name and kind in dict(labels).values()]
        assert len(found) == 1, (family, kind, found)
        return found[0]


def wait_until_idle(server, timeout_s=60):
    """The counts once no request is left; those whose clients have gone end with the next step."""
    deadline = time.monotonic() + timeout_s
    while True:
        counts = Counts(server)
        gauges = {kind: counts.gauge("request", kind) for kind in ("active", "scheduled", "context")}
        gauges["generation_requests"] = counts.gauge("inflight_batcher", "generation_requests")
        gauges["used"] = counts.gauge("kv_cache_block", "used")
        gauges["pending"] = counts.metric("nv_inference_pending_request_count", "tensorrt_llm")
        if not any(gauges.values()):
            return counts
        assert time.monotonic() < deadline, f"gauges did not return to 0: {gauges}"
        time.sleep(0.1)


def differences(before, after, tally):
    """Every number of the server that is not what the clients counted, as text; empty when all are equal.

    Requests whose clients do not know whether they were taken (`unknown`) may be missing, or be among the cancelled or
    rejected ones.
    """
    wrong = []

    def delta(name, model, **labels):
        return after.metric(name, model, **labels) - before.metric(name, model, **labels)

    def failures(model, reason):
        return delta("nv_inference_request_failure", model, reason=reason)

    def expect(what, got, low, high=None):
        if not low <= got <= (low if high is None else high):
            wrong.append(f"{what}: the server counts {got:g}, the clients {low}{'' if high is None else f' to {high}'}")

    ended = {end: tally.total(end) for end in ("success", *FAILURES, "unknown")}
    in_ensemble = {end: tally.total(end, model="ensemble") for end in ended}
    unknown, unknown_in_ensemble = ended["unknown"], in_ensemble["unknown"]

    for name in ("nv_inference_request_success", "nv_inference_count", "nv_inference_exec_count"):
        expect(f"{name} of the LLM", delta(name, "tensorrt_llm"), ended["success"])
        expect(f"{name} of the ensemble", delta(name, "ensemble"), in_ensemble["success"])
    for end, reason in FAILURES.items():
        high = None if end == "backend" else ended[end] + unknown
        expect(f"{reason} failures of the LLM", failures("tensorrt_llm", reason), ended[end], high)
        expect(f"{reason} failures of the ensemble", failures("ensemble", reason), 0)
    failed = sum(ended[end] for end in FAILURES)
    expect("failures of the LLM", sum(failures("tensorrt_llm", reason) for reason in FAILURES.values()), failed, failed + unknown)
    failed_in_ensemble = sum(in_ensemble[end] for end in FAILURES)
    expect(
        "OTHER failures of the ensemble", failures("ensemble", "OTHER"),
        failed_in_ensemble, failed_in_ensemble + unknown_in_ensemble,
    )  # fmt: skip
    expect("OTHER failures of the LLM", failures("tensorrt_llm", "OTHER"), 0)
    all_in_ensemble = in_ensemble["success"] + failed_in_ensemble
    expect(
        "successes of preprocessing", delta("nv_inference_request_success", "preprocessing"),
        all_in_ensemble, all_in_ensemble + unknown_in_ensemble,
    )  # fmt: skip
    expect(
        "successes of postprocessing", delta("nv_inference_request_success", "postprocessing"),
        tally.ensemble_responses, float("inf"),
    )  # fmt: skip

    expect("requests with a latency", delta("inflight_request_ms_count", "tensorrt_llm"), ended["success"])
    reasons = ("end_id", "stop_words", "length", "cancelled")
    finished = sum(delta("inflight_requests_finished_total", "tensorrt_llm", finish_reason=reason) for reason in reasons)
    expect("requests that ended for a reason", finished, ended["success"])
    expect("requests with lengths", delta("inflight_request_output_tokens_count", "tensorrt_llm"), ended["success"])
    expect("output tokens of successes", delta("inflight_request_output_tokens_sum", "tensorrt_llm"), tally.output_tokens)
    expect("prompt tokens of successes", delta("inflight_request_prompt_tokens_sum", "tensorrt_llm"), tally.prompt_tokens)
    generated = delta("inflight_tokens_generated_total", "tensorrt_llm")
    expect("generated tokens", generated, tally.output_tokens + tally.tokens_of_others, float("inf"))

    for model, metrics in after.stats.items():
        wrong += statistics_differences(model, before, after, metrics)
    expect("KV blocks used", after.gauge("kv_cache_block", "used"), 0)
    expect("KV blocks free", after.gauge("kv_cache_block", "free"), after.gauge("kv_cache_block", "max"))
    return wrong


def statistics_differences(model, before, after, entry):
    """The statistics extension and the metrics page are two views of the same counters."""
    wrong = []
    times, success = entry["inference_stats"], entry["inference_stats"]["success"]["count"]
    pairs = {
        "success": (success, after.metric("nv_inference_request_success", model)),
        "inference_count": (entry["inference_count"], after.metric("nv_inference_count", model)),
        "execution_count": (entry["execution_count"], after.metric("nv_inference_exec_count", model)),
        "fail": (
            times["fail"]["count"],
            sum(after.metric("nv_inference_request_failure", model, reason=r) for r in ("OTHER", *FAILURES.values())),
        ),
        "batches": (
            sum(batch["compute_infer"]["count"] for batch in entry["batch_stats"]),
            after.metric("inflight_step_ms_count", model) if model == "tensorrt_llm" else success,
        ),
    }
    pairs |= {part: (times[part]["count"], success) for part in ("queue", "compute_input", "compute_infer", "compute_output")}
    wrong += [f"statistics of {model}: {what}: {a} and {b:g}" for what, (a, b) in pairs.items() if a != b]
    parts = sum(times[part]["ns"] for part in ("queue", "compute_input", "compute_infer", "compute_output"))
    if parts > times["success"]["ns"]:
        wrong.append(f"statistics of {model}: parts of {parts} ns exceed the whole of {times['success']['ns']} ns")
    if entry["last_inference"] < before.stats[model]["last_inference"]:
        wrong.append(f"statistics of {model}: last_inference went back")
    return wrong


def memory_bytes(pid, field):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE).group(1)) * 1024


def rss_bytes(pid):
    return memory_bytes(pid, "VmRSS")


def forget_peak(pid):
    """From here on peak_rss_bytes is the most since now."""
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_rss_bytes(pid):
    return memory_bytes(pid, "VmHWM")
