# SPDX-License-Identifier: Apache-2.0
"""The command sequences of the back-end's guides, line by line, with tiny models in place of theirs and ports of this test.

The guides: the README of triton-inference-server/tensorrtllm_backend at v0.5.0, v0.8.0 and v0.10.0, its documents of Llama,
Gemma and several servers, and those of users that build on them. Where one waits or looks, the test does.
"""

import contextlib
import itertools
import json
import re
import shutil
import subprocess

import pytest
import requests
from folders import ids_after, wait_for
from free_ports import free_ports
from stand_ins import KEY_ID, REGION, S3, SECRET
from tiny_models import DEMO, make_gpt2
from tokenizers import Tokenizer

PROMPT = "Born in north-east France, Soyer trained as a"
QUESTION = '{"text_input": "What is machine learning?", "max_tokens": 20, "bad_words": "", "stop_words": ""}'
CURLS = f"""
curl -s -X POST localhost:$HTTP/v2/models/ensemble/generate -d '{QUESTION}'
echo
curl -s -X POST localhost:$HTTP/v2/models/tensorrt_llm_bls/generate -d '{QUESTION}'
"""


def edit(folder, model, repository="triton_model_repo", **values):
    """What a user does by hand: each `${name}` of the model's configuration becomes the value, others stay."""
    path = folder.root / repository / model / "config.pbtxt"
    text = path.read_text()
    for name, value in values.items():
        assert "${" + name + "}" in text, (model, name)
        text = text.replace("${" + name + "}", str(value))
    path.write_text(text)


def prompt_ids(text=PROMPT):
    """Of the demo model's tokenizer, which the tiny models have too, by the package that others wrote."""
    return Tokenizer.from_file(str(DEMO / "tokenizer.json")).encode(text).ids


def test_the_readme_of_0_10_with_gpt(folder):
    make_gpt2(folder.root / "tensorrt_llm/examples/gpt/gpt2")
    folder.sh(
        """
        cd tensorrt_llm/examples/gpt
        python3 convert_checkpoint.py --model_dir gpt2 --dtype float16 --tp_size 4 --output_dir ./c-model/gpt2/fp16/4-gpu
        trtllm-build --checkpoint_dir ./c-model/gpt2/fp16/4-gpu \\
            --gpt_attention_plugin float16 \\
            --remove_input_padding enable \\
            --paged_kv_cache enable \\
            --gemm_plugin float16 \\
            --output_dir engines/fp16/4-gpu
        cd ../../..
        mkdir triton_model_repo
        cp -r all_models/inflight_batcher_llm/* triton_model_repo/
        cp tensorrt_llm/examples/gpt/engines/fp16/4-gpu/* triton_model_repo/tensorrt_llm/1
        """
    )
    tokenizer = folder.root / "tensorrt_llm/examples/gpt/gpt2"
    edit(folder, "preprocessing", tokenizer_dir=tokenizer, preprocessing_instance_count=1, triton_max_batch_size=8)
    edit(folder, "postprocessing", tokenizer_dir=tokenizer, postprocessing_instance_count=1)
    edit(folder, "tensorrt_llm", engine_dir=folder.root / "triton_model_repo/tensorrt_llm/1", decoupled_mode="False",
         batching_strategy="inflight_fused_batching", triton_backend="tensorrtllm")  # fmt: skip
    edit(folder, "tensorrt_llm_bls", decoupled_mode="False", bls_instance_count=1)
    folder.sh(
        "python3 scripts/launch_triton_server.py --world_size=4 --model_repo=$ROOT/triton_model_repo"
        " --http_port $HTTP --grpc_port $GRPC --metrics_port $METRICS > server.log 2>&1"
    )
    folder.wait_until_ready()
    assert folder.log().count("this rank computes") == 3
    by_ensemble, by_bls = map(json.loads, folder.sh(CURLS).stdout.splitlines())
    assert by_ensemble["text_output"].startswith("What is machine learning?")
    assert by_ensemble["text_output"] == by_bls["text_output"]
    assert len(by_ensemble["text_output"]) > len("What is machine learning?")
    client = (
        "python3 inflight_batcher_llm/client/inflight_batcher_llm_client.py -u localhost:$GRPC"
        " --tokenizer-dir $ROOT/tensorrt_llm/examples/gpt/gpt2"
    )
    ids = prompt_ids()
    output = folder.sh(client + " --request-output-len 200").stdout
    assert ids_after("Input", output) == ids
    for line in ("=========", "Got completed request", f"Input: {PROMPT}", "Output beam 0: "):
        assert f"\n{line}" in "\n" + output
    assert ids_after("Output", output)[: len(ids)] == ids
    output = folder.sh(client + " --stop-after-ms 200 --request-output-len 900").stdout
    assert "Got cancellation response from server" in output
    assert len(ids_after("Output", output)) < len(ids) + 900 or "The request ended within the 200 ms" in output
    output = folder.sh(client + " --request-output-len 20 --return-context-logits --return-generation-logits").stdout
    assert f"context_logits.shape: (1, {len(ids)}, 2048)" in output
    num_tokens = len(ids_after("Output", output)) - len(ids)
    assert f"generation_logits.shape: (1, 1, {num_tokens}, 2048)" in output
    page = folder.sh("curl -s localhost:$METRICS/metrics").stdout
    assert 'nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"}' in page
    assert float(re.search(r'nv_inference_request_success\{model="tensorrt_llm",version="1"\} (\S+)', page)[1]) >= 5
    folder.stop_servers()


