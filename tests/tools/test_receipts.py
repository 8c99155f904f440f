# SPDX-License-Identifier: Apache-2.0
"""`inflight serve --receipts` and `inflight verify`: an answer that was made among others computes again alone, and
what was changed since is found.

Hashes are hashlib's, tokens those of `tokenizers`.
"""

import concurrent.futures
import copy
import hashlib
import json
import os
import random
import shutil
import struct
import sys

import numpy as np
import pytest
import requests
import tritonclient.grpc as grpc
from command import DEMO, ROOT, demo_of_another_weight, error, run
from tokenizers import Tokenizer

sys.path.insert(0, str(ROOT / "tests/protocol"))
sys.path.insert(0, str(ROOT / "compat"))
from live_server import DEVICE, DTYPE, serving, start_server
from release_repositories import write_repository

NUM_REQUESTS = int(os.environ.get("INFLIGHT_TEST_RECEIPTS", 64))
TEXTS = ("Once upon a time", "The quick brown fox", "2 + 3 =", "A field of computer science that", "In the beginning")
PROMPTS = [f"{TEXTS[i % len(TEXTS)]} {'and so on ' * (i % 9)}{i // 9}" for i in range(NUM_REQUESTS)]
BIAS = {"logit_bias": {"17": 3}}
TOKENIZER = Tokenizer.from_file(str(DEMO / "tokenizer.json"))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Of few blocks, so that requests also wait for those of others, with drafts."""
    folder = tmp_path_factory.mktemp("receipts")
    options = ("--scheduler-policy", "max_utilization", "--kv-block-size", "16", "--speculation", "ngram")
    running = start_server(folder, DEMO, "--receipts", "--max-seq-len", "512", *options, max_kv_tokens=4096)
    yield running
    assert running.stop() == 0, running.log.read_text()[-4000:]


def post(server, path, body):
    answer = requests.post(f"http://{server.http}{path}", json=body, timeout=120)
    assert answer.ok, answer.text
    return answer.json()


def events(server, path, body):
    with requests.post(f"http://{server.http}{path}", json=body, timeout=120, stream=True) as answer:
        assert answer.ok, answer.text
        lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def with_receipt(told):
    """The receipt of a stream, which one event carries."""
    (found,) = [event["receipt"] for event in told if "receipt" in event]
    return found


def complete(server, number):
    """The answer to one request among others, whole or in a stream, greedy or drawn."""
    draw = random.Random(number)
    body = {"prompt": PROMPTS[number], "max_tokens": draw.randint(1, 60), "seed": draw.getrandbits(63), "ignore_eos": True}
    body["temperature"] = 0 if number % 4 == 0 else 0.9
    if number % 4 == 1:
        body.update(top_p=0.8, frequency_penalty=0.3)
    if number % 8 == 3:
        return body, with_receipt(events(server, "/v1/completions", {**body, "stream": True}))
    return body, post(server, "/v1/completions", body)["receipt"]


@pytest.fixture(scope="module")
def answers(server):
    with concurrent.futures.ThreadPoolExecutor(NUM_REQUESTS) as clients:
        return list(clients.map(lambda number: complete(server, number), range(NUM_REQUESTS)))


@pytest.fixture(scope="module")
def receipt(answers):
    """One that was drawn, and has several tokens."""
    return next(one for body, one in answers if body["temperature"] > 0 and len(one["outputs"][0]["ids"]) > 20)


def written(tmp_path, content):
    file = tmp_path / "receipt.json"
    file.write_text(json.dumps(content))
    return file


def verify(tmp_path, content, *options):
    return run("verify", written(tmp_path, content), "--model", DEMO, *options, check=False)


def differences(tmp_path, content, *options):
    done = verify(tmp_path, content, *options)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].endswith("the receipt is not verified"), done.stderr
    return done.stdout.splitlines()


def compact(value):
    return json.dumps(value, separators=(",", ":"))


def forged(receipt, change):
    """Changed, with hashes that fit again."""
    made = copy.deepcopy(receipt)
    change(made)
    parts = ("model", "kernels", "prompt", "parameters", "outputs")
    made["parts"] = {part: hashlib.sha256(compact(made[part]).encode()).hexdigest()[:16] for part in parts}
    digest = made.pop("digest")
    made["digest"] = hashlib.sha256(compact(made).encode()).hexdigest()
    assert made["digest"] != digest
    return made


def test_they_shared_steps(server, answers):
    told = requests.get(f"http://{server.http}/v2/models/tensorrt_llm/stats", timeout=30).json()["model_stats"][0]
    assert len(answers) == NUM_REQUESTS
    rows = max(int(step["batch_size"]) for step in told["batch_stats"])
    assert rows > NUM_REQUESTS // 2


def test_one_of_many_verifies_alone(tmp_path, receipt):
    done = verify(tmp_path, receipt)
    assert (done.returncode, done.stdout) == (0, "verified\n"), done.stderr


def test_all_of_them_verify(tmp_path, answers):
    done = verify(tmp_path, [one for _, one in answers], "--threads", "1")
    assert done.stdout.splitlines() == [f"receipt {i}: verified" for i in range(NUM_REQUESTS)], done.stderr
    assert done.returncode == 0


def test_it_says_what_was_asked_and_answered(answers):
    for body, receipt in answers:
        ids = TOKENIZER.encode(body["prompt"]).ids
        assert receipt["prompt"] == {
            "num_tokens": len(ids),
            "hash": hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest(),
            "ids": ids,
        }
        parameters = receipt["parameters"]
        assert parameters["max_tokens"] == body["max_tokens"]
        is_drawn = body["temperature"] > 0  # else no number is drawn, and there is no seed
        assert parameters["sampling"].get("seed") == (str(body["seed"]) if is_drawn else None)
        (output,) = receipt["outputs"]
        assert len(output["ids"]) == body["max_tokens"]
        assert output["end"] == "length"


def test_its_hashes_are_of_files_and_texts(receipt):
    others = ("tokenizer", "special_tokens_map", "generation_config")
    files = [file for file in sorted(DEMO.iterdir()) if file.suffix in (".json", ".safetensors")]
    whole = hashlib.sha256()
    for file in files:
        if file.name.startswith(others):
            continue
        content = file.read_bytes()
        whole.update(file.name.encode() + b"\0" + struct.pack("<Q", len(content)))
        for at in range(0, len(content), 16 << 20):
            whole.update(hashlib.sha256(content[at : at + (16 << 20)]).digest())
    assert receipt["model"]["weights"] == whole.hexdigest()
    with pytest.raises(AssertionError):  # nothing was changed, and the hashes that fit are those it has
        forged(receipt, lambda made: None)
    assert receipt["kernels"]["dtype"] == DTYPE
    assert receipt["kernels"]["table"].startswith(DEVICE)


def test_a_change_is_told_with_its_part(tmp_path, receipt):
    changed = copy.deepcopy(receipt)
    changed["outputs"][0]["ids"][5] ^= 1
    seen = receipt["outputs"][0]["ids"]
    assert differences(tmp_path, changed) == [
        "outputs: changed since the receipt was issued",
        f"output 0: token {seen[5] ^ 1} at position 5, the model gives {seen[5]}",
    ]
    changed = copy.deepcopy(receipt)
    changed["parameters"]["sampling"]["seed"] = "1"
    told = differences(tmp_path, changed)
    assert told[0] == "parameters: changed since the receipt was issued"
    assert told[1].startswith("output 0: token ")
    changed = copy.deepcopy(receipt)
    changed["digest"] = "0" * 64
    assert differences(tmp_path, changed) == ["digest: is not that of the receipt"]


def cut_ids(made):
    del made["outputs"][0]["ids"][-3:]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda made: made["outputs"][0]["ids"].__setitem__(2, 7), "output 0: token 7 at position 2, the model gives "),
        (cut_ids, "output 0: "),
        (lambda made: made["outputs"][0].update(end="end_id"), "output 0: end end_id, the model's is length"),
        (lambda made: made["outputs"].append(made["outputs"][0]), "outputs: 2 of them, the model gives 1"),
        (lambda made: made["parameters"]["sampling"].update(seed="12345"), "output 0: token "),
        (lambda made: made["parameters"]["sampling"].update(temperature=0.0), "output 0: token "),
        (lambda made: made["parameters"].update(max_tokens=3), "output 0: "),
        (lambda made: made["prompt"]["ids"].reverse(), "prompt: "),
        (lambda made: made["prompt"].update(num_tokens=1), "prompt: 1 tokens of hash "),
        (lambda made: made["prompt"].update(hash="0" * 64), "prompt: "),
        (lambda made: made["model"].update(weights="0" * 64), f"weights: hash {'0' * 64}, the model's is "),
        (lambda made: made["model"].update(architecture="Qwen2ForCausalLM"), "architecture: Qwen2ForCausalLM"),
        (lambda made: made["model"].update(quant_algo="FP8"), "quant_algo: FP8, the model's is none"),
    ],
)
def test_one_that_was_made_up_is_found(tmp_path, receipt, change, told):
    assert differences(tmp_path, forged(receipt, change))[0].startswith(told)


def test_one_of_other_options_is_not_computed_by_those_of_another(tmp_path, receipt):
    other = forged(receipt, lambda made: made["model"]["options"].update(attention_windows=[8]))
    assert receipt["model"]["options"]["attention_windows"] == []
    message = error("verify", written(tmp_path, [receipt, other]), "--model", DEMO)
    assert "opened by other options" in message


def test_other_kernels_are_refused_by_name(tmp_path, receipt):
    other = forged(receipt, lambda made: made["kernels"].update(table="cpu/of_elsewhere", device="cpu"))
    done = verify(tmp_path, other)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "kernels: the receipt is of cpu/of_elsewhere on cpu" in last
    assert "--any-kernels" in last
    newer = forged(receipt, lambda made: made["kernels"].update(program="99.0"))
    assert "of inflight 99.0, here are " in error("verify", written(tmp_path, newer), "--model", DEMO)
    assert verify(tmp_path, newer, "--any-kernels").stdout == "verified\n"


@pytest.mark.skipif(DEVICE != "cpu", reason="asks for a table of the CPU's; CI's servers run there")
def test_the_receipts_table_is_taken(tmp_path, receipt):
    other = forged(receipt, lambda made: made["kernels"].update(table="reference"))
    done = verify(tmp_path, other)
    assert "ops=reference" in done.stderr
    assert done.stdout == "verified\n" or done.stdout.startswith("output 0: token ")


def test_another_weight_is_found(tmp_path, receipt):
    model = demo_of_another_weight(tmp_path)
    done = run("verify", written(tmp_path, receipt), "--model", model, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith(f"weights: hash {receipt['model']['weights']}, the model's is ")
    (model / "tokenizer_config.json").unlink()  # which changes no number
    shutil.copy(DEMO / "model.safetensors", model)
    assert run("verify", written(tmp_path, receipt), "--model", model).stdout == "verified\n"


CHAT = {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 20, "temperature": 0.7, "seed": 5}
GENERATE = {"text_input": "Once upon a time", "max_tokens": 20, "temperature": 0.7, "top_k": 20, "random_seed": 5}
ANSWERS = {
    "chat": ("/v1/chat/completions", CHAT),
    "n": ("/v1/chat/completions", {**CHAT, "n": 3, "logprobs": True}),
    "best_of": ("/v1/completions", {"prompt": "a", "max_tokens": 9, "n": 1, "best_of": 3, "temperature": 1}),
    "prompts": ("/v1/completions", {"prompt": ["a", "b", "c"], "max_tokens": 9}),
    "responses": ("/v1/responses", {"input": "Tell me a story.", "max_output_tokens": 20, "temperature": 0.7}),
    "messages": ("/v1/messages", CHAT),
    "ensemble": ("/v2/models/ensemble/generate", GENERATE),
    "log_probs": ("/v2/models/ensemble/generate", {**GENERATE, "return_log_probs": True}),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_every_api_carries_it(server, tmp_path, name):
    path, body = ANSWERS[name]
    answer = post(server, path, body)
    done = verify(tmp_path, answer)
    assert done.returncode == 0, done.stdout + done.stderr
    several = 3 if name == "prompts" else 1
    assert done.stdout.count("verified") == several


STREAMS = {
    "chat": ("/v1/chat/completions", {**CHAT, "stream": True}),
    "n": ("/v1/chat/completions", {**CHAT, "n": 3, "stream": True, "stream_options": {"include_usage": True}}),
    "completions": ("/v1/completions", {"prompt": "a", "max_tokens": 9, "stream": True}),
    "messages": ("/v1/messages", {**CHAT, "stream": True}),
    "ensemble": ("/v2/models/ensemble/generate_stream", {**GENERATE, "stream": True}),
}


@pytest.mark.parametrize("name", STREAMS)
def test_every_stream_ends_with_it(server, tmp_path, name):
    path, body = STREAMS[name]
    told = events(server, path, body)
    found = with_receipt(told)
    assert verify(tmp_path, {"receipt": found}).stdout == "verified\n"


def test_a_stream_verifies_as_it_came(server, tmp_path):
    for name in ("chat", "messages", "ensemble"):
        path, body = STREAMS[name]
        file = tmp_path / "stream"
        file.write_text(requests.post(f"http://{server.http}{path}", json=body, timeout=120).text)
        assert run("verify", file, "--model", DEMO).stdout == "verified\n"


def test_a_stream_of_responses_has_it_in_the_last_event(server, tmp_path):
    told = events(server, "/v1/responses", {"input": "a story", "max_output_tokens": 8, "stream": True})
    assert "receipt" not in told[0]["response"]
    assert verify(tmp_path, told[-1]["response"]).stdout == "verified\n"
    assert verify(tmp_path, told[-1]).stdout == "verified\n"


def test_grpc_has_it_as_a_parameter(server, tmp_path):
    inputs = []
    for name, kind, value in (("text_input", "BYTES", np.array([[b"Once upon a time"]], dtype=object)),
                              ("max_tokens", "INT32", np.array([[12]], dtype=np.int32))):  # fmt: skip
        given = grpc.InferInput(name, [1, 1], kind)
        given.set_data_from_numpy(value)
        inputs.append(given)
    with grpc.InferenceServerClient(server.grpc) as client:
        answer = client.infer("ensemble", inputs)
    found = json.loads(answer.get_response().parameters["receipt"].string_param)
    assert verify(tmp_path, found).stdout == "verified\n"
    assert verify(tmp_path, answer.get_response(as_json=True)).stdout == "verified\n"


def test_ids_without_texts_have_it(server, tmp_path):
    ids = TOKENIZER.encode("Once upon a time").ids
    body = {
        "inputs": [
            {"name": "input_ids", "shape": [1, len(ids)], "datatype": "INT32", "data": ids},
            {"name": "input_lengths", "shape": [1, 1], "datatype": "INT32", "data": [len(ids)]},
            {"name": "request_output_len", "shape": [1, 1], "datatype": "INT32", "data": [12]},
            {"name": "beam_width", "shape": [1, 1], "datatype": "INT32", "data": [1]},
        ]
    }
    answer = post(server, "/v2/models/tensorrt_llm/infer", body)
    (told,) = [tensor["data"] for tensor in answer["outputs"] if tensor["name"] == "output_ids"]
    found = json.loads(answer["parameters"]["receipt"])
    assert told[-len(found["outputs"][0]["ids"]) :] == found["outputs"][0]["ids"]
    assert verify(tmp_path, answer).stdout == "verified\n"


REQUIRED = ("text_input", "max_tokens")
INPUTS = {"text_input": "STRING", "max_tokens": "INT32", "stream": "BOOL", "beam_width": "INT32"}
BY_STEPS = "".join(
    [
        'name: "by_steps" platform: "ensemble" max_batch_size: 8\n',
        *(f'input {{ name: "{name}" data_type: TYPE_{kind} dims: [ 1 ] optional: {str(name not in REQUIRED).lower()} }}\n'
          for name, kind in INPUTS.items()),
        'output { name: "text_output" data_type: TYPE_STRING dims: [ -1 ] }\n',
        'ensemble_scheduling { step { model_name: "ensemble" model_version: -1\n',
        *(f'input_map {{ key: "{name}" value: "{name}" }}\n' for name in INPUTS),
        'output_map { key: "text_output" value: "text_output" } } }\n',
    ]
)  # fmt: skip


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A server of the models of a release, and of an ensemble that runs one of them as a step."""
    folder = tmp_path_factory.mktemp("repository")
    filled = {"engine_dir": DEMO, "tokenizer_dir": DEMO, "decoupled_mode": "True", "exclude_input_in_output": "True"}
    models = write_repository(folder / "models", 16, **filled, triton_max_batch_size="8", max_beam_width="3")
    (models / "by_steps" / "1").mkdir(parents=True)
    (models / "by_steps" / "config.pbtxt").write_text(BY_STEPS)
    with serving(folder, models, "--receipts") as server:
        yield server


