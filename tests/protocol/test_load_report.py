# SPDX-License-Identifier: Apache-2.0
"""ORCA load reports of the generate endpoints (docs/reference/protocol/http.md, "Load reports")."""

import json
import re

import pytest
import requests

FORMAT, REPORT = "endpoint-load-metrics-format", "endpoint-load-metrics"
TEXT = re.compile(r"TEXT named_metrics\.kv_cache_utilization=(\S+), named_metrics\.max_token_capacity=(\d+)")


def blocks(server):
    """The samples of the metrics page by their kind."""
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
    pattern = r'nv_trt_llm_kv_cache_block_metrics\{kv_cache_block_type="(\w+)".*\} (\S+)'
    return {kind: float(value) for kind, value in re.findall(pattern, page)}


@pytest.mark.parametrize(("endpoint", "stream"), [("generate", False), ("generate_stream", True)])
def test_the_report_is_that_of_the_metrics_page(server, endpoint, stream):
    url = f"http://{server.http}/v2/models/ensemble/{endpoint}"
    body = {"text_input": "Q: What is 12 + 7?\nA:", "max_tokens": 8, "stream": stream}
    for kind in ("text", "json"):
        answer = requests.post(url, json=body, headers={FORMAT: kind}, timeout=60)
        assert answer.status_code == 200, answer.text
        report = answer.headers[REPORT]
        if kind == "text":
            utilization, capacity = TEXT.fullmatch(report).groups()
        else:
            named = json.loads(report.removeprefix("JSON "))["named_metrics"]
            utilization, capacity = named["kv_cache_utilization"], named["max_token_capacity"]
            assert set(named) == {"kv_cache_utilization", "max_token_capacity"}
        page = blocks(server)
        assert int(capacity) == page["max"] * page["tokens_per"]
        used = float(utilization) * page["max"]  # as of then: a whole number of blocks
        assert used == pytest.approx(round(used), abs=1e-6)
        assert 0 <= used <= page["max"]


def test_without_a_known_format_there_is_no_report(server):
    url = f"http://{server.http}/v2/models/ensemble/generate"
    for headers in ({}, {FORMAT: "xml"}):
        answer = requests.post(url, json={"text_input": "Q: What is 1 + 1?\nA:", "max_tokens": 2}, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        assert REPORT not in answer.headers
    assert "endpoint-load-metrics-format is neither" in server.log.read_text()