LLAMA_FILL = """
rm -rf llama_ifb
cp all_models/inflight_batcher_llm/ llama_ifb -r
python3 tools/fill_template.py -i llama_ifb/preprocessing/config.pbtxt \\
    tokenizer_dir:${HF_LLAMA_MODEL},triton_max_batch_size:64,preprocessing_instance_count:1
python3 tools/fill_template.py -i llama_ifb/postprocessing/config.pbtxt \\
    tokenizer_dir:${HF_LLAMA_MODEL},triton_max_batch_size:64,postprocessing_instance_count:1
python3 tools/fill_template.py -i llama_ifb/tensorrt_llm_bls/config.pbtxt \\
    triton_max_batch_size:64,decoupled_mode:${DECOUPLED},bls_instance_count:1,accumulate_tokens:${DECOUPLED}
python3 tools/fill_template.py -i llama_ifb/ensemble/config.pbtxt triton_max_batch_size:64
python3 tools/fill_template.py -i llama_ifb/tensorrt_llm/config.pbtxt triton_backend:tensorrtllm,triton_max_batch_size:64,\
decoupled_mode:${DECOUPLED},max_beam_width:1,engine_dir:${ENGINE_PATH},max_tokens_in_paged_kv_cache:2560,\
max_attention_window_size:2560,kv_cache_free_gpu_mem_fraction:0.5,exclude_input_in_output:True,enable_kv_cache_reuse:False,\
batching_strategy:${STRATEGY},max_queue_delay_microseconds:0
python3 scripts/launch_triton_server.py --world_size 1 --model_repo=llama_ifb/ \\
    --http_port $HTTP --grpc_port $GRPC --metrics_port $METRICS > server.log 2>&1
"""
WORDS = '"bad_words": ["boat", "model"], "stop_words": ["focuses", "learn"]'


def copy_demo(folder):
    shutil.copytree(DEMO, folder.root / "llama-hf", ignore=shutil.ignore_patterns("*.py", "*.jsonl"))


@pytest.fixture
def llama(folder):
    """The folder with an engine of the demo model, which is a Llama; its environment as the guide exports it.

    It has the one end id of the guide's Llama, the tokenizer's. Of several the ensemble ends at each, and a step at its own.
    """
    copy_demo(folder)
    for name in ("config.json", "generation_config.json"):
        path = folder.root / "llama-hf" / name
        path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": 2047}))
    folder.environment |= {"HF_LLAMA_MODEL": str(folder.root / "llama-hf"), "UNIFIED_CKPT_PATH": str(folder.root / "ckpt/7b/"),
                           "ENGINE_PATH": str(folder.root / "engines/7b/")}  # fmt: skip
    folder.sh(
        """
        cd tensorrt_llm/examples/llama
        python convert_checkpoint.py --model_dir ${HF_LLAMA_MODEL} --output_dir ${UNIFIED_CKPT_PATH} --dtype float16
        trtllm-build --checkpoint_dir ${UNIFIED_CKPT_PATH} --remove_input_padding enable --gpt_attention_plugin float16 \\
            --context_fmha enable --gemm_plugin float16 --output_dir ${ENGINE_PATH} --paged_kv_cache enable --max_batch_size 64
        """
    )
    return folder