REPOSITORY = {"text_input": "Once upon a time", "max_tokens": 12}


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls", "by_steps"])
@pytest.mark.parametrize("more", [{}, {"beam_width": 3}, {"stream": True}], ids=["plain", "beams", "stream"])
def test_models_of_a_repository(repository, tmp_path, model, more):
    told = events(repository, f"/v2/models/{model}/generate_stream", {**REPOSITORY, **more})
    found = json.loads(with_receipt(told))
    assert len(found["outputs"]) == more.get("beam_width", 1)
    assert verify(tmp_path, found).stdout == "verified\n"


def test_an_adapter_counts_by_its_hash(tmp_path):
    """Of two the one that was used verifies; without it nothing does."""
    folder = tmp_path / "served"
    folder.mkdir()
    golden = ROOT / "tests/golden"
    adapters = sorted(path.parent for path in (golden / "lora/llama_gqa2").glob("*/adapter_config.json"))[:2]
    model = golden / "data/llama_gqa2"
    modules = [f"--lora-modules={path.name}={path}" for path in adapters]
    server = start_server(folder, model, "--receipts", *modules)
    try:
        ids = [1, 5, 9]
        body = {
            "parameters": {"lora_name": adapters[0].name},
            "inputs": [
                {"name": "input_ids", "shape": [1, len(ids)], "datatype": "INT32", "data": ids},
                {"name": "input_lengths", "shape": [1, 1], "datatype": "INT32", "data": [len(ids)]},
                {"name": "request_output_len", "shape": [1, 1], "datatype": "INT32", "data": [8]},
            ],
        }
        answer = post(server, "/v2/models/tensorrt_llm/infer", body)
    finally:
        assert server.stop() == 0
    file = written(tmp_path, answer)
    assert "--adapter" in error("verify", file, "--model", model)
    assert run("verify", file, "--model", model, "--adapter", adapters[0]).stdout == "verified\n"
    other = run("verify", file, "--model", model, "--adapter", adapters[1], check=False)
    assert other.stdout.startswith("adapter: hash ")


