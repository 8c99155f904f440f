# SPDX-License-Identifier: Apache-2.0
"""Adapters (LoRA) in requests: weights with the first one, the id alone afterwards, by every road.

What adapters answer is held against merged weights (tests/golden/make_lora_golden.py). Adapters are read here from peft's
files with numpy, as clients of TensorRT-LLM's backend send them.
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest
import requests
import tritonclient.grpc as grpc
import tritonclient.http as http
from live_server import DEMO, ROOT, is_sanitized, serving, start_server
from llm_client import Stream, wait_until_idle
from release_repositories import write_repository
from safetensors_rows import header
from test_repositories import PROMPT

GOLDEN = ROOT / "tests/golden"
CASES = {
    case["adapter"]: case
    for case in json.loads((GOLDEN / "lora/cases.json").read_text())["cases"]
    if case["model"] == "llama_gqa2"
}
MODULES = {name: i for i, name in enumerate(["", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "down_proj", "up_proj"])}
NOT_FOUND = "not found in cache. Please send LoRA weights with request"


def read_safetensors(path):
    tensors, values = header(path)
    tensors.pop("__metadata__", None)
    return {
        name: np.frombuffer(values, np.float32, np.prod(t["shape"]), t["data_offsets"][0]).reshape(t["shape"])
        for name, t in tensors.items()
    }


def adapter(name):
    """lora_weights [rows, width] and lora_config [rows, 3] of an adapter of llama_gqa2."""
    folder = GOLDEN / "lora/llama_gqa2" / name
    settings = json.loads((folder / "adapter_config.json").read_text())
    factors = read_safetensors(folder / "adapter_model.safetensors")
    rows, config = [], []
    for key, a in factors.items():
        if ".lora_A." not in key:
            continue
        rank, module = a.shape[0], key.removesuffix(".lora_A.weight")
        alpha = next((v for k, v in settings["alpha_pattern"].items() if module.endswith("." + k)), settings["lora_alpha"])
        b = factors[f"{module}.lora_B.weight"] * (alpha / (np.sqrt(rank) if settings["use_rslora"] else rank))
        rows.append(np.concatenate([a.ravel(), b.ravel()]))
        parts = module.split(".")
        config.append([MODULES[parts[-1]], int(parts[parts.index("layers") + 1]), rank])
    width = max(len(row) for row in rows)
    return np.stack([np.pad(row, (0, width - len(row))) for row in rows]).astype(np.float32), np.array(config, np.int32)


def random_adapter(seed, rank=4, layers=8, strength=1.0):
    """Of the demo model's q_proj, [256, 256]."""
    random = np.random.default_rng(seed)
    rows = random.normal(0, strength / 16, (layers, rank * (256 + 256)))
    return rows.astype(np.float32), np.array([[1, layer, rank] for layer in range(layers)], np.int32)


def tensors(kind, **values):
    """Inputs of either client; each value is (datatype, array)."""
    inputs = []
    for name, (datatype, value) in values.items():
        tensor = kind.InferInput(name, list(value.shape), datatype)
        tensor.set_data_from_numpy(value)
        inputs.append(tensor)
    return inputs


def request_of(case, task_id=None, weights=None, dtype="FP16", **more):
    values = {
        "input_ids": ("INT32", np.array([case["prompt"]], np.int32)),
        "input_lengths": ("INT32", np.array([[len(case["prompt"])]], np.int32)),
        "request_output_len": ("INT32", np.array([[len(case["greedy"])]], np.int32)),
    }
    if task_id is not None:
        values["lora_task_id"] = ("UINT64", np.array([[task_id]], np.uint64))
    if weights is not None:
        numbers, config = weights
        values["lora_weights"] = (dtype, numbers[None].astype({"FP16": np.float16, "FP32": np.float32}[dtype]))
        values["lora_config"] = ("INT32", config[None])
    return {**values, **more}