def test_the_llama_guide(llama):
    llama.sh(LLAMA_FILL, DECOUPLED="False", STRATEGY="inflight_fused_batching")
    llama.wait_until_ready()
    text = '{"text_input": "What is machine learning?", "max_tokens": 20, "pad_id": 2, "end_id": 2, %s}'
    url = "curl -s -X POST localhost:$HTTP/v2/models/ensemble/generate -d"
    plain = json.loads(llama.sh(f"""{url} '{text % '"bad_words": "", "stop_words": ""'}'""").stdout)
    assert len(plain["output_log_probs"]) > 0 and plain["text_output"]
    restricted = json.loads(llama.sh(f"{url} '{text % WORDS}'").stdout)
    assert "boat" not in restricted["text_output"]
    parallel = llama.sh(
        f"""
        echo '{text % '"bad_words": "", "stop_words": ""'}' > tmp.txt
        printf '%s\\n' {{1..20}} | xargs -I % -P 20 curl -s -X POST localhost:$HTTP/v2/models/ensemble/generate -d @tmp.txt
        """
    ).stdout
    assert parallel.count(json.dumps(plain["text_output"])) == 20
    output = llama.sh(
        "python3 inflight_batcher_llm/client/inflight_batcher_llm_client.py -u localhost:$GRPC --request-output-len 200"
        " --tokenizer-dir ${HF_LLAMA_MODEL} --exclude-input-in-output"
    ).stdout
    assert ids_after("Input", output) == prompt_ids() and "Output beam 0: " in output
    assert len(ids_after("Output", output)) <= 200
    output = llama.sh(
        "python3 tools/inflight_batcher_llm/end_to_end_test.py -u localhost:$HTTP"
        " --dataset ci/L0_backend_trtllm/simple_data.json --max-input-len 500 --test-bls"
    ).stdout
    lines = ("Start testing on 13 prompts.", "Functionality test succeed.", "Warm up for benchmarking.",
             "Start benchmarking on 13 prompts.")  # fmt: skip
    assert output.splitlines()[:4] == [f"[INFO] {line}" for line in lines]
    assert re.fullmatch(r"\[INFO\] Total Latency: [\d.]+ ms", output.splitlines()[4])
    llama.stop_servers()
    llama.sh(LLAMA_FILL, DECOUPLED="True", STRATEGY="inflight_batching")
    llama.wait_until_ready()
    output = llama.sh(
        "python3 inflight_batcher_llm/client/inflight_batcher_llm_client.py -u localhost:$GRPC --request-output-len 200"
        " --tokenizer-dir ${HF_LLAMA_MODEL} --streaming"
    ).stdout
    streamed = [int(i) for i in re.findall(r"^\[(\d+)\]$", output, re.MULTILINE)]
    assert ids_after("Output", output) == (prompt_ids() + streamed)[:256]
    grown = llama.sh(
        "python3 inflight_batcher_llm/client/end_to_end_grpc_client.py -u localhost:$GRPC --streaming -o 24"
        " -p 'Once upon a time' --model-name tensorrt_llm_bls --overwrite-output-text"
    ).stdout
    joined = llama.sh(
        "python3 inflight_batcher_llm/client/end_to_end_grpc_client.py -u localhost:$GRPC --streaming -o 24 -p 'Once upon a time'"
    ).stdout
    assert grown == joined and len(joined) > 24


def test_the_gemma_guide(llama):
    """It fills keys that the template does not have: tokenizer_type left it at 0.9, and the guide of 0.10 gives it."""
    done = llama.sh(
        """
        cp all_models/inflight_batcher_llm/ gemma -r
        python3 tools/fill_template.py -i gemma/preprocessing/config.pbtxt \\
            tokenizer_dir:${HF_LLAMA_MODEL},tokenizer_type:sp,triton_max_batch_size:64,preprocessing_instance_count:1,\
add_special_tokens:True
        python3 tools/fill_template.py -i gemma/postprocessing/config.pbtxt \\
            tokenizer_dir:${HF_LLAMA_MODEL},tokenizer_type:sp,triton_max_batch_size:64,postprocessing_instance_count:1
        python3 tools/fill_template.py -i gemma/tensorrt_llm_bls/config.pbtxt \\
            triton_max_batch_size:64,decoupled_mode:False,bls_instance_count:1,accumulate_tokens:False
        python3 tools/fill_template.py -i gemma/ensemble/config.pbtxt triton_max_batch_size:64
        python3 tools/fill_template.py -i gemma/tensorrt_llm/config.pbtxt triton_backend:tensorrtllm,triton_max_batch_size:64,\
decoupled_mode:False,max_beam_width:1,engine_dir:${ENGINE_PATH},max_tokens_in_paged_kv_cache:2560,\
max_attention_window_size:2560,kv_cache_free_gpu_mem_fraction:0.5,exclude_input_in_output:True,enable_kv_cache_reuse:False,\
batching_strategy:inflight_fused_batching,max_queue_delay_microseconds:0,batch_scheduler_policy:guaranteed_no_evict
        inflight inspect gemma
        """
    )
    assert "tokenizer_type stands nowhere in gemma/preprocessing/config.pbtxt" in done.stderr
    assert re.search(r"^ *batch_scheduler_policy +guaranteed_no_evict +file +honoured", done.stdout, re.MULTILINE)
    assert re.search(r"^ *add_special_tokens +True +file +honoured", done.stdout, re.MULTILINE)
    llama.sh(
        "python3 scripts/launch_triton_server.py --world_size 1 --model_repo=gemma/"
        " --http_port $HTTP --grpc_port $GRPC --metrics_port $METRICS > server.log 2>&1"
    )
    llama.wait_until_ready()
    url = "curl -s -X POST localhost:$HTTP/v2/models/ensemble/generate -d"
    plain = json.loads(llama.sh(f"{url} '{QUESTION}'").stdout)
    assert plain["text_output"] and plain["output_log_probs"] == [0.0] * len(plain["output_log_probs"])
    word = plain["text_output"].split()[2]
    words = QUESTION.replace('"bad_words": ""', f'"bad_words": [" {word}"]')
    assert f" {word}" not in json.loads(llama.sh(f"{url} '{words}'").stdout)["text_output"]
    words = QUESTION.replace('"stop_words": ""', f'"stop_words": [" {word}"]')
    assert json.loads(llama.sh(f"{url} '{words}'").stdout)["text_output"].endswith(word)


