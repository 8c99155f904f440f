# SPDX-License-Identifier: Apache-2.0
"""Each script by itself: its grammar, and clear errors with exit status for what is wrong; nothing is left half done."""

import json
import pathlib
import runpy
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest
from folders import INFLIGHT, install
from release_repositories import BLS_INPUTS, LLM_INPUTS, RELEASES, names
from tiny_models import DEMO, make_gpt2

TEMPLATE = 'max_batch_size: ${triton_max_batch_size}\nkey: "${engine_dir}" $plain $$ ${other}\n'

GOLDEN = pathlib.Path(__file__).parents[1] / "golden/data"
GEMMA = "python3 tensorrt_llm/examples/gemma/convert_checkpoint.py --ckpt-type hf --model-dir"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A folder that tests of this file only read, with a GPT-2 in it."""
    made = install(tmp_path_factory.mktemp("compat") / "folder")
    make_gpt2(made.root / "gpt2")
    return made


def fails(folder, line, *texts, status=1):
    """The line ends with the status, and says the texts on standard error without a traceback."""
    done = folder.sh(line, check=False)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    for text in texts:
        assert text in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    return done


# --- inflight compat install ---


@pytest.mark.parametrize("release", ["0.5", "0.8", "0.13", "0.19", "1.2"])
def test_models_of_each_release_are_laid_out(tmp_path, release):
    root = install(tmp_path / "folder", "--release", release).root
    models = {path.name for path in (root / "all_models/inflight_batcher_llm").iterdir()}
    assert models >= {"preprocessing", "tensorrt_llm", "postprocessing", "ensemble"}
    assert ("tensorrt_llm_bls" in models) == (release != "0.5")
    text = (root / "all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt").read_text()
    assert ("${triton_backend}" in text) == (release not in ("0.5", "0.8"))
    assert ("max_queue_size" in text) == (release in ("0.13", "0.19", "1.2"))
    with_python = {path.parents[1].name for path in (root / "all_models/inflight_batcher_llm").rglob("1/model.py")}
    assert with_python == models - {"tensorrt_llm", "ensemble"}
    assert {path.name for path in (root / "all_models/gpt").iterdir()} == models - {"tensorrt_llm_bls"}


def test_the_python_preprocessing_makes_biases_of_the_models_vocabulary(monkeypatch, tmp_path):
    triton = types.ModuleType("triton_python_backend_utils")
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", triton)
    module = runpy.run_path(str(pathlib.Path(__file__).parents[2] / "compat/python_models/preprocessing.py"))
    shutil.copy(pathlib.Path(DEMO) / "tokenizer.json", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 100_000}))  # rows that fill up the table
    model = module["TritonPythonModel"]()
    parameters = {"tokenizer_dir": {"string_value": str(tmp_path)}, "gpt_model_path": {"string_value": "${engine_dir}"}}
    model.initialize({"model_config": json.dumps({"parameters": parameters, "output": []})})
    given = {"EMBEDDING_BIAS_WORDS": np.array([[b"a"]], object), "EMBEDDING_BIAS_WEIGHTS": np.array([[2.5]], np.float32)}
    bias = model.bias(given, 1)
    assert bias.shape == (1, 100_000)
    assert bias.sum() == 2.5 * len(model.words("a"))


@pytest.mark.parametrize("release", RELEASES[1:])
def test_the_python_bls_has_a_use_for_each_input_that_the_release_declares(monkeypatch, release):
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", types.ModuleType("triton_python_backend_utils"))
    bls = runpy.run_path(str(pathlib.Path(__file__).parents[2] / "compat/python_models/tensorrt_llm_bls.py"))
    declared, passed_on = set(names(BLS_INPUTS, release)), {*bls["SAME_NAME"], *bls["RENAMED"]}
    of_drafts = {"use_draft_logits"}  # asks for nothing without num_draft_tokens
    assert declared <= {*passed_on, *bls["TO_PREPROCESSING"], *bls["REFUSED"], *of_drafts}
    assert {bls["RENAMED"].get(name, name) for name in declared & passed_on} <= set(names(LLM_INPUTS, release))


def test_the_python_bls_streams_characters_of_several_tokens(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", types.ModuleType("triton_python_backend_utils"))
    bls = runpy.run_path(str(pathlib.Path(__file__).parents[2] / "compat/python_models/tensorrt_llm_bls.py"))

    def postprocessing(_model, inputs, _outputs):  # of a tokenizer with byte fallback: "a" is a token, the others are bytes
        ids = inputs["TOKENS_BATCH"][0, 0].tolist()
        try:
            text = bytes(ids).decode()
        except UnicodeDecodeError:
            text = "a" + "\ufffd" * (len(ids) - 1)
        return {"OUTPUT": np.array([text.encode()], object)}

    bls["Texts"].of.__globals__["call"] = postprocessing
    texts, got = bls["Texts"](accumulates=False, streams=True), b""
    for token in "aé😀".encode():
        [piece] = texts.of({"output_ids": np.array([[[token]]], np.int32), "sequence_length": np.array([[1]], np.int32)})
        got += piece
    assert got.decode() == "aé😀"


def test_a_second_install_replaces_the_models_and_keeps_other_files(tmp_path):
    root = install(tmp_path / "folder").root
    (root / "triton_model_repo").mkdir()
    (root / "all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt").write_text("changed")
    install(tmp_path / "folder", "--release", "0.11")
    assert "decoder_input_ids" in (root / "all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt").read_text()
    assert (root / "triton_model_repo").is_dir()


def test_what_others_laid_out_is_not_replaced(tmp_path):
    """As a checkout of the back-end would be."""
    (tmp_path / "checkout/tools").mkdir(parents=True)
    (tmp_path / "checkout/tools/fill_template.py").write_text("theirs")
    done = subprocess.run([INFLIGHT, "compat", "install", tmp_path / "checkout"],
                          capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    assert done.returncode == 1 and "checkout/tools is there" in done.stderr
    assert (tmp_path / "checkout/tools/fill_template.py").read_text() == "theirs"
    assert [path.name for path in (tmp_path / "checkout").iterdir()] == ["tools"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["compat"], "'install' and one directory are needed"),
        (["compat", "install"], "'install' and one directory are needed"),
        (["compat", "remove", "x"], "'install' and one directory are needed"),
        (["compat", "install", "x", "--relase", "0.10"], "--release"),
        (["compat", "install", "/proc/no/where"], "/proc/no/where cannot be written"),
        (["migrate"], "one model repository is needed"),
        (["migrate", "nowhere"], "nowhere: no such directory"),
        (["migrate", "."], "no model repository"),
    ],
)
def test_wrong_calls_of_the_program_are_refused(tmp_path, arguments, text):
    done = subprocess.run([INFLIGHT, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and text in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())


def test_an_unknown_release_is_refused_by_name(tmp_path):
    done = subprocess.run([INFLIGHT, "compat", "install", tmp_path / "x", "--release", "0.4"],
                          capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    assert done.returncode != 0 and "'0.4'" in done.stderr and "0.10" in done.stderr
    assert not (tmp_path / "x").exists()


# --- fill_template.py ---


def fill(folder, tmp_path, substitutions, *options, text=TEMPLATE):
    path = tmp_path / "config.pbtxt"
    path.write_text(text)
    command = [
        "python3",
        folder.root / "tools/fill_template.py",
        *options,
        path,
        *([] if substitutions is None else [substitutions]),
    ]
    done = subprocess.run(command, env=folder.environment, capture_output=True, text=True, timeout=60, check=True)
    return done, path.read_text()


@pytest.mark.parametrize(
    ("substitutions", "expected"),
    [
        ("triton_max_batch_size:8,engine_dir:/e", 'max_batch_size: 8\nkey: "/e" $plain $ ${other}\n'),
        ("plain:1", 'max_batch_size: ${triton_max_batch_size}\nkey: "${engine_dir}" 1 $ ${other}\n'),
        ("other:a\\,b", 'max_batch_size: ${triton_max_batch_size}\nkey: "${engine_dir}" $plain $ a,b\n'),
        ("other:s3\\\\://x", 'max_batch_size: ${triton_max_batch_size}\nkey: "${engine_dir}" $plain $ s3://x\n'),
        ("other:", 'max_batch_size: ${triton_max_batch_size}\nkey: "${engine_dir}" $plain $ \n'),
        (None, 'max_batch_size: ${triton_max_batch_size}\nkey: "${engine_dir}" $plain $ ${other}\n'),
    ],
)
def test_places_of_a_template_are_filled(shared, tmp_path, substitutions, expected):
    done, unchanged = fill(shared, tmp_path, substitutions)
    assert done.stdout == expected + "\n" and unchanged == TEMPLATE
    done, changed = fill(shared, tmp_path, substitutions, "--in_place")
    assert done.stdout == "" and changed == expected


def test_later_releases_have_numbers_where_nothing_is_given(shared, tmp_path):
    later = "delay: ${max_queue_delay_microseconds} size: ${max_queue_size} ids: ${participant_ids}"
    assert fill(shared, tmp_path, None, text=later)[0].stdout == "delay: 0 size: 0 ids: ${participant_ids}\n"
    assert (
        fill(shared, tmp_path, "max_queue_size:4", "--participant_ids", "1,2", text=later)[0].stdout
        == "delay: 0 size: 4 ids: 1,2\n"
    )
    earlier = "delay: ${max_queue_delay_microseconds}"
    assert fill(shared, tmp_path, None, text=earlier)[0].stdout == earlier + "\n"


def test_wrong_substitutions_leave_the_template_as_it_is(shared, tmp_path):
    path = tmp_path / "config.pbtxt"
    path.write_text(TEMPLATE)
    fails(shared, f"python3 tools/fill_template.py -i {path} triton_max_batch_size", "'triton_max_batch_size'", "name:value")
    fails(shared, f"python3 tools/fill_template.py -i {path} engine_dir:s3://x", "'engine_dir:s3://x'", "\\\\:")
    fails(shared, f"python3 tools/fill_template.py -i {path}x a:b", f"cannot read {path}x")
    fails(shared, f"python3 tools/fill_template.py --inplace {path} a:b", "--inplace", status=2)
    assert path.read_text() == TEMPLATE
    done = shared.sh(f"python3 tools/fill_template.py -i {path} engin_dir:x")
    assert "engin_dir stands nowhere in" in done.stderr and path.read_text() == TEMPLATE.replace("$$", "$")


# --- converters and builders ---


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("python3 tensorrt_llm/examples/gpt/convert_checkpoint.py --model_dir nowhere --output_dir out", ["nowhere"]),
        ("python3 tensorrt_llm/examples/gpt/convert_checkpoint.py --model_dri gpt2", ["--model-d"]),
        ("python3 tensorrt_llm/examples/llama/convert_checkpoint.py --model_dir gpt2 --tp_size 3 --output_dir out", ["tp_size"]),
        ("python3 tensorrt_llm/examples/gpt/hf_gpt_convert.py -i gpt2 -o out --storage-type int8", ["int8"]),
        ("python3 tensorrt_llm/examples/gpt/build.py --model_dir nowhere --output_dir out", ["nowhere"]),
        (f"{GEMMA} gpt2 --output-model-dir out --ckpt-type jax", ["--ckpt-type: got 'jax'", "Hugging Face format"]),
        (f"{GEMMA} gpt2 --output-model-dir out --use-weight-only-with-precision w4a8_awq", ["got 'w4a8_awq'", "int8 or int4"]),
        (f"{GEMMA} nowhere --output-model-dir out", ["nowhere"]),
        ("trtllm-build --checkpoint_dir gpt2 --output_dir out --gemm_plugn float16", ["gemm-plugin"]),
        ("trtllm-build --checkpoint_dir gpt2 --output_dir out --max_seq_len many", ["many"]),
        ("python3 tensorrt_llm/examples/quantization/quantize.py --model_dir gpt2 --qformat int4_awq --output_dir out",
         ["int4_awq", "int4_wo"]),
    ],
)  # fmt: skip
def test_wrong_calls_of_converters_write_nothing(shared, line, texts):
    fails(shared, line, *texts)
    assert not (shared.root / "out").exists()


@pytest.mark.parametrize(
    ("family", "model", "architecture"),
    [
        ("falcon", "falcon_head64", "FalconForCausalLM"), ("gpt", "starcoder2_head64", "Starcoder2ForCausalLM"),
        ("gptj", "gptj_head64", "GPTJForCausalLM"), ("gptneox", "gpt_neox_head64", "GPTNeoXForCausalLM"),
        ("llama", "mixtral_head64", "MixtralForCausalLM"), ("opt", "opt_head64", "OPTForCausalLM"),
        ("phi", "phi3_head64", "Phi3ForCausalLM"), ("qwen", "qwen2_head64", "Qwen2ForCausalLM"),
    ],
)  # fmt: skip
def test_each_family_has_its_converter(shared, tmp_path, family, model, architecture):
    shared.sh(
        f"python3 tensorrt_llm/examples/{family}/convert_checkpoint.py --model_dir {GOLDEN / model} --dtype float16"
        f" --output_dir {tmp_path}/out"
    )
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert (config["architecture"], config["dtype"]) == (architecture, "float16")


def test_gemmas_converter_has_flags_of_its_own(shared, tmp_path):
    shared.sh(
        f"{GEMMA} {GOLDEN}/gemma_head64 --dtype bfloat16 --world-size 2 --output-model-dir {tmp_path}/out --tokenizer_dir x"
    )
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert (config["architecture"], config["dtype"], config["mapping"]["tp_size"]) == ("GemmaForCausalLM", "bfloat16", 2)
    shared.sh(f"{GEMMA} {GOLDEN}/gemma_head64 --use-weight-only-with-precision int8 --output-model-dir {tmp_path}/int8")
    assert json.loads((tmp_path / "int8/config.json").read_text())["quantization"]["quant_algo"] == "W8A16"


def test_quantize_makes_a_checkpoint_without_calibration(shared):
    done = shared.sh(
        "python3 tensorrt_llm/examples/quantization/quantize.py --model_dir gpt2 --dtype float16 --qformat int8_wo"
        " --calib_size 512 --output_dir quantized"
    )
    assert "--calib_size has no effect" in done.stderr
    config = json.loads((shared.root / "quantized/config.json").read_text())
    assert config["quantization"]["quant_algo"] == "W8A16"


def test_scripts_without_the_program_say_so(shared, tmp_path):
    alone = tmp_path / "gpt/examples/tensorrt_llm"
    alone.mkdir(parents=True)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/inflight_program.py").write_text((shared.root / "tools/inflight_program.py").read_text())
    (alone / "build.py").write_text((shared.root / "tensorrt_llm/examples/gpt/build.py").read_text())
    line = f"PATH=$(dirname $(command -v python3)):/usr/bin:/bin python3 {alone}/build.py"
    fails(shared, line, "the program inflight is neither at", "inflight compat install")


# --- launch_triton_server.py ---


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("--model_repo=nowhere", "--model_repo: got 'nowhere'"),
        ("--world_size 0 --model_repo=all_models/gpt", "--world_size: got 0"),
        ("--world_size 2 --multi-model --model_repo=all_models/gpt", "--multi-model: needs --world_size 1, got 2"),
        ("--world_size 2 --no-mpi --model_repo=all_models/gpt", "--no-mpi: needs --world_size 1, got 2"),
        ("--tritonserver nowhere --model_repo=all_models/gpt", "--tritonserver: got 'nowhere'"),
    ],
)
def test_the_launcher_refuses_what_cannot_start(shared, arguments, text):
    fails(shared, f"python3 scripts/launch_triton_server.py {arguments}", text)


LAUNCH = "python3 scripts/launch_triton_server.py --model_repo=all_models/gpt --http_port 1 --grpc_port 2 --metrics_port 3"
PORTS = ["--grpc-port=2", "--http-port=1", "--metrics-port=3", "--disable-auto-complete-config"]
PREFIX = "--backend-config=python,shm-region-prefix-name=prefix"


def spy_at(path):
    """A program that writes how it shall orchestrate, and its arguments, into a pipe beside it."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$TRTLLM_ORCHESTRATOR$TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES" "$@" > {path}.pipe\n')
    path.chmod(0o755)
    return f"mkfifo {path}.pipe;", f"&& cat {path}.pipe && rm {path}.pipe"


