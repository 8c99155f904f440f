# SPDX-License-Identifier: Apache-2.0
"""What --metrics-config adds to the metrics page and takes from it."""

import re

import pytest
import requests
from conformance_models import add_identity, infer_body
from live_server import start_server

BUCKETS = 'model_metrics { metric_control { metric_identifier { family: "nv_inference_first_response_histogram_ms" }\n\
  histogram_options { buckets: [ 0.001, 60000 ] } } }'


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    add_identity(folder, "plain")
    add_identity(folder, "own_buckets", BUCKETS)
    return folder


def page_after_infer(tmp_path, repository, *words):
    """The samples of a server that has answered one request of each model: {name and labels: value}."""
    flags = [f"--metrics-config={word}" for word in words]
    server = start_server(tmp_path, None, "--model-repository", repository, *flags)
    for model in ("plain", "own_buckets"):
        url = f"http://{server.http}/v2/models/{model}/infer"
        assert requests.post(url, json=infer_body([1, 2]), timeout=30).ok
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
    assert server.stop() == 0
    return {name: value for name, value in re.findall(r"^([^#\s]\S*) (\S+)$", page, re.MULTILINE)}


def test_by_default_there_are_counters_alone(tmp_path, repository):
    samples = page_after_infer(tmp_path, repository)
    assert any("_duration_us" in name for name in samples)
    assert not any("summary" in name or "first_response" in name for name in samples)


def test_summaries_and_histograms_instead_of_counters(tmp_path, repository):
    samples = page_after_infer(
        tmp_path, repository, "counter_latencies=false", "histogram_latencies=true", "summary_latencies=true",
        "summary_quantiles=0.25:0.01,0.5:0.05",
    )  # fmt: skip
    assert not any("_duration_us" in name for name in samples)
    plain = 'model="plain",version="1"'
    for part in ("request", "queue", "compute_input", "compute_infer", "compute_output"):
        family = f"nv_inference_{part}_summary_us"
        assert samples[f"{family}_count{{{plain}}}"] == "1"
        total = float(samples[f"{family}_sum{{{plain}}}"])
        # Of one value each quantile is that value.
        quantiles = {name: value for name, value in samples.items() if name.startswith(f"{family}{{{plain},quantile=")}
        assert {name.split('quantile="')[1] for name in quantiles} == {'0.25"}', '0.5"}'}
        assert all(float(value) == pytest.approx(total) for value in quantiles.values())
    family = "nv_inference_first_response_histogram_ms"
    bounds = [name.split('le="')[1].rstrip('"}') for name in samples if name.startswith(f"{family}_bucket{{{plain}")]
    assert bounds == ["100", "500", "2000", "5000", "+Inf"]
    assert samples[f"{family}_count{{{plain}}}"] == "1"
    own = 'model="own_buckets",version="1"'
    assert samples[f'{family}_bucket{{{own},le="0.001"}}'] == "0"
    assert samples[f'{family}_bucket{{{own},le="60000"}}'] == "1"