def test_the_first_note(folder_of):
    """The LLM alone: nothing names a tokenizer, two copies lie a level too deep, a third of the configuration is filled."""
    folder = folder_of("0.5")
    make_gpt2(folder.root / "gpt2", vocab_size=50257, width=128)  # 900 tokens take longer than the 200 ms on any machine
    folder.sh(
        """
        python3 tensorrt_llm/examples/gpt/hf_gpt_convert.py -i gpt2 -o c-model --tensor-parallelism 1 --storage-type float16
        python3 tensorrt_llm/examples/gpt/build.py --model_dir=c-model/1-gpu --dtype float16 --use_gpt_attention_plugin \\
            --use_inflight_batching --paged_kv_cache --remove_input_padding --hidden_act gelu --output_dir engines/1-gpu/
        rm -f engines/1-gpu/tokenizer* engines/1-gpu/special_tokens_map.json
        mkdir REPO
        cp -R all_models/inflight_batcher_llm/ REPO
        cp -R engines/1-gpu/ REPO/inflight_batcher_llm/tensorrt_llm/1
        """
    )
    edit(folder, "tensorrt_llm", "REPO/inflight_batcher_llm", decoupled_mode="true",
         engine_dir=folder.root / "REPO/inflight_batcher_llm/tensorrt_llm/1")  # fmt: skip
    folder.sh(
        "tritonserver --model-repository=$ROOT/REPO --http-port=$HTTP --grpc-port=$GRPC --metrics-port=$METRICS"
        " > server.log 2>&1 &"
    )
    folder.wait_until_ready()
    client = "python3 inflight_batcher_llm/client/inflight_batcher_llm_client.py -u localhost:$GRPC --streaming"
    output = folder.sh(client).stdout
    ids = [28524, 287, 5093, 12, 23316, 4881, 11, 30022, 263, 8776, 355, 257]  # GPT-2's of the default text
    assert ids_after("Input", output) == ids
    assert len(ids_after("Output", output)) == len(ids) + 16
    output = folder.sh(client + " --stop-after-ms 200 --request-output-len 900").stdout
    assert "Got cancellation response from server" in output or "The request ended within the 200 ms" in output


def test_the_llama_of_the_first_releases(folder_of):
    """hf_llama_convert.py and build.py of its folder: the weights are those of the later script."""
    folder = folder_of("0.5")
    copy_demo(folder)
    folder.sh(
        """
        cd tensorrt_llm/examples/llama
        python3 hf_llama_convert.py -i $ROOT/llama-hf -o $ROOT/c-model --tensor-parallelism 1 --storage-type float16
        python3 build.py --model_dir=$ROOT/c-model/1-gpu --dtype float16 --use_gpt_attention_plugin float16 \\
            --use_inflight_batching --paged_kv_cache --remove_input_padding --output_dir=$ROOT/engines/1-gpu
        python3 convert_checkpoint.py --model_dir $ROOT/llama-hf --output_dir $ROOT/ckpt --dtype float16
        cmp $ROOT/c-model/1-gpu/rank0.safetensors $ROOT/ckpt/rank0.safetensors
        """
    )
    example = json.loads((DEMO / "demo_requests.json").read_text())[0]
    asked = f"inflight run engines/1-gpu --prompt '{example['text_input']}' --max-tokens 24"
    assert folder.sh(asked).stdout.strip() == example["expected"]