def test_the_launchers_command_line(shared, tmp_path):
    before, after = spy_at(tmp_path / "spy")

    def started(arguments):
        line = f"{before} {LAUNCH} --no-mpi --tritonserver {tmp_path}/spy {arguments} {after}"
        return shared.sh(line).stdout.splitlines()

    repository = "--model-repository=all_models/gpt"
    assert started("") == ["", repository, *PORTS, PREFIX + "0_"]
    log = ["--log-verbose=3", "--log-file=all.txt"]
    assert started("--log --log-file all.txt") == ["", repository, *log, *PORTS, PREFIX + "0_"]
    gpus = pathlib.Path("/proc/driver/nvidia/gpus").glob("*")
    pools = ["--pinned-memory-pool-byte-size=0", "--enable-peer-access=false"]
    pools += [f"--cuda-memory-pool-byte-size={gpu}:0" for gpu, _ in enumerate(gpus)]
    assert started("--multi-model") == ["11", repository, *PORTS, PREFIX + "0_", *pools]
    assert started("--multi-model --disable-spawn-processes")[0] == "10"


def test_ranks_are_started_by_mpirun(shared, tmp_path):
    before, after = spy_at(tmp_path / "bin/mpirun")
    flags = "--world_size 2 --oversubscribe --tritonserver /bin/true --tensorrt_llm_model_name a,b"
    words = shared.sh(f"{before} PATH={tmp_path}/bin:$PATH {LAUNCH} {flags} {after}").stdout.splitlines()
    server = ["-n", "1", "-x", "MASTER_PORT", "/bin/true", "--model-repository=all_models/gpt"]
    above = ["--model-control-mode=explicit", "--load-model=a", "--load-model=b"]
    assert words == [
        "", "--allow-run-as-root", "--oversubscribe",
        *server, *PORTS, PREFIX + "0_", ":",
        *server, *above, *PORTS, PREFIX + "1_", ":",
    ]  # fmt: skip


