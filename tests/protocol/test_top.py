# SPDX-License-Identifier: Apache-2.0
"""inflight top: what the metrics page says of models and GPUs, once into a pipe and anew in a terminal."""

import os
import pathlib
import pty
import signal
import subprocess
import sys

import requests

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tools"))
from command import INFLIGHT, ROOT, call, error, needs_terminal, run
from live_server import DEMO, start_server


def metric(server, family, model):
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
    [line] = [line for line in page.splitlines() if line.startswith(family + "{") and f'model="{model}"' in line]
    return float(line.rsplit(" ", 1)[1])


def test_one_sample_into_a_pipe(server):
    body = {"text_input": "The fox", "max_tokens": 3}
    for _ in range(2):
        assert requests.post(f"http://{server.http}/v2/models/ensemble/generate", json=body, timeout=60).ok
    models = run("top", server.metrics).stdout.split("\n\n")[0]  # GPUs of the machine stand behind
    head, *rows = models.splitlines()
    assert head.split()[:3] == ["model", "running", "queued"] and head.split()[-2:] == ["answered", "failed"]
    cells = {row.split()[0]: row.split() for row in rows}
    assert set(cells) == {"ensemble", "preprocessing", "tensorrt_llm", "postprocessing"}
    assert float(cells["ensemble"][-2]) == metric(server, "nv_inference_request_success", "ensemble") >= 2
    llm = cells["tensorrt_llm"]
    assert llm[1:6] == ["1", "0", "0", "-", "-"] and float(llm[7]) > 0
    for url in (f"http://{server.metrics}", f"http://{server.metrics}/metrics"):
        assert run("top", url).stdout.splitlines()[0] == head


def test_gpus_stand_below_the_models(tmp_path, monkeypatch):
    """A library of the management library's name stands in for it: two GPUs, the second without power readings."""
    source = ROOT / "src/protocol/metrics/fake_nvml.cc"
    call("c++", "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", source)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with_gpus = start_server(tmp_path)
    try:
        models, gpus = run("top", with_gpus.metrics).stdout.split("\n\n")
    finally:
        assert with_gpus.stop() == 0
    assert models.splitlines()[0].startswith("model ")
    head, *rows = gpus.splitlines()
    assert " ".join(head.split()) == "GPU busy % used GiB of GiB power W of W"
    assert [row.split() for row in rows] == [
        ["GPU-00", "25.0", "24.0", "80.0", "123.5", "700.0"],
        ["GPU-11", "0.0", "24.0", "96.0", "-", "-"],
    ]


def test_without_a_gpu_there_is_no_table_of_them(tmp_path):
    without = start_server(tmp_path, DEMO, "--allow-gpu-metrics=false")
    try:
        assert "GPU" not in run("top", without.metrics).stdout
    finally:
        assert without.stop() == 0


def test_what_is_no_metrics_page_is_an_error(server):
    assert "the server answers with status 404" in error("top", f"http://{server.http}/nothing")
    assert error("top", "http://127.0.0.1:1/").startswith("inflight: ")


def test_a_key_comes_from_a_file(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("a-key-of-this-test\n")
    guarded = start_server(tmp_path, DEMO, "--api-key-file", keys)
    try:
        said = error("top", guarded.metrics)
        assert "status 401" in said and said.endswith("; --api-key-file names the file of a key")
        assert run("top", guarded.metrics, "--api-key-file", keys).stdout.startswith("model ")
        assert run("ps", guarded.http, "--api-key-file", keys).stdout.startswith("MODEL ")
    finally:
        assert guarded.stop() == 0


@needs_terminal
def test_a_terminal_is_drawn_anew(server):
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        ["env", "--default-signal=INT", INFLIGHT, "top", server.metrics, "--interval-ms", "100"], stdout=end
    )  # programs that are started in the background ignore it
    os.close(end)
    shown = b""
    while shown.count(b"\x1b[H\x1b[2J") < 3:
        shown += os.read(terminal, 4096)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == -signal.SIGINT
    os.close(terminal)
    second = shown.split(b"\x1b[H\x1b[2J")[2].decode()
    [row] = [line.split() for line in second.splitlines() if line.startswith("tensorrt_llm")]
    assert row[4:6] == ["0.0", "0.0"]  # tokens a second between two looks