def test_the_walk_through_of_0_8(folder_of):
    """build.py of the old flow, then the thirteen keys of the LLM and the type of the tokenizer."""
    folder = folder_of("0.8")
    make_gpt2(folder.root / "tensorrt_llm/examples/gpt/gpt2")
    folder.sh(
        """
        cd tensorrt_llm/examples/gpt
        python3 hf_gpt_convert.py -p 8 -i gpt2 -o ./c-model/gpt2 --tensor-parallelism 1 --storage-type float16
        python3 build.py --model_dir=./c-model/gpt2/1-gpu/ --world_size=1 --dtype float16 --use_inflight_batching \\
            --use_gpt_attention_plugin float16 --paged_kv_cache --use_gemm_plugin float16 --remove_input_padding \\
            --use_layernorm_plugin float16 --hidden_act gelu --parallel_build --output_dir=engines/fp16/1-gpu
        cd ../../..
        mkdir triton_model_repo
        cp -r all_models/inflight_batcher_llm/* triton_model_repo/
        cp tensorrt_llm/examples/gpt/engines/fp16/1-gpu/* triton_model_repo/tensorrt_llm/1
        """
    )
    tokenizer = folder.root / "tensorrt_llm/examples/gpt/gpt2"
    edit(folder, "preprocessing", tokenizer_dir=tokenizer, tokenizer_type="auto")
    edit(folder, "postprocessing", tokenizer_dir=tokenizer, tokenizer_type="auto")
    edit(folder, "tensorrt_llm", engine_dir=folder.root / "triton_model_repo/tensorrt_llm/1", decoupled_mode="true",
         batching_strategy="inflight_fused_batching", max_beam_width=1, max_tokens_in_paged_kv_cache=2560,
         max_attention_window_size=1024, batch_scheduler_policy="guaranteed_no_evict", kv_cache_free_gpu_mem_fraction=0.2,
         exclude_input_in_output="false", enable_kv_cache_reuse="false", normalize_log_probs="true",
         enable_chunked_context="false", enable_trt_overlap="false", gpu_device_ids="")  # fmt: skip
    folder.sh(
        "python3 scripts/launch_triton_server.py --world_size=1 --model_repo=$ROOT/triton_model_repo"
        " --http_port $HTTP --grpc_port $GRPC --metrics_port $METRICS > server.log 2>&1"
    )
    folder.wait_until_ready()
    answer = json.loads(folder.sh(CURLS.split("echo")[0]).stdout)
    assert answer["text_output"].startswith("What is machine learning?")
    text = folder.sh(
        "python3 tools/inflight_batcher_llm/end_to_end_streaming_client.py -u localhost:$GRPC -p 'What is machine learning?' -S"
        " --output_len 20"
    ).stdout
    assert "What is machine learning?" + text.rstrip("\n") == answer["text_output"].rstrip("\n")
    output = folder.sh(
        "python3 tools/inflight_batcher_llm/identity_test.py -u localhost:$HTTP --max_input_len 500 --time_bet_reqs 0 0.001"
        " --dataset ci/L0_backend_trtllm/simple_data.json --tokenizer_dir tensorrt_llm/examples/gpt/gpt2"
    ).stdout
    assert output.count("[INFO] Total Latency: ") == 2


@pytest.mark.parametrize(("ranks", "place"), [(2, "volume"), (1, "volume"), (1, "bucket")])
def test_the_managed_endpoint(folder_of, ranks, place):
    """Hub ids for model and tokenizer, two ranks or one, three edits, four models without BLS on a volume or in a bucket."""
    folder = folder_of("0.7")
    snapshot = folder.root / "hub/models--org--llama/snapshots/0123456789abcdef"
    shutil.copytree(DEMO, snapshot, ignore=shutil.ignore_patterns("*.py", "*.jsonl"))
    (folder.root / "hub/models--org--llama/refs").mkdir()
    (folder.root / "hub/models--org--llama/refs/main").write_text("0123456789abcdef")
    folder.environment |= {"HF_HUB_CACHE": str(folder.root / "hub"), "HF_HUB_OFFLINE": "1", "RANKS": str(ranks)}
    folder.sh(
        """
        python3 tensorrt_llm/examples/llama/convert_checkpoint.py --model_dir org/llama --tp_size $RANKS --output_dir ckpt
        python3 tensorrt_llm/examples/llama/build.py --model_dir ckpt --tp_size $RANKS --world_size $RANKS --dtype float16 \\
            --use_gpt_attention_plugin float16 --use_gemm_plugin float16 --remove_input_padding --use_inflight_batching \\
            --paged_kv_cache --output_dir engine_dir
        cp -r engine_dir all_models/inflight_batcher_llm/tensorrt_llm/1/
        """
    )
    with contextlib.ExitStack() as stores:
        bucket = stores.enter_context(S3()) if place == "bucket" else None
        repository = bucket.address("endpoint") if bucket else folder.root / "models"
        models = "all_models/inflight_batcher_llm"
        edit(folder, "tensorrt_llm", models, engine_dir=f"{repository}/tensorrt_llm/1", decoupled_mode="false")
        edit(folder, "preprocessing", models, tokenizer_dir="org/llama")
        edit(folder, "postprocessing", models, tokenizer_dir="org/llama")
        folder.sh(
            """
            mkdir models
            for model in preprocessing postprocessing tensorrt_llm ensemble; do
              cp -r all_models/inflight_batcher_llm/$model models/
            done
            """
        )
        if bucket:
            bucket.put_folder(folder.root / "models", "endpoint")
            bucket.objects["endpoint/ensemble/1/"] = b""  # an empty folder, as consoles make it
            shutil.rmtree(folder.root / "models")
            folder.environment |= {
                "AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": REGION,
                "XDG_CACHE_HOME": str(folder.root / "cache"), "no_proxy": "127.0.0.1",
            }  # fmt: skip
        folder.sh(
            f"python3 scripts/launch_triton_server.py --world_size=$RANKS --model_repo={repository}"
            " --http_port $HTTP --grpc_port $GRPC --metrics_port $METRICS > server.log 2>&1"
        )
        folder.wait_until_ready()
        assert ("this rank computes" in folder.log()) == (ranks > 1)
        answer = json.loads(folder.sh(CURLS.split("echo")[0]).stdout)
        assert answer["text_output"].startswith("What is machine learning?")
        folder.stop_servers()