class Client:
    """tensorrt_llm of a server over one protocol."""

    def __init__(self, server, kind):
        self.kind = kind
        self.client = kind.InferenceServerClient(server.http if kind is http else server.grpc)

    def ask(self, case, *args, **kwargs):
        result = self.client.infer("tensorrt_llm", tensors(self.kind, **request_of(case, *args, **kwargs)))
        length = result.as_numpy("sequence_length").reshape(-1)[0]
        return result.as_numpy("output_ids").reshape(-1)[:length].tolist()[-len(case["greedy"]) :]

    def error(self, case, *args, **kwargs):
        with pytest.raises((http.InferenceServerException, grpc.InferenceServerException)) as caught:
            self.ask(case, *args, **kwargs)
        return caught.value.message()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = start_server(tmp_path_factory.mktemp("lora"), GOLDEN / "data/llama_gqa2", max_kv_tokens=8192)
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module", params=[http, grpc], ids=["http", "grpc"])
def client(server, request):
    return Client(server, request.param)


def test_weights_come_once_and_the_id_names_them_afterwards(client, request):
    first = 1000 if client.kind is http else 2000  # ids live as long as the server
    for i, (name, case) in enumerate(CASES.items()):
        if name == "":
            assert client.ask(case) == case["greedy"]
            continue
        assert f"LoRA task {first + i} {NOT_FOUND}" in client.error(case, first + i)
        # float16 rounds the factors: the tokens of a well separated path stay.
        assert client.ask(case, first + i, adapter(name)) == case["greedy"], name
        assert client.ask(case, first + i) == case["greedy"], name
        assert client.ask(case, first + i, adapter("q_v_1")) == case["greedy"], "weights of a cached id are ignored"


def test_zero_is_an_id(client):
    if client.kind is http:
        assert "LoRA task 0 not found" in client.error(CASES[""], 0)
    assert client.ask(CASES["mlp_4"], 0, adapter("mlp_4")) == CASES["mlp_4"]["greedy"]


def test_requests_of_all_adapters_at_once(server):
    names = [name for name in CASES if name] * 4
    client = Client(server, grpc)

    def ask(pair):
        i, name = pair
        return client.ask(CASES[name], 3000 + i % (len(CASES) - 1), adapter(name)) == CASES[name]["greedy"]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, enumerate(names)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w, c: (w, c[:-1]), "Invalid shape for lora_config tensor"),
        (lambda w, c: (w, c * [1, 0, 1] + [0, 2, 0]), "Expected layerId to be in the range [0, 2)"),
        (lambda w, c: (w, c * [1, 1, 0]), "Expected adapterSize to be > 0"),
        (lambda w, c: (w, c * [0, 1, 1] + [9, 0, 0]), "lora module cross_attn_q not enabled for this model"),
        (lambda w, c: (w, c * [1, 1, 0] + [0, 0, 257]), "Invalid low_rank (257)"),
        (lambda w, c: (w, c * [1, 1, 2]), "lora_weights has to few values for attn_q"),
        (lambda w, c: (w * np.nan, c), "row 0: got a value that is not finite"),
        (lambda w, c: (w[:, :5], c), "lora_weights has to few values"),
    ],
)
def test_bad_adapters_are_refused_by_row(client, change, message):
    weights, config = change(*adapter("q_v_1"))
    assert message in client.error(CASES["q_v_1"], 4000, (weights, np.asarray(config, np.int32)))
    assert NOT_FOUND in client.error(CASES["q_v_1"], 4000), "nothing of it stays"


def test_tensors_that_come_alone_are_refused(client):
    weights, config = adapter("q_v_1")
    case = CASES["q_v_1"]
    assert "lora_task_id must be set for LoRA inference" in client.error(case, None, (weights, config))
    alone = {"lora_weights": ("FP16", weights[None].astype(np.float16))}
    assert "must have both lora_weights and lora_config" in client.error(case, 4001, **alone)


# --- the ensemble, streams, and a cache for three adapters ---


