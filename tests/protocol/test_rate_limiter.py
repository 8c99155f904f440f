# SPDX-License-Identifier: Apache-2.0
"""Resources that instances of models share (docs/reference/repositories.md, "Rate limiter")."""

import concurrent.futures
import re

import pytest
import requests
from conformance_models import add_model, infer_body, io
from live_server import start_server
from llm_client import wait_until


def add_slow(models, name, count):
    group = f'instance_group {{ count: 2 rate_limiter {{ resources {{ name: "R" count: {count} }} }} }}'
    add_model(models, name, "slow", io("input", "INPUT0", "[ 2 ]"), io("input", "DELAY", "[ 1 ]"),
              io("output", "OUTPUT0", "[ 2 ]"), group)  # fmt: skip


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    """Two R: a and b want one each, whole wants both, greedy more than there are."""
    folder = tmp_path_factory.mktemp("limited")
    for name, count in {"a": 1, "b": 1, "whole": 2, "greedy": 3}.items():
        add_slow(folder / "models", name, count)
    flags = ["--rate-limit=execution_count", "--rate-limit-resource=R:2", "--exit-on-error=false"]
    server = start_server(folder, None, "--model-repository", folder / "models", *flags, max_kv_tokens=None)
    yield server
    assert server.stop() == 0


def infer(server, model, delay_ms):
    body = infer_body([1, 2])
    body["inputs"].append({"name": "DELAY", "datatype": "INT32", "shape": [1], "data": [delay_ms]})
    return requests.post(f"http://{server.http}/v2/models/{model}/infer", json=body, timeout=60).json()["outputs"][0]["data"]


def state(server):
    """{model: (waiting, executed)}."""
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text

    def values(family):
        return dict(re.findall(rf'^{family}{{model="(\w+)",version="1"}} (\d+)$', page, re.MULTILINE))

    waiting, executed = values("nv_inference_pending_request_count"), values("nv_inference_count")
    return {model: (int(waiting[model]), int(executed[model])) for model in waiting}


def test_instances_wait_for_resources_that_others_hold(limited):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        whole, next_whole = (pool.submit(infer, limited, "whole", delay_ms) for delay_ms in (3000, 3000))
        wait_until(lambda: state(limited)["whole"] == (1, 0))  # one runs, although there are two instances
        others = [pool.submit(infer, limited, model, 0) for model in ("a", "b")]
        wait_until(lambda: state(limited)["whole"][1] or [state(limited)[model] for model in "ab"] == [(1, 0), (1, 0)])
        assert state(limited)["whole"] == (1, 0)
        assert [each.result() for each in (whole, next_whole, *others)] == [[1, 2]] * 4


def test_a_model_that_could_never_run_is_not_loaded(limited):
    index = requests.post(f"http://{limited.http}/v2/repository/index", timeout=30).json()
    [greedy] = [model for model in index if model["name"] == "greedy"]
    assert greedy["state"] == "UNAVAILABLE"
    assert "asks for 3 of resource 'R', there are 2: raise --rate-limit-resource R:3" in greedy["reason"]


def test_the_report_says_that_the_field_is_honoured(limited):
    log = limited.log.read_text()
    rows = re.findall(r"  instance_group\.rate_limiter +\S+ +file +(\S+)", log)
    assert set(rows) == {"honoured"}
