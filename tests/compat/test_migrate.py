# SPDX-License-Identifier: Apache-2.0
"""`inflight migrate` over repositories of releases: what it says is what `serve` does with them."""

import json
import subprocess

import pytest
from folders import INFLIGHT
from release_repositories import write_repository
from tiny_models import DEMO

# What trtllm-build 0.10 writes beside an engine, but for what is not read.
TENSORRT = {
    "version": "0.10.0",
    "pretrained_config": {"architecture": "LlamaForCausalLM", "dtype": "float16", "mapping": {"world_size": 2, "tp_size": 2}},
    "build_config": {"max_batch_size": 64, "max_input_len": 1024, "max_output_len": 512, "max_beam_width": 1},
}
FILLED = {"tokenizer_dir": DEMO, "decoupled_mode": "True", "batching_strategy": "inflight_fused_batching"}


def migrate(*arguments):
    return subprocess.run([INFLIGHT, "migrate", *arguments], capture_output=True, text=True, timeout=60, check=False)


def part_of(report, model):
    return next(part for part in report.split("\n\n") if part.startswith(f"model {model} ") or part.startswith(f"model {model}:"))


@pytest.mark.parametrize("release", [5, 11, 13])
def test_a_repository_that_runs_as_it_is(tmp_path, release):
    write_repository(tmp_path / "models", release, engine_dir=DEMO, **FILLED)
    done = migrate(tmp_path / "models")
    assert done.returncode == 0, done.stdout + done.stderr
    num_models = 4 if release == 5 else 5
    assert f"{num_models} of {num_models} models run as they are" in done.stdout
    assert f"start: tritonserver --model-repository={tmp_path / 'models'}" in done.stdout
    llm = part_of(done.stdout, "tensorrt_llm")
    assert llm.startswith("model tensorrt_llm version 1: runs as it is")
    assert "lora_task_id" not in llm and "temperature" not in llm
    assert "clients: text ends at each of the model's end ids 2044, 2047, not at the tokenizer's alone" in llm


def test_keys_without_effect_are_named_with_the_reason(tmp_path):
    write_repository(tmp_path / "models", 10, engine_dir=DEMO, decoding_mode="top_k", cancellation_check_period_ms=50, **FILLED)
    done = migrate(tmp_path / "models")
    assert "key cancellation_check_period_ms = 50: ignored: " in part_of(done.stdout, "tensorrt_llm")
    assert "decoding_mode" not in done.stdout


def test_an_engine_of_tensorrt_is_named_and_has_its_command(tmp_path):
    write_repository(tmp_path / "models", 10, engine_dir=tmp_path / "models/tensorrt_llm/1", **FILLED)
    engine = tmp_path / "models/tensorrt_llm/1/2-gpu"
    engine.mkdir()
    (engine / "config.json").write_text(json.dumps(TENSORRT))
    (engine / "rank0.engine").write_bytes(b"ftrt" + bytes(200))
    done = migrate(tmp_path / "models")
    assert done.returncode == 1
    llm = part_of(done.stdout, "tensorrt_llm")
    assert llm.startswith("model tensorrt_llm version 1: does not run yet")
    assert f"engine {engine}: engine of TensorRT-LLM 0.10.0, LlamaForCausalLM float16, 2 ranks" in llm
    [command] = [line.strip() for line in llm.splitlines() if line.strip().startswith("inflight build")]
    assert "models do not run yet" in done.stderr
    # The command, with the Hugging Face model in CHECKPOINT's place, is one that works.
    limits = command.replace("CHECKPOINT", str(DEMO)).replace("ENGINE", str(tmp_path / "built")).split(" ")[1:]
    limits[limits.index("--max-seq-len") + 1] = "1024"  # the demo model has no more positions
    built = subprocess.run([INFLIGHT, *limits], capture_output=True, text=True, timeout=120, check=False)
    assert built.returncode == 0, built.stderr
    for path in engine.iterdir():
        path.unlink()
    engine.rmdir()
    (tmp_path / "built").rename(engine)
    assert migrate(tmp_path / "models").returncode == 0


def test_serve_names_the_engine_too(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TENSORRT))
    (tmp_path / "rank0.engine").write_bytes(b"ftrt" + bytes(200))
    done = subprocess.run([INFLIGHT, "serve", tmp_path], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "engine of TensorRT-LLM 0.10.0, LlamaForCausalLM float16, 2 ranks cannot be read" in done.stderr.splitlines()[-1]
    assert "inflight build --checkpoint-dir CHECKPOINT --output-dir ENGINE --max-batch-size 64" in done.stderr.splitlines()[-1]


def test_a_broken_configuration_is_reported_and_the_others_too(tmp_path):
    write_repository(tmp_path / "models", 11, engine_dir=DEMO, **FILLED)
    (tmp_path / "models/postprocessing/config.pbtxt").write_text("name: 3")
    done = migrate(tmp_path / "models")
    assert done.returncode == 1
    assert part_of(done.stdout, "postprocessing").startswith("model postprocessing: does not run yet\n  because ")
    assert part_of(done.stdout, "tensorrt_llm").startswith("model tensorrt_llm version 1: runs as it is")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (
            lambda engine: (engine / "rank0.engine").write_bytes(b"inflight-engine\n" + bytes([99]) + bytes(200)),
            "engine format version 99",
        ),
        (lambda engine: (engine / "rank0.engine").unlink(), "rank0.engine"),
        (lambda engine: (engine / "config.json").write_text("{"), "config.json"),
        (lambda engine: (engine / "config.json").write_text('{"builder_config": {}}'), "before 0.8"),
    ],
)
def test_an_engine_that_cannot_be_loaded_is_the_reason(tmp_path, spoil, reason):
    write_repository(tmp_path / "models", 11, engine_dir=tmp_path / "engine", **FILLED)
    subprocess.run([INFLIGHT, "build", "--checkpoint-dir", DEMO, "--output-dir", tmp_path / "engine"], check=True,
                   capture_output=True, timeout=120)  # fmt: skip
    spoil(tmp_path / "engine")
    done = migrate(tmp_path / "models")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    llm = part_of(done.stdout, "tensorrt_llm")
    assert llm.startswith("model tensorrt_llm version 1: does not run yet\n  because ") and reason in llm