@pytest.fixture(scope="module", params=["ensemble", "tensorrt_llm_bls"])
def road(request):
    return request.param


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Release 16 of the demo model, whose cache has room for three adapters of random_adapter: 8 layers, each of two rows
    of 4 x 256 floats and 16 behind.
    """
    path = tmp_path_factory.mktemp("lora_demo")
    three = 3 * 8 * 2 * (4 * 256 + 16) * 4
    fill = {
        "engine_dir": DEMO, "tokenizer_dir": DEMO, "decoupled_mode": "True", "lora_cache_host_memory_bytes": three,
        "exclude_input_in_output": "True",
    }  # fmt: skip
    with serving(path, write_repository(path / "repository", 16, **fill)) as server:
        yield server


def generate(server, road, **more):
    body = {"text_input": PROMPT, "max_tokens": 16, **more}
    return requests.post(f"http://{server.http}/v2/models/{road}/generate", json=body, timeout=60)


def send(server, road, task_id, seed, **kwargs):
    """The text of a request with weights, or the error: JSON has no float16, so generate takes the id alone."""
    weights, config = random_adapter(seed, **kwargs)
    inputs = tensors(
        http,
        text_input=("BYTES", np.array([[PROMPT.encode()]], object)),
        max_tokens=("INT32", np.array([[16]], np.int32)),
        lora_task_id=("UINT64", np.array([[task_id]], np.uint64)),
        lora_weights=("FP16", weights[None].astype(np.float16)),
        lora_config=("INT32", config[None]),
    )
    with http.InferenceServerClient(server.http, network_timeout=120, connection_timeout=120) as client:
        return client.infer(road, inputs).as_numpy("text_output").reshape(-1)[0].decode()


def text_stream(server, road, task_id, seed=None):
    """The text over the gRPC stream."""
    values = {
        "text_input": ("BYTES", np.array([[PROMPT.encode()]], object)),
        "max_tokens": ("INT32", np.array([[16]], np.int32)),
        "stream": ("BOOL", np.array([[True]])),
        "lora_task_id": ("UINT64", np.array([[task_id]], np.uint64)),
    }
    if seed is not None:
        weights, config = random_adapter(seed, strength=8)
        values["lora_weights"] = ("FP16", weights[None].astype(np.float16))
        values["lora_config"] = ("INT32", config[None])
    client = grpc.InferenceServerClient(server.grpc)
    with Stream(client) as stream:
        stream.send("a", tensors(grpc, **values), model=road, enable_empty_final_response=True)
        texts = [result.as_numpy("text_output") for result in stream.receive_until_final()]
        return b"".join(text.reshape(-1)[0] for text in texts if text is not None).decode()


def test_texts_have_the_adapter_over_generate_and_streams(demo, road):
    plain = generate(demo, road).json()["text_output"]
    text = send(demo, road, 7, 1, strength=8)
    assert text != plain, "the adapter says nothing"
    assert generate(demo, road, lora_task_id=7).json()["text_output"] == text
    assert text_stream(demo, road, 7) == text
    assert text_stream(demo, road, 7, seed=99) == text, "weights of a cached id are ignored"
    assert generate(demo, road).json()["text_output"] == plain


def test_the_oldest_adapter_gives_way_and_comes_back(demo):
    for task_id in (101, 102, 103):
        send(demo, "ensemble", task_id, task_id)
    assert generate(demo, "ensemble", lora_task_id=101).ok
    send(demo, "ensemble", 104, 104)  # 102 is the oldest
    gone = generate(demo, "ensemble", lora_task_id=102)
    assert gone.status_code == 404
    assert f"LoRA task 102 {NOT_FOUND}" in gone.json()["error"]
    assert generate(demo, "ensemble", lora_task_id=101).ok
    send(demo, "ensemble", 102, 102)


def test_a_flood_of_ids_stays_within_the_cache(demo):
    def ask(task_id):
        try:
            return send(demo, "ensemble", 5000 + task_id, task_id) and "answered"
        except http.InferenceServerException as error:
            return "full" if "PEFT Cache is full. Could not store taskId=" in error.message() else error.message()

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = set(pool.map(ask, range(60)))
    assert "answered" in answers and answers <= {"answered", "full"}, answers
    wait_until_idle(demo)
    found = [i for i in range(60) if generate(demo, "ensemble", lora_task_id=5000 + i).ok]
    assert 1 <= len(found) <= 3


def test_an_adapter_larger_than_the_cache_is_told_so(demo):
    with pytest.raises(http.InferenceServerException, match="the cache of adapters has") as caught:
        send(demo, "ensemble", 6000, 1, rank=64)
    assert caught.value.status() == "400"


# --- by name ---


@pytest.fixture
def named(tmp_path):
    """llama_gqa2 with an adapter by --lora-modules and a folder of others."""
    folder = tmp_path / "adapters"
    shutil.copytree(GOLDEN / "lora/llama_gqa2/mlp_4", folder / "mlp_4")
    (folder / "broken").mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (folder / "broken" / name).write_text("{")
    options = ["--lora-modules", f"first={GOLDEN / 'lora/llama_gqa2/all_16'}", "--lora-dir", folder]
    if not is_sanitized():  # LeakSanitizer looks for leaks from a process that the sandbox does not let it start
        options += ["--sandbox", "best-effort"]
    server = start_server(tmp_path, GOLDEN / "data/llama_gqa2", *options, max_kv_tokens=8192)
    yield server, folder
    assert server.stop() == 0


def by_name(server, case, name, kind=http, **more):
    with kind.InferenceServerClient(server.http if kind is http else server.grpc) as client:
        result = client.infer("tensorrt_llm", tensors(kind, **request_of(case, **more)), parameters={"lora_name": name})
    length = result.as_numpy("sequence_length").reshape(-1)[0]
    return result.as_numpy("output_ids").reshape(-1)[:length].tolist()[-len(case["greedy"]) :], result.get_response()


def test_adapters_have_names_and_answers_say_them(named):
    server, _ = named
    for name, adapter_name in (("first", "all_16"), ("mlp_4", "mlp_4"), ("first", "all_16")):
        ids, response = by_name(server, CASES[adapter_name], name)
        assert ids == CASES[adapter_name]["greedy"]
        assert response["parameters"]["lora_name"] == name
        ids, response = by_name(server, CASES[adapter_name], name, grpc)
        assert ids == CASES[adapter_name]["greedy"]
        assert response.parameters["lora_name"].string_param == name


def test_a_folder_whose_files_change_is_read_again(named):
    server, folder = named
    assert by_name(server, CASES["mlp_4"], "mlp_4")[0] == CASES["mlp_4"]["greedy"]
    for file in (GOLDEN / "lora/llama_gqa2/gate_2").iterdir():
        shutil.copy(file, folder / "mlp_4" / file.name)
    assert by_name(server, CASES["gate_2"], "mlp_4")[0] == CASES["gate_2"]["greedy"]
    shutil.copytree(GOLDEN / "lora/llama_gqa2/k_64", folder / "late")
    assert by_name(server, CASES["k_64"], "late")[0] == CASES["k_64"]["greedy"]


@pytest.mark.parametrize("name", ["nobody", "..", "../adapters/mlp_4", "/etc", "mlp_4/"])
def test_an_unknown_name_tells_nothing_of_the_file_system(named, name):
    server, _ = named
    with pytest.raises(http.InferenceServerException) as caught:
        by_name(server, CASES["mlp_4"], name)
    assert caught.value.message() == f"lora_name: the model has no adapter '{name}'"
    assert caught.value.status() == "404"


def test_what_cannot_be_read_is_in_the_log_alone(named):
    server, folder = named
    with pytest.raises(http.InferenceServerException) as caught:
        by_name(server, CASES["mlp_4"], "broken")
    assert str(folder) not in caught.value.message()
    assert caught.value.message() == "lora_name: adapter 'broken' cannot be read (the server's log says why)"
    assert str(folder / "broken") in server.log.read_text()


def test_a_name_beside_an_id_is_refused(named):
    server, _ = named
    with pytest.raises(http.InferenceServerException, match="lora_name: got beside lora_task_id"):
        by_name(server, CASES["mlp_4"], "mlp_4", task_id=3)


def test_without_names_a_name_is_refused(server):
    with pytest.raises(http.InferenceServerException, match="--lora-modules or --lora-dir"):
        by_name(server, CASES["mlp_4"], "mlp_4")


def write_demo_adapter(folder, seed):
    """What peft would save of random_adapter, whose factors have their scale."""
    folder.mkdir(parents=True)
    settings = {"peft_type": "LORA", "r": 4, "lora_alpha": 4, "bias": "none", "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    described, values = {}, b""
    for layer, row in enumerate(random_adapter(seed, strength=8)[0]):
        for part, shape, numbers in (("A", [4, 256], row[:1024]), ("B", [256, 4], row[1024:])):
            name = f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{part}.weight"
            end = len(values) + numbers.nbytes
            described[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(values), end]}
            values += numbers.tobytes()
    text = json.dumps(described).encode()
    (folder / "adapter_model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + values)


def test_adapters_are_models_of_openais_api(tmp_path):
    folder = tmp_path / "adapters"
    write_demo_adapter(folder / "fox", 1)
    write_demo_adapter(folder / "demo", 2)  # the model's own name
    server = start_server(tmp_path, DEMO, "--lora-dir", folder)

    def models():
        listed = requests.get(f"http://{server.http}/v1/models", timeout=30).json()["data"]
        return {model["id"]: model.get("parent") for model in listed}

    def complete(model):
        body = {"model": model, "prompt": PROMPT, "max_tokens": 16, "temperature": 0}
        answer = requests.post(f"http://{server.http}/v1/completions", json=body, timeout=60).json()
        return answer["model"], answer["choices"][0]["text"]

    def by_parameter(**parameters):
        body = {"text_input": PROMPT, "max_tokens": 16, "exclude_input_in_output": True, "parameters": parameters}
        return requests.post(f"http://{server.http}/v2/models/ensemble/generate", json=body, timeout=60).json()["text_output"]

    assert models() == {"demo": None, "fox": "demo"}
    plain, changed = by_parameter(), by_parameter(lora_name="fox")
    assert plain != changed, "the adapter says nothing"
    assert complete("fox") == ("fox", changed)
    assert complete("demo") == ("demo", plain)
    chat = {"model": "fox", "messages": [{"role": "user", "content": "a"}], "max_tokens": 8, "stream": True}
    with requests.post(f"http://{server.http}/v1/chat/completions", json=chat, stream=True, timeout=60) as answer:
        assert all(b'"model":"fox"' in line for line in answer.iter_lines() if line.startswith(b"data: {"))
    message = {**chat, "stream": False}
    assert requests.post(f"http://{server.http}/v1/messages", json=message, timeout=60).json()["model"] == "fox"
    write_demo_adapter(folder / "late", 3)
    assert models() == {"demo": None, "fox": "demo", "late": "demo"}
    one = requests.get(f"http://{server.http}/v1/models/late", timeout=30).json()
    assert (one["id"], one["parent"]) == ("late", "demo")
    unknown = requests.post(f"http://{server.http}/v1/completions", json={"model": "cat", "prompt": "a"}, timeout=30)
    assert unknown.status_code == 404 and str(folder) not in unknown.text
    assert server.stop() == 0


@pytest.mark.parametrize("model", ["llama_bias", "llama_odd_width", "gpt2_tied"])
def test_adapters_with_biases_are_served_by_name(tmp_path, model):
    cases = [c for c in json.loads((GOLDEN / "lora/cases.json").read_text())["cases"] if c["model"] == model and c["adapter"]]
    biased = [c for c in cases if any(name.endswith(".bias") for name in read_safetensors(weights_of(c)))]
    assert biased
    server = start_server(tmp_path, GOLDEN / "data" / model, "--lora-dir", GOLDEN / "lora" / model, max_kv_tokens=8192)
    try:
        for case in biased:
            assert by_name(server, case, case["adapter"])[0] == case["greedy"], case["adapter"]
    finally:
        assert server.stop() == 0


def weights_of(case):
    return GOLDEN / "lora" / case["model"] / case["adapter"] / "adapter_model.safetensors"


# --- the converter, and engines that take some modules alone ---


def inflight(*words):
    program = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["all_16", "mlp_4", "patterns"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_converter_writes_what_requests_send(tmp_path, name, dtype):
    done = inflight("adapter", "-i", GOLDEN / "lora/llama_gqa2" / name, "-o", tmp_path, "--storage-type", dtype)
    assert done.returncode == 0, done.stderr
    weights, config = np.load(tmp_path / "model.lora_weights.npy"), np.load(tmp_path / "model.lora_config.npy")
    assert weights.dtype == dtype and config.dtype == np.int32
    expected, rows = adapter(name)
    order = np.lexsort((rows[:, 0], rows[:, 1]))  # by layer, then module
    assert (config[0] == rows[order]).all()
    assert weights.shape == (1, *expected.shape)
    assert np.allclose(weights[0].astype(np.float32), expected[order], atol=2e-3 if dtype == "float16" else 1e-7)


def test_the_converter_refuses_by_name_what_it_cannot_say(tmp_path):
    source = GOLDEN / "lora/llama_gqa2/q_v_1"
    for change, message in (
        ({"use_dora": True}, "use_dora: adapters with magnitudes (DoRA) are not supported"),
        ({"bias": "some"}, "bias: got some, must be none, all or lora_only"),
        ({"peft_type": "IA3"}, "peft_type: got IA3, only LORA is supported"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save: adapters that replace modules"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights: got pissa"),
        ({"alpha_pattern": {"q_.*": 3}}, "alpha_pattern: q_.* is a regular expression"),
        ({"r": 0}, "r: "),
    ):
        folder = tmp_path / "changed"
        shutil.copytree(source, folder, dirs_exist_ok=True)
        settings = json.loads((source / "adapter_config.json").read_text())
        (folder / "adapter_config.json").write_text(json.dumps({**settings, **change}))
        done = inflight("adapter", "-i", folder, "-o", tmp_path / "out")
        assert done.returncode == 1 and message in done.stderr, (change, done.stderr)
    assert not (tmp_path / "out").exists()


def test_the_converter_has_no_place_for_biases(tmp_path):
    done = inflight("adapter", "-i", GOLDEN / "lora/llama_bias/of_b_8", "-o", tmp_path / "out")
    assert done.returncode == 1 and "has biases, for which lora_weights has no place" in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_engine_takes_the_modules_that_it_was_built_for(tmp_path):
    done = inflight(
        "build", "--checkpoint_dir", GOLDEN / "data/llama_gqa2", "--output_dir", tmp_path / "engine", "--lora_plugin", "float16",
        "--lora_target_modules", "attn_q", "attn_v", "--max_lora_rank", 8,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "engine/config.json").read_text())["build_config"]
    assert config["lora_config"]["lora_target_modules"] == ["attn_q", "attn_v"]
    assert config["lora_config"]["max_lora_rank"] == 8
    server = start_server(tmp_path, tmp_path / "engine", max_kv_tokens=8192)
    try:
        client = Client(server, http)
        assert client.ask(CASES["q_v_1"], 1, adapter("q_v_1")) == CASES["q_v_1"]["greedy"]
        assert "lora module attn_k not enabled for this model" in client.error(CASES["k_64"], 2, adapter("k_64"))
        weights, settings = adapter("q_v_1")
        wide = np.pad(weights, ((0, 0), (0, 8 * weights.shape[1]))), settings * [1, 1, 0] + [0, 0, 9]
        error = client.error(CASES["q_v_1"], 3, (wide[0], wide[1].astype(np.int32)))
        assert "Invalid low_rank (9). low_rank must be at most max_lora_rank (8)" in error
    finally:
        assert server.stop() == 0