def test_the_cog_guide(folder_of):
    """Part of the places filled, the output of fill_template.py redirected, streaming by SSE on a decoupled model."""
    folder = folder_of("0.7")
    make_gpt2(folder.root / "gpt2")
    folder.sh(
        """
        python3 tensorrt_llm/examples/gpt/hf_gpt_convert.py -p 8 -i gpt2 -o ./c-model/gpt2 --tensor-parallelism 1 \\
            --storage-type float16
        python3 tensorrt_llm/examples/gpt/build.py --model_dir=./c-model/gpt2/1-gpu/ --dtype float16 \\
            --use_gpt_attention_plugin float16 --use_inflight_batching --paged_kv_cache --remove_input_padding \\
            --output_dir=engines/fp16/1-gpu
        cp -r all_models/inflight_batcher_llm triton_model_repo
        rm -rf triton_model_repo/tensorrt_llm_bls
        cp engines/fp16/1-gpu/* triton_model_repo/tensorrt_llm/1
        python3 scripts/triton_fill_template.py -i triton_model_repo/preprocessing/config.pbtxt \\
            tokenizer_dir:$ROOT/triton_model_repo/tensorrt_llm/1,tokenizer_type:auto
        python3 scripts/triton_fill_template.py -i triton_model_repo/postprocessing/config.pbtxt \\
            tokenizer_dir:$ROOT/triton_model_repo/tensorrt_llm/1,tokenizer_type:auto
        python3 scripts/triton_fill_template.py all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt \\
            decoupled_mode:True,engine_dir:$ROOT/triton_model_repo/tensorrt_llm/1 > triton_model_repo/tensorrt_llm/config.pbtxt
        python3 scripts/launch_triton_server.py --world_size=1 --model_repo=$ROOT/triton_model_repo \\
            --http_port $HTTP --grpc_port $GRPC --metrics_port $METRICS > server.log 2>&1
        """
    )
    folder.wait_until_ready()
    url = f"http://127.0.0.1:{folder.http}/v2/models/ensemble"
    body = {"text_input": "What is machine learning?", "max_tokens": 20, "bad_words": "", "stop_words": ""}
    whole = requests.post(f"{url}/generate", json=body, timeout=60).json()["text_output"]
    events = requests.post(f"{url}/generate_stream", json={**body, "stream": True}, timeout=60).text
    texts = [json.loads(line.removeprefix("data: "))["text_output"] for line in events.splitlines() if line.startswith("data: ")]
    assert whole == "What is machine learning?" + "".join(texts)
    folder.stop_servers()
    (folder.root / "cog.yaml").write_text('build:\n  gpu: false\npredict: "predict.py:Predictor"\n')
    with open(folder.root / "cog.log", "w") as log:
        container = subprocess.Popen(
            ["python3", "-m", "cog.server.http", "--host", "127.0.0.1", f"--http-port={folder.http}",
             f"--grpc-port={folder.grpc}", f"--metrics-port={folder.metrics}"],
            cwd=folder.root, stdout=log, stderr=log,
            env={**folder.environment, "PYTHONPATH": str(folder.root / "cog"), "PORT": str(free_ports(1)[0])},
        )  # fmt: skip
    try:
        wait_for(folder.root / "cog.log", "Started cog HTTPService")
        port = re.search(r"Started cog HTTPService at 127\.0\.0\.1:(\d+)", (folder.root / "cog.log").read_text())[1]
        body = '{"input": {"prompt": "What is machine learning?", "max_tokens": 20, "temperature": 0}}'
        asked = f"curl -s -X POST http://localhost:{port}/predictions -H 'Content-Type: application/json' -d '{body}'"
        prediction = json.loads(folder.sh(asked).stdout)
        assert prediction["status"] == "succeeded", prediction
        assert "".join(prediction["output"]) == "".join(texts)
        folder.sh(f"curl -s -X POST http://localhost:{port}/shutdown")
        assert container.wait(60) == 0
    finally:
        container.kill()
        container.wait()