def test_rows_of_a_batch_have_one_each(server, tmp_path):
    texts = ["Once upon a time", "The quick brown fox"]
    body = {
        "inputs": [
            {"name": "text_input", "shape": [2, 1], "datatype": "BYTES", "data": texts},
            {"name": "max_tokens", "shape": [2, 1], "datatype": "INT32", "data": [12, 12]},
        ]
    }
    answer = post(server, "/v2/models/ensemble/infer", body)
    found = json.loads(answer["parameters"]["receipt"])
    assert [one["prompt"]["ids"] for one in found] == [TOKENIZER.encode(text).ids for text in texts]
    assert verify(tmp_path, answer).stdout == "receipt 0: verified\nreceipt 1: verified\n"


def test_an_answer_that_a_stop_text_ends(server, tmp_path):
    body = {"prompt": "Once upon a time", "max_tokens": 60, "temperature": 0}
    whole = post(server, "/v1/completions", body)["choices"][0]["text"]
    stop = whole[len(whole) // 2 :][:4]
    answer = post(server, "/v1/completions", {**body, "stop": stop})
    assert answer["choices"][0]["finish_reason"] == "stop"
    (output,) = answer["receipt"]["outputs"]
    assert output["end"] == "stop_text"
    text = TOKENIZER.decode(output["ids"])
    assert stop in text
    assert len(text) < len(whole)
    assert verify(tmp_path, answer).stdout == "verified\n"


def test_what_is_not_covered_says_so(server, tmp_path):
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    for more, what in (({"response_format": schema}, "guide"), (BIAS, "embedding_bias")):
        answer = post(server, "/v1/chat/completions", {**CHAT, **more})
        assert answer["receipt"] == {"inflight_receipt": 1, "not_covered": what}
        assert f"the answer has no receipt, since none covers what its request has: {what}" in error(
            "verify", written(tmp_path, answer), "--model", DEMO
        )


def test_hashes_in_place_of_prompts(tmp_path):
    server = start_server(tmp_path, DEMO, "--receipts", "--receipt-hashes")
    try:
        answer = post(server, "/v1/completions", {"prompt": "Once upon a time", "max_tokens": 9, "seed": 3, "temperature": 1})
        of_two = post(server, "/v1/completions", {"prompt": TEXTS[:2], "max_tokens": 9, "seed": 3, "temperature": 1})
    finally:
        assert server.stop() == 0
    lists = tmp_path / "lists.json"
    lists.write_text(json.dumps([TOKENIZER.encode(text).ids for text in reversed(TEXTS[:2])]))
    done = run("verify", written(tmp_path, of_two), "--model", DEMO, "--prompt-ids", lists)
    assert done.stdout == "receipt 0: verified\nreceipt 1: verified\n"
    assert answer["receipt"]["prompt"]["ids"] is None
    file = written(tmp_path, answer)
    assert "--prompt-ids" in error("verify", file, "--model", DEMO)
    assert run("verify", file, "--model", DEMO, "--prompt", "Once upon a time").stdout == "verified\n"
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps(TOKENIZER.encode("Once upon a time").ids))
    assert run("verify", file, "--model", DEMO, "--prompt-ids", ids).stdout == "verified\n"
    done = run("verify", file, "--model", DEMO, "--prompt", "Twice upon a time", check=False)
    assert done.stdout.startswith("prompt: ")