# --- clients and test tools, without a server ---

CLIENT = "python3 inflight_batcher_llm/client/inflight_batcher_llm_client.py -u localhost:1"
E2E = "python3 inflight_batcher_llm/client/end_to_end_grpc_client.py -u localhost:1"
TOOLS = "python3 tools/inflight_batcher_llm"
GPT = "python3 tools/gpt"


@pytest.mark.parametrize(
    ("line", "status", "text"),
    [
        (CLIENT, 1, "Encountered error:"),
        (f"{CLIENT} --tokenizer-dir nowhere", 1, "--tokenizer-dir: the tokenizer of nowhere cannot be used"),
        (f"{CLIENT} --input-tokens-csv nowhere", 1, "--input-tokens-csv: nowhere does not begin with a row of token ids"),
        (f"{CLIENT} --requested-outputs sequence_length", 2, "output_ids must be among them"),
        (f"{CLIENT} --lora-path .", 1, "--lora-path: . has neither model.lora_config.npy"),
        (f"{CLIENT} --lookahead_config 7,x", 1, "--lookahead_config: got '7,x'"),
        (f"{CLIENT} --request-output-length 3", 2, "--request-output-length"),
        (E2E, 2, "-p/--prompt"),
        (f"{E2E} -p a --model-name other", 2, "other"),
        (f"{E2E} -p a --embedding-bias-words a b --embedding-bias-weights 1", 2, "has 2 and --embedding-bias-weights 1"),
        (f"{E2E} -p a --batch-inputs", 2, "JSON list"),
        (f"{TOOLS}/end_to_end_test.py --max-input-len 5", 2, "--dataset"),
        (f"{TOOLS}/end_to_end_test.py --max-input-len 5 --dataset nowhere", 1, "--dataset: nowhere is no JSON list"),
        (f"{TOOLS}/end_to_end_test.py -u localhost:1 --max-input-len 500 --dataset ci/L0_backend_trtllm/simple_data.json", 1,
         "Failed receiving responses"),
        (f"{TOOLS}/benchmark_core_model.py --max-input-len 5", 2, "workload"),
        (f"{TOOLS}/benchmark_core_model.py --max-input-len 5 token-from-histogram --histogram-key x", 2, "example"),
        (f"{TOOLS}/benchmark_core_model.py --decoupled --max-input-len 5 token-from-histogram --histogram-key example", 2,
         "grpc"),
        (f"{TOOLS}/benchmark_core_model.py --test-llmapi --max-input-len 5 token-from-histogram --histogram-key example", 2,
         "--test-llmapi: needs the workload dataset"),
        (f"{TOOLS}/end_to_end_test.py --dataset x --streaming -i grpc", 2, "--streaming: needs --test-llmapi"),
        (f"{TOOLS}/end_to_end_test.py --dataset x --test-llmapi --streaming", 2, "--streaming: needs --protocol grpc"),
        (f"{TOOLS}/end_to_end_test.py --dataset x --test-llmapi --sampling-params top_k", 2, "must be a dictionary"),
        (f"{GPT}/client.py --tokenizer_dir nowhere", 1, "--tokenizer_dir: the tokenizer of nowhere cannot be used"),
        (f"{GPT}/client_async.py -u localhost:1 --tokenizer_dir {DEMO}", 1, "Failed receiving responses"),
        (f"{GPT}/end_to_end_test.py", 2, "--tokenizer_dir"),
        (f"{GPT}/benchmark_core_model.py -m both", 2, "both"),
        (f"{GPT}/benchmark_core_model.py -n 0", 2, "--num_runs: got 0"),
        (f"{GPT}/identity_test.py -u localhost:1", 1, "Failed receiving responses"),
        (f"{GPT}/gen_input_data.py --num_samples 0", 2, "--num_samples: got 0"),
        (f"{TOOLS}/speculative_decoding_test.py --url-target localhost:1 --dataset x --max-input-len 5", 2,
         "--url-draft is needed"),
        (f"{TOOLS}/test_max_queue_size.py --num-requests 0", 2, "--num-requests: got 0"),
        ("python3 inflight_batcher_llm/client/e2e_grpc_speculative_decoding_client.py -p a", 2, "--url-target"),
        ("bash ci/L0_backend_trtllm/test.sh", 1, "the directory of a GPT-2 model is needed"),
        ("bash scripts/tensorrt_llm_triton.sh", 1, "MODEL_REPO"),
    ],
)  # fmt: skip
def test_wrong_calls_of_clients_and_tools(shared, line, status, text):
    fails(shared, line, text, status=status)


def test_the_tokenizer_of_the_clients_is_the_models(shared):
    """Line breaks included; the tokenizers package says what is right."""
    from tokenizers import Tokenizer

    oracle = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
    lines = ["Once upon a time", "two\nlines", 'quotes "and" \\ more', "ünïcode 火"]
    code = (
        "import sys, json; sys.path.insert(0, 'tools'); from inflight_program import Tokenizer;"
        f"t = Tokenizer({str(DEMO)!r}); ids = t.encode({lines!r});"
        "print(json.dumps([ids, [t.decode(i) for i in ids], t.end_id()]))"
    )
    (shared.root / "ask.py").write_text(code)
    ids, texts, end_id = json.loads(shared.sh("python3 ask.py").stdout)
    assert ids == [oracle.encode(line).ids for line in lines]
    assert texts == [oracle.decode(i) for i in ids] and end_id == oracle.token_to_id("<|eot_id|>")