def test_generate_default_configs(folder_of):
    """The four models filled by one script, which gives the same again when it is called again."""
    folder = folder_of("0.7")
    make_gpt2(folder.root / "gpt2")
    run = "bash scripts/generate_default_configs.sh && cat triton_model_repo/*/config.pbtxt"
    first = folder.sh(run).stdout
    assert "${tokenizer_dir}" not in first and "${decoupled_mode}" not in first and first == folder.sh(run).stdout
    folder.sh(
        """
        trtllm-build --checkpoint_dir gpt2 --output_dir triton_model_repo/tensorrt_llm/1
        python3 scripts/launch_triton_server.py --model_repo=$ROOT/triton_model_repo \\
            --http_port $HTTP --grpc_port $GRPC --metrics_port $METRICS > server.log 2>&1
        """
    )
    folder.wait_until_ready()
    assert json.loads(folder.sh(CURLS.split("echo")[0]).stdout)["text_output"].startswith("What is machine learning?")


def test_the_repository_that_the_launcher_serves_by_itself(folder):
    """all_models/gpt, where no --model_repo is given."""
    make_gpt2(folder.root / "gpt2")
    folder.sh(
        """
        trtllm-build --checkpoint_dir gpt2 --output_dir engine
        python3 tools/fill_template.py -i all_models/gpt/preprocessing/config.pbtxt tokenizer_dir:$ROOT/engine
        python3 tools/fill_template.py -i all_models/gpt/postprocessing/config.pbtxt tokenizer_dir:$ROOT/engine
        python3 tools/fill_template.py -i all_models/gpt/tensorrt_llm/config.pbtxt engine_dir:$ROOT/engine
        python3 scripts/launch_triton_server.py --http_port $HTTP --grpc_port $GRPC --metrics_port $METRICS > server.log 2>&1
        """
    )
    folder.wait_until_ready()
    assert json.loads(folder.sh(CURLS.split("echo")[0]).stdout)["text_output"].startswith("What is machine learning?")


def test_the_llm_api_guide(folder_of):
    """The repository whose one model names a directory, by the paths of 0.21."""
    folder = folder_of("0.21")
    copy_demo(folder)
    folder.sh(
        """
        cp -R tensorrt_llm/triton_backend/all_models/llmapi/ llmapi_repo/
        sed -i "s#^model: .*#model: $ROOT/llama-hf#" llmapi_repo/tensorrt_llm/1/model.yaml
        python3 tensorrt_llm/triton_backend/scripts/launch_triton_server.py --model_repo=llmapi_repo/ \\
            --http_port $HTTP --grpc_port $GRPC --metrics_port $METRICS > server.log 2>&1
        """
    )
    folder.wait_until_ready()
    body = '{"text_input": "The future of AI is", "sampling_param_max_tokens": 10}'
    answer = json.loads(folder.sh(f"curl -s -X POST localhost:$HTTP/v2/models/tensorrt_llm/generate -d '{body}'").stdout)
    whole = json.loads(folder.sh(f"curl -s -X POST localhost:$HTTP/v2/models/tensorrt_llm/generate -d '{body[:-1]},"
                                 """ "sampling_param_temperature": 0.0}'""").stdout)  # fmt: skip
    assert answer["text_output"] and answer["text_output"] == whole["text_output"]
    output = folder.sh(
        "python3 tensorrt_llm/triton_backend/tools/inflight_batcher_llm/end_to_end_test.py -u localhost:$HTTP --max-input-len 500"
        " --dataset tensorrt_llm/triton_backend/ci/L0_backend_trtllm/simple_data.json --test-llmapi --model-name tensorrt_llm"
    ).stdout
    lines = [
        "[INFO] Start testing on 13 prompts.", "[INFO] Functionality test succeeded.", "[INFO] Warm up for benchmarking.",
        "FLAGS.model_name: tensorrt_llm", "[INFO] Start benchmarking on 13 prompts.",
    ]  # fmt: skip
    assert output.splitlines()[:-1] == lines and re.fullmatch(r"\[INFO\] Total Latency: [\d.]+ ms", output.splitlines()[-1])
    output = folder.sh(
        "python3 tensorrt_llm/triton_backend/tools/inflight_batcher_llm/benchmark_core_model.py -i grpc -u localhost:$GRPC"
        " --max-input-len 500 --tensorrt-llm-model-name tensorrt_llm --test-llmapi --num-requests 3"
        " dataset --dataset tensorrt_llm/triton_backend/ci/L0_backend_trtllm/simple_data.json --tokenizer-dir llama-hf"
    ).stdout
    assert output.splitlines()[2] == "[INFO] Start benchmarking on 3 prompts." and "[INFO] Total Latency: " in output
    client = "python3 tensorrt_llm/triton_backend/tools/llmapi_client.py -u localhost:$GRPC"
    output = folder.sh(f'{client} --text "The future of AI is" --request-output-len 10 -C gzip').stdout
    assert output == f"Got completed request\nOutput text: {answer['text_output']}\n"
    missing = folder.sh(f"{client} --model-name nobody", check=False)
    assert missing.returncode == 1 and "Encountered error: " in missing.stdout and "'nobody' is not found" in missing.stderr