def test_it_says_the_groups_that_weights_were_opened_in(tmp_path):
    options = ("--quant-algo", "W4A16_GPTQ", "--group-size", 32)
    server = start_server(tmp_path, DEMO, "--receipts", *options)
    try:
        body = {"prompt": "Once upon a time", "max_tokens": 24, "seed": 3, "temperature": 1, "logprobs": 0}
        answer = post(server, "/v1/completions", body)
    finally:
        assert server.stop() == 0
    assert answer["receipt"]["model"]["options"]["group_size"] == 32
    assert run("verify", written(tmp_path, answer), "--model", DEMO).stdout == "verified\n"


def test_of_no_receipts_there_are_no_hashes():
    assert "needed with it" in error("serve", DEMO, "--receipt-hashes")


def test_without_the_option_no_answer_has_one(tmp_path):
    server = start_server(tmp_path, DEMO)
    try:
        assert "receipt" not in post(server, "/v1/completions", {"prompt": "a", "max_tokens": 2})
        assert "receipt" not in post(server, "/v2/models/ensemble/generate", GENERATE)
    finally:
        assert server.stop() == 0


def test_what_is_no_receipt_is_told(tmp_path, receipt):
    assert "no receipt is there" in error("verify", written(tmp_path, {"id": "a"}), "--model", DEMO)
    assert "a receipt's kernels is no object" in error("verify", written(tmp_path, {**receipt, "kernels": 1}), "--model", DEMO)
    broken = copy.deepcopy(receipt)
    del broken["kernels"]
    assert "a receipt lacks 'kernels'" in error("verify", written(tmp_path, broken), "--model", DEMO)
    assert "--model is needed" in run("verify", written(tmp_path, receipt), check=False).stderr
    assert "No such file" in error("verify", tmp_path / "none", "--model", DEMO)
