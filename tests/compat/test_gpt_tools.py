# SPDX-License-Identifier: Apache-2.0
"""The tools of compat/layout/tools/gpt against all_models/gpt over the demo model, of releases with either kind of scalars."""

import json
import re

import numpy as np
import pytest
import requests
from folders import install
from tiny_models import DEMO
from tokenizers import Tokenizer

EXAMPLES = json.loads((DEMO / "demo_requests.json").read_text())
PROMPT, ANSWER = EXAMPLES[0]["text_input"], EXAMPLES[0]["expected"]
TOKENIZER = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
PROTOCOLS = {"http": "-i http -u localhost:$HTTP", "grpc": "-i grpc -u localhost:$GRPC"}


@pytest.fixture(scope="module", params=["0.5", "0.8"])
def served(request, tmp_path_factory):
    made = install(tmp_path_factory.mktemp("gpt") / "folder", "--release", request.param)
    made.environment["DEMO"] = str(DEMO)
    made.sh(
        """
        python3 tools/fill_template.py -i all_models/gpt/preprocessing/config.pbtxt tokenizer_dir:$DEMO
        python3 tools/fill_template.py -i all_models/gpt/postprocessing/config.pbtxt tokenizer_dir:$DEMO
        python3 tools/fill_template.py -i all_models/gpt/tensorrt_llm/config.pbtxt engine_dir:$DEMO
        python3 scripts/launch_triton_server.py --http_port $HTTP --grpc_port $GRPC --metrics_port $METRICS > server.log 2>&1
        """
    )
    made.wait_until_ready()
    yield made
    made.stop_servers()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("script", ["client.py", "client_async.py"])
def test_a_text_is_answered(served, script, protocol):
    flags = f"{PROTOCOLS[protocol]} --tokenizer_dir $DEMO -t '{PROMPT}' -o {len(TOKENIZER.encode(ANSWER).ids) + 4}"
    lines = served.sh(f"python3 tools/gpt/{script} {flags}").stdout.splitlines()
    assert re.fullmatch(r"\[INFO\] Latency: [\d.]+ ms", lines[0])
    assert lines[1] == f"Input: {PROMPT}"
    assert lines[2].startswith("Output: ") and ANSWER in lines[2]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_ensemble_answers_a_batch_as_its_models_do(served, protocol):
    output = served.sh(f"python3 tools/gpt/end_to_end_test.py {PROTOCOLS[protocol]} --tokenizer_dir $DEMO -o 6").stdout
    by_models = output.split("After postprocessing============\n")[1].split("\n====")[0]
    by_ensemble = output.split("After ensemble============\n")[1].rstrip("\n")
    assert by_models == by_ensemble and len(by_models.splitlines()) == 8
    [alone] = [line for line in by_models.splitlines() if line.startswith("Once upon a time")]
    body = {"text_input": "Once upon a time", "max_tokens": 6, "bad_words": "", "stop_words": "", "top_k": 1,
            "end_id": TOKENIZER.token_to_id("<|eot_id|>"), "pad_id": TOKENIZER.token_to_id("<|eot_id|>")}  # fmt: skip
    answer = requests.post(f"http://localhost:{served.http}/v2/models/ensemble/generate", json=body, timeout=60).json()
    assert answer["text_output"] == alone


@pytest.mark.parametrize("flags", ["-w -n 2 -p 3", "-m async -p 4 -c 4", "-i grpc -m async -p 4 -b 2 -s 5 -o 3"])
def test_the_benchmark_prints_latency_and_throughput(served, flags):
    url = "-u localhost:$GRPC" if "grpc" in flags else "-u localhost:$HTTP"
    for name in ("benchmark_core_model.py", "identity_test.py"):
        lines = served.sh(f"python3 tools/gpt/{name} {url} {flags}").stdout.splitlines()
        if "-w" in flags:
            assert lines.pop(0) == "[INFO] sending requests to warm up"
        batch, start, length = (2, 5, 3) if "-b 2" in flags else (8, 8, 10)
        assert lines[0] == f"[INFO] Batch size: {batch}, Start len: {start}, Output len: {length}"
        latency = float(re.fullmatch(r"\[INFO\] Latency: ([\d.]+) ms", lines[1])[1])
        throughput = float(re.fullmatch(r"\[INFO\] Throughput: ([\d.]+) sentences / sec", lines[2])[1])
        assert throughput == pytest.approx(1000 / latency * batch, rel=0.01)


def test_input_data_for_perf_analyzer_fits_the_model(served):
    served.sh("python3 tools/gpt/gen_input_data.py -s 5 -o 4 --num_samples 3")
    samples = json.loads((served.root / "input_data.json").read_text())["data"]
    metadata = requests.get(f"http://localhost:{served.http}/v2/models/tensorrt_llm", timeout=30).json()
    declared = {tensor["name"]: tensor for tensor in metadata["inputs"]}
    assert len(samples) == 3
    for name in set(samples[0]) & set(declared):
        assert len(samples[0][name]["shape"]) == len(declared[name]["shape"]) - 1, name  # without the batch
        assert np.prod(samples[0][name]["shape"]) == len(samples[0][name]["content"])
    assert samples[0]["input_ids"]["shape"] == [5] and samples[0]["request_output_len"]["content"] == [4]
    config = requests.get(f"http://localhost:{served.http}/v2/models/tensorrt_llm/config", timeout=30).json()
    assert {tensor["name"] for tensor in config["input"] if not tensor.get("optional")} <= set(samples[0])