def launch_llm_api(folder, edits=""):
    """A model of the LLM API over llama-hf, its model.yaml changed by `edits` of sed too."""
    folder.sh(
        f"""
        cp -R all_models/llmapi/ llmapi_repo/
        sed -i "s#^model: .*#model: $ROOT/llama-hf#{edits}" llmapi_repo/tensorrt_llm/1/model.yaml
        python3 scripts/launch_triton_server.py --model_repo=llmapi_repo/ \\
            --http_port $HTTP --grpc_port $GRPC --metrics_port $METRICS > server.log 2>&1
        """
    )
    folder.wait_until_ready()


def test_the_llm_api_s_client_ends_requests_early(folder_of):
    """Of a model that never ends by itself, long after the client has ended it; release 1.0 is the first with `stop`."""
    folder = folder_of("1.0")
    copy_demo(folder)
    for file in ("config.json", "generation_config.json"):
        path = folder.root / "llama-hf" / file
        path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token_id": [2047]}))
    launch_llm_api(folder)
    client = "python3 tools/llmapi_client.py -u localhost:$GRPC --request-output-len 1000"
    whole = folder.sh(client).stdout
    for how in ("", "--stop-via-request-cancel"):
        output = folder.sh(f"{client} --stop-after-ms 20 {how}").stdout
        cancelled = output == "Got completed request\nRequest is cancelled\n"
        assert cancelled or (how == "" and whole.startswith(output[:-1]) and len(output) < len(whole)), output
    late = folder.sh(f"{client} --stream-timeout 0.02", check=False)
    assert late.returncode == 1 and "Received an error from server:" in late.stdout and "DEADLINE_EXCEEDED" in late.stderr
    metrics = folder.sh("python3 tools/llmapi_client.py -u localhost:$GRPC --return-perf-metrics").stdout
    assert re.search(r"^arrival_time_ns: [1-9]\d+$", metrics, re.MULTILINE)


def test_the_llm_api_s_tools_stream_from_a_decoupled_model(folder_of):
    folder = folder_of("0.19")
    copy_demo(folder)
    launch_llm_api(folder, "; s#decoupled: .*#decoupled: true#")
    tools, grpc = "python3 tools/inflight_batcher_llm", "-i grpc -u localhost:$GRPC --max-input-len 500 --test-llmapi"
    prompts = [example["text_input"].rsplit(" ", 1) for example in json.loads((DEMO / "demo_requests.json").read_text())]
    rows = [{"input": start, "instruction": end, "output": "a few words"} for start, end in prompts]
    (folder.root / "data.json").write_text(json.dumps(rows))
    data = "--dataset data.json"
    asked = """--sampling-params "{'max_tokens': 3, 'top_k': 1}" --output-config "{'return_finish_reason': True}" """
    output = folder.sh(f"{tools}/end_to_end_test.py {grpc} {data} --streaming {asked} -v").stdout
    assert len(re.findall("^Text output: .", output, re.MULTILINE)) == len(rows)
    reasons = re.findall(r"^Finish reason: \[b'(\w+)'\]", output, re.MULTILINE)
    assert len(reasons) == len(rows) and set(reasons) <= {"length", "stop"} and "length" in reasons
    assert "[INFO] Functionality test succeeded." in output and "[INFO] Total Latency: " in output
    output = folder.sh(f"{tools}/benchmark_core_model.py {grpc} --decoupled dataset {data} --tokenizer-dir llama-hf").stdout
    assert f"[INFO] Start benchmarking on {len(rows)} prompts." in output and "[INFO] Total Latency: " in output
    client = "python3 tools/llmapi_client.py -u localhost:$GRPC"
    output = folder.sh(f"{client} --text 'Once upon a time' --request-output-len 12 -S").stdout
    texts = [line.removeprefix("Output text: ") for line in output.splitlines() if line.startswith("Output text: ")]
    assert texts and all(later.startswith(text) for text, later in itertools.pairwise(texts)), "each is all so far"
    whole = requests.post(
        f"http://localhost:{folder.http}/v2/models/tensorrt_llm/generate_stream", timeout=60,
        json={"text_input": "Once upon a time", "sampling_param_max_tokens": 12, "streaming": True},
    ).text.split("data: ")[-1]  # fmt: skip
    assert texts[-1] == json.loads(whole)["text_output"]
    refused = folder.sh(f"{tools}/end_to_end_test.py {grpc} {data} --sampling-params \"{{'best_of': 2}}\"", check=False)
    assert refused.returncode == 1 and "sampling_param_best_of" in refused.stderr
