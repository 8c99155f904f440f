#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the dashboards of deploy/grafana: rows of panels, three beside each other, by the table below.

usage: scripts/make_dashboards.py [--check]

--check writes nothing, and exits 1 where a file is not what would be written. tests/deploy/test_rules.py holds each
expression to what a server exports.
"""

import argparse
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "deploy/grafana"
SERVERS = 'instance=~"$instance"'
MODELS = f'{SERVERS},model=~"$model"'
ON_GPUS = "Servers with a GPU only."
WIDTH, HEIGHT, ACROSS = 8, 8, 3


def rate(metric, by="model", more=""):
    return f"sum by ({by}) (rate({metric}{{{MODELS}{more}}}[$__rate_interval]))"


def now(metric, by="model", more=""):
    return f"sum by ({by}) ({metric}{{{MODELS}{more}}})"


def quantiles(metric, *which, name=""):
    label = f"{{{{model}}}} {name}".rstrip()
    return [
        (f"histogram_quantile({q}, {rate(f'{metric}_bucket', 'model, le')})", f"{label} p{q * 100:g}")
        for q in which
    ]


def share(part, *whole):
    return f"{rate(part)} / ({' + '.join(rate(metric) for metric in whole)})"


def of_machine(metric):
    return f"{metric}{{{SERVERS}}}"


M = "{{model}}"
SUCCESS = "nv_inference_request_success"
TIMES = [(f"{rate(f'nv_inference_{part}_duration_us')} / {rate(SUCCESS)}", f"{M} {part.replace('_', ' ')}")
         for part in ("request", "queue", "compute_input", "compute_infer", "compute_output")]  # fmt: skip
REASONS = "REJECTED: refused by a queue. CANCELED: the client went. BACKEND: failed in the model. OTHER: of ensembles."

# Panels by what they show: title, unit, [(expression, legend)], and what is to be known of it.
REQUESTS = ("Requests", "reqps", [(rate(SUCCESS), M)], "")
FAILURES = ("Failures by reason", "reqps", [
    (rate("nv_inference_request_failure", "model, reason"), f"{M} {{{{reason}}}}")], REASONS)
WAITING = ("Waiting requests", "short", [(now("nv_inference_pending_request_count"), M)], "")
TOKENS = ("Tokens", "short", [
    (rate("inflight_tokens_generated_total"), f"{M} generated"), (rate("inflight_prompt_tokens_total"), f"{M} prompt"),
    (rate("inflight_prompt_tokens_cached_total"), f"{M} prompt, reused"),
], "A second.")  # fmt: skip
FIRST = ("Time to first token", "ms", quantiles("inflight_time_to_first_token_ms", 0.5, 0.95, 0.99), "")
BETWEEN = ("Time between tokens", "ms", quantiles("inflight_inter_token_ms", 0.5, 0.95, 0.99), "")
QUEUE = ("Time in the queue", "ms", quantiles("inflight_queue_ms", 0.5, 0.99), "From arrival to the first step.")
STEP = ("Time of a step", "ms", quantiles("inflight_step_ms", 0.5, 0.99), "")
LENGTHS = ("Tokens of a request", "short", [
    *quantiles("inflight_request_prompt_tokens", 0.5, 0.95, name="prompt"),
    *quantiles("inflight_request_output_tokens", 0.5, 0.95, name="output"),
], "")  # fmt: skip
KV_USE = ("KV cache in use", "percentunit", [(
    f'max by (instance, model) (nv_trt_llm_kv_cache_block_metrics{{{MODELS},kv_cache_block_type="fraction"}})',
    "{{instance}} {{model}}")], "1 is all blocks.")  # fmt: skip
KV_BLOCKS = ("KV blocks", "short", [
    (now("nv_trt_llm_kv_cache_block_metrics", "model, kv_cache_block_type", ',kv_cache_block_type=~"used|free|max"'),
     f"{M} {{{{kv_cache_block_type}}}}")], "")  # fmt: skip
KV_FOUND = ("KV blocks of prompts found in the cache", "percentunit", [
    (share("inflight_kv_blocks_reused_total", "inflight_kv_blocks_reused_total", "inflight_kv_blocks_missed_total"), M)], "")
KV_HOST = ("KV blocks to and from the host pool", "short", [
    (rate("inflight_kv_blocks_offloaded_total"), f"{M} out"),
    (rate("inflight_kv_blocks_onboarded_total"), f"{M} in")], "A second.")  # fmt: skip
IN_EXECUTOR = ("Requests in the executor", "short", [
    (now("nv_trt_llm_request_metrics", "model, request_type"), f"{M} {{{{request_type}}}}")], "")
ROWS = ("Rows of a step", "short", [
    (now("nv_trt_llm_inflight_batcher_metrics", "model, inflight_batcher_specific_metric",
         ',inflight_batcher_specific_metric=~"generation_requests|total_context_tokens|paused_requests"'),
     f"{M} {{{{inflight_batcher_specific_metric}}}}")], "")  # fmt: skip
DRAFTS = ("Draft tokens that became output", "percentunit", [
    (share("inflight_draft_tokens_accepted_total", "inflight_draft_tokens_total"), M)], "Models with speculation only.")
MODEL_MEMORY = ("Memory of models", "bytes", [
    (now("nv_trt_llm_runtime_memory_metrics", "model, memory_type"), f"{M} {{{{memory_type}}}}")], "")
LOAD_TIME = ("Time of the last load", "s", [
    (now("nv_model_load_duration_secs", "instance, model"), "{{instance}} {{model}}")], "")
PARTS = ("Mean time of a request and of its parts", "µs", TIMES, "")
BATCH = ("Batch size", "short", [(f"{rate('nv_inference_count')} / {rate('nv_inference_exec_count')}", M)], "")
HELD = ("Memory of requests", "bytes", [
    (of_machine("inflight_request_memory_bytes"), "{{instance}} held"),
    (of_machine("inflight_request_memory_limit_bytes"), "{{instance}} limit")], "What clients make the server hold.")
NO_ROOM = ("Requests without room", "reqps", [
    (f"sum by (instance) (rate({metric}{{{SERVERS}}}[$__rate_interval]))", f"{{{{instance}}}} {what}")
    for metric, what in (("inflight_request_memory_refused_total", "refused"),
                         ("inflight_request_memory_ended_total", "connections closed"))], "")  # fmt: skip
CPU = ("CPU", "percentunit", [(of_machine("nv_cpu_utilization"), "{{instance}}")], "")
MEMORY = ("Memory", "bytes", [
    (of_machine("nv_cpu_memory_used_bytes"), "{{instance}} used"),
    (of_machine("nv_cpu_memory_total_bytes"), "{{instance}} total")],
    "Of the machine.")  # fmt: skip
PINNED = ("Pinned memory", "bytes", [(of_machine("nv_pinned_memory_pool_used_bytes"), "{{instance}}")], ON_GPUS)
GPU = ("GPU", "percentunit", [(of_machine("nv_gpu_utilization"), "{{gpu_uuid}}")], ON_GPUS)
GPU_MEMORY = ("GPU memory", "bytes", [
    (of_machine("nv_gpu_memory_used_bytes"), "{{gpu_uuid}} used"),
    (of_machine("nv_gpu_memory_total_bytes"), "{{gpu_uuid}} total")],
    ON_GPUS)  # fmt: skip
GPU_FREE = ("GPU memory in use", "percentunit", [
    (f"{of_machine('nv_gpu_memory_used_bytes')} / {of_machine('nv_gpu_memory_total_bytes')}", "{{gpu_uuid}}")], ON_GPUS)
GPU_POWER = ("GPU power", "watt", [
    (of_machine("nv_gpu_power_usage"), "{{gpu_uuid}} used"), (of_machine("nv_gpu_power_limit"), "{{gpu_uuid}} limit"),
    (f"rate({of_machine('nv_energy_consumption')}[$__rate_interval])", "{{gpu_uuid}} mean")], ON_GPUS)  # fmt: skip
JOULES = ("Joules for a generated token", "joule", [
    (f"sum by (instance) (rate({of_machine('nv_energy_consumption')}[$__rate_interval])) / "
     f"sum by (instance) (rate({of_machine('inflight_tokens_generated_total')}[$__rate_interval]))", "{{instance}}")],
    f"{ON_GPUS} Of all GPUs of a server, for all of its models.")  # fmt: skip

# File: title, [(row, panels)].
DASHBOARDS = {
    "inflight": ("Inflight", [
        ("Requests", [REQUESTS, FAILURES, WAITING]), ("Answers", [TOKENS, FIRST, BETWEEN]), ("Room", [KV_USE, HELD, GPU_FREE])]),
    "llm": ("Inflight: language models", [
        ("Tokens", [TOKENS, LENGTHS, DRAFTS]), ("Times", [FIRST, BETWEEN, QUEUE, STEP]),
        ("Executor", [IN_EXECUTOR, ROWS, MODEL_MEMORY]), ("KV cache", [KV_USE, KV_BLOCKS, KV_FOUND, KV_HOST])]),
    "front-end": ("Inflight: front end", [
        ("Requests", [REQUESTS, FAILURES, WAITING, PARTS, BATCH]), ("Memory of requests", [HELD, NO_ROOM]),
        ("Machine", [CPU, MEMORY, LOAD_TIME])]),
    "gpu": ("Inflight: GPUs", [
        ("GPUs", [GPU, GPU_MEMORY, GPU_FREE, GPU_POWER, JOULES, PINNED]), ("Steps", [STEP, ROWS, MODEL_MEMORY])]),
}  # fmt: skip
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def variable(name, label, query):
    return {
        "name": name, "label": label, "type": "query", "datasource": SOURCE, "query": {"query": query, "refId": name},
        "refresh": 2, "includeAll": True, "multi": True, "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]}, "sort": 1,
    }  # fmt: skip


def timeseries(number, title, unit, targets, description, x, y):
    return {
        "id": number, "type": "timeseries", "title": title, "description": description, "datasource": SOURCE,
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
            for i, (expression, legend) in enumerate(targets)
        ],
    }  # fmt: skip


def dashboard(name, title, rows):
    panels, y = [], 0
    for row, of_row in rows:
        panels.append({"id": len(panels) + 1, "type": "row", "title": row, "collapsed": False,
                       "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}, "panels": []})  # fmt: skip
        y += 1
        for i, panel in enumerate(of_row):
            panels.append(timeseries(len(panels) + 1, *panel, x=i % ACROSS * WIDTH, y=y + i // ACROSS * HEIGHT))
        y += -(-len(of_row) // ACROSS) * HEIGHT
    return {
        "title": title, "uid": name if name == "inflight" else f"inflight-{name}", "tags": ["inflight", "llm"],
        "schemaVersion": 39, "version": 1, "editable": True, "timezone": "", "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [{"title": "Inflight", "type": "dashboards", "tags": ["inflight"], "asDropdown": True, "includeVars": True,
                   "keepTime": True}],
        "templating": {"list": [
            {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}},
            variable("instance", "Server", f"label_values({SUCCESS}, instance)"),
            variable("model", "Model", f'label_values({SUCCESS}{{instance=~"$instance"}}, model)'),
        ]},
        "annotations": {"list": []}, "panels": panels,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a file would change")
    check, stale = parser.parse_args().check, []
    for name, (title, rows) in DASHBOARDS.items():
        path, text = FOLDER / f"{name}.json", json.dumps(dashboard(name, title, rows), indent=1, ensure_ascii=False) + "\n"
        if check:
            if not path.exists() or path.read_text() != text:
                stale.append(path.name)
        else:
            path.write_text(text)
    if stale:
        sys.exit(f"{', '.join(stale)}: not what scripts/make_dashboards.py writes")


if __name__ == "__main__":
    main()
