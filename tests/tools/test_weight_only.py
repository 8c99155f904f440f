# SPDX-License-Identifier: Apache-2.0
"""int8 and int4 weights from outside: convert, build, inspect, run, and the accuracy report of `inflight build`."""

import json
import re
import struct

import pytest
from command import DEMO, ROOT, error, run
from safetensors_rows import demo_rows, header

SECOND_IMPLEMENTATION = json.loads((ROOT / "tests/golden/int8/demo_perplexity.json").read_text())
INT4 = json.loads((ROOT / "tests/golden/int4/demo_perplexity.json").read_text())


def convert_and_build(work, precision):
    options = ("--use-weight-only", "--weight-only-precision", precision)
    run("convert", "--model-dir", DEMO, "--output-dir", work / "ckpt", *options)
    run("build", "--checkpoint-dir", work / "ckpt", "--output-dir", work / "engine", "--max-seq-len", 256)
    return work


@pytest.fixture(scope="module")
def int8_engine(tmp_path_factory):
    return convert_and_build(tmp_path_factory.mktemp("int8"), "int8")


@pytest.fixture(scope="module")
def int4_engine(tmp_path_factory):
    return convert_and_build(tmp_path_factory.mktemp("int4"), "int4")


def report(*args):
    """Form -> its columns, and the text itself."""
    text = run("build", "--report", *args).stdout
    rows = re.findall(r"^(\w+) +([\d.]+) +([\d.]+) +([+-][\d.]+) % +([\d.]+) +([\d.]+) +([\d.]+) %$", text, re.MULTILINE)
    names = ("weights_mb", "perplexity", "change", "logit_rms", "logit_max", "same_best")
    return {row[0]: dict(zip(names, map(float, row[1:]), strict=True)) for row in rows}, text


@pytest.mark.arithmetic
def test_report_gives_the_perplexities_of_a_second_implementation():
    forms, text = report("--checkpoint-dir", DEMO)
    assert list(forms) == ["float32", "float16", "bfloat16", "int8", "int4"]
    assert f"{SECOND_IMPLEMENTATION['num_predictions']} predictions in {SECOND_IMPLEMENTATION['num_texts']} texts" in text
    exact = SECOND_IMPLEMENTATION["float32"]
    # Float32 sums against float64 ones: far below the last digit of what sixteen bits change.
    assert forms["float32"]["perplexity"] == pytest.approx(exact, rel=1e-5)
    assert forms["float16"]["perplexity"] == pytest.approx(exact, rel=1e-3)
    assert forms["bfloat16"]["perplexity"] == pytest.approx(exact, rel=5e-3)
    # The rest of the int8 form is bfloat16 here and float64 there.
    assert forms["int8"]["perplexity"] == pytest.approx(SECOND_IMPLEMENTATION["int8"], rel=1e-3)
    # What is asked of int8: within one percent of float32.
    assert forms["int8"]["perplexity"] == pytest.approx(forms["float32"]["perplexity"], rel=0.01)
    assert forms["int4"]["perplexity"] == pytest.approx(INT4["int4"], rel=1e-3)
    errors = [form["logit_rms"] for form in forms.values()]
    assert errors[0] == 0 < errors[1] < errors[2] < errors[3] < errors[4]
    assert forms["int8"]["same_best"] > 95
    assert forms["int8"]["weights_mb"] < 0.75 * forms["bfloat16"]["weights_mb"]
    saved = forms["bfloat16"]["weights_mb"] - forms["int8"]["weights_mb"]  # a byte of each weight, less its scales
    assert forms["int8"]["weights_mb"] - forms["int4"]["weights_mb"] == pytest.approx(saved / 2, rel=0.02)


@pytest.mark.arithmetic
def test_report_is_repeatable_and_takes_any_text(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("Once upon a time, a curious fox named Luma lived in an old mill. " * 15)
    first = report("--checkpoint-dir", DEMO, "--report-text", text)
    assert first == report("--checkpoint-dir", DEMO, "--report-text", text)
    assert "in 1 texts" in first[1]


def test_report_without_text_says_what_is_needed(int8_engine):
    done = run("build", "--report", "--checkpoint-dir", int8_engine / "ckpt", check=False)
    assert done.returncode == 1
    assert "--report-text: is needed" in done.stderr
    done = run(
        "build", "--report", "--checkpoint-dir", int8_engine / "ckpt", "--report-text", DEMO / "heldout_text.jsonl", check=False
    )
    assert done.returncode == 1
    assert "the weights are int8 already" in done.stderr


def test_inspect_and_the_log_say_how_int8_is_computed(int8_engine):
    for directory in ("ckpt", "engine"):
        text = run("inspect", int8_engine / directory).stdout
        assert "quantization  W8A16: int8 weights, a scale per output channel; the CPU rounds activations to int8" in text
    done = run("run", int8_engine / "engine", "--prompt", "What is 27 + 54?", "--log-verbose")
    assert done.stdout.strip() == "27 + 54 = 81."
    assert "weights are quantised" in done.stderr
    assert "int8 weights, a scale per output channel; the CPU rounds activations to int8" in done.stderr


def test_an_int4_checkpoint_holds_two_codes_a_byte_and_a_scale_a_row(int4_engine):
    assert json.loads((int4_engine / "ckpt/config.json").read_text())["quantization"]["quant_algo"] == "W4A16"
    tensors, data = header(int4_engine / "ckpt/rank0.safetensors")
    name = "transformer.layers.3.mlp.proj"
    codes, scales = tensors[name + ".weight"], tensors[name + ".per_channel_scale"]
    assert (codes["dtype"], codes["shape"]) == ("I8", [256, 384])
    assert (scales["dtype"], scales["shape"]) == ("BF16", [256])
    weights_of = demo_rows("model.layers.3.mlp.down_proj.weight")
    for row in (0, 100, 255):
        weights = weights_of(row)
        scale = max(map(abs, weights)) / 8
        at = codes["data_offsets"][0] + row * 384
        nibbles = [nibble for byte in data[at : at + 384] for nibble in (byte % 16, byte // 16)]
        for weight, nibble in zip(weights, nibbles, strict=True):
            code = nibble - 16 * (nibble > 7)
            assert abs(code * scale - weight) <= scale * (1 if code == 7 else 0.5) * (1 + 1e-6)


def test_int4_through_a_checkpoint_directly_and_from_ranks_is_one_engine(int4_engine, tmp_path):
    build = ["build", "--max-seq-len", 256, "--output-dir"]
    run(*build, tmp_path / "direct", "--checkpoint-dir", DEMO, "--qformat", "int4_wo")
    run(
        "convert",
        "--model-dir",
        DEMO,
        "--output-dir",
        tmp_path / "ranks",
        "--quant-algo",
        "W4A16",
        "--tp-size",
        2,
        "--pp-size",
        2,
    )
    run(*build, tmp_path / "merged", "--checkpoint-dir", tmp_path / "ranks", "--merge-ranks")
    engine = (int4_engine / "engine/rank0.engine").read_bytes()
    assert (tmp_path / "direct/rank0.engine").read_bytes() == engine
    assert (tmp_path / "merged/rank0.engine").read_bytes() == engine


def test_inspect_says_how_int4_is_computed_and_it_runs(int4_engine):
    for directory in ("ckpt", "engine"):
        text = run("inspect", int4_engine / directory).stdout
        assert "quantization  W4A16: int4 weights, a scale per output channel; the CPU rounds activations to int8" in text
    assert run("run", int4_engine / "engine", "--prompt", "What is 27 + 54?", "--max-tokens", 8).stdout.strip()


def test_int4_in_groups_on_every_road(tmp_path):
    groups = ["--quant-algo", "W4A16_GPTQ", "--group-size", "64"]
    build = ["build", "--max-seq-len", 256, "--output-dir"]
    run("convert", "--model-dir", DEMO, "--output-dir", tmp_path / "ckpt", *groups)
    run("convert", "--model-dir", DEMO, "--output-dir", tmp_path / "ranks", *groups, "--tp-size", 2, "--pp-size", 2)
    run(*build, tmp_path / "engine", "--checkpoint-dir", tmp_path / "ckpt")
    run(*build, tmp_path / "merged", "--checkpoint-dir", tmp_path / "ranks", "--merge-ranks")
    run(*build, tmp_path / "direct", "--checkpoint-dir", DEMO, *groups)
    engine = (tmp_path / "engine/rank0.engine").read_bytes()
    assert (tmp_path / "merged/rank0.engine").read_bytes() == engine
    assert (tmp_path / "direct/rank0.engine").read_bytes() == engine
    note = (
        "quantization  W4A16_GPTQ: int4 weights in groups of 64; the CPU rounds activations to int8, a scale per token and group"
    )
    answers = []
    for directory in ("ckpt", "engine", "ranks"):
        assert note in run("inspect", tmp_path / directory).stdout
        answers.append(run("run", tmp_path / directory, "--prompt", "What is 27 + 54?", "--max-tokens", 16).stdout)
    answers.append(run("run", DEMO, *groups, "--prompt", "What is 27 + 54?", "--max-tokens", 16).stdout)
    assert "81" in answers[0] and len(set(answers)) == 1
    # Scales of groups, float32, by hand.
    name = "transformer.layers.3.mlp.proj"
    tensors, data = header(tmp_path / "ckpt/rank0.safetensors")
    scales = tensors[name + ".weights_scaling_factor"]
    assert scales["dtype"] == "F32" and scales["shape"] == [256, 12]
    weights = demo_rows("model.layers.3.mlp.down_proj.weight")(100)
    at = scales["data_offsets"][0] + 100 * 12 * 4
    for group, scale in enumerate(struct.unpack("<12f", data[at : at + 48])):
        assert scale == max(map(abs, weights[64 * group : 64 * (group + 1)])) / 8


@pytest.mark.parametrize("form", [("--use-weight-only",), ("--use-weight-only", "--weight-only-precision", "int4"),
                                  ("--quant-algo", "W4A16_GPTQ", "--group-size", "64")])  # fmt: skip
def test_the_head_in_8_bits_on_every_road(form, tmp_path):
    asked = (*form, "--quantize-lm-head")
    build = ["build", "--max-seq-len", 256, "--output-dir"]
    run("convert", "--model-dir", DEMO, "--output-dir", tmp_path / "ckpt", *asked)
    run(*build, tmp_path / "engine", "--checkpoint-dir", tmp_path / "ckpt")
    run(*build, tmp_path / "direct", "--checkpoint-dir", DEMO, *asked)
    assert (tmp_path / "direct/rank0.engine").read_bytes() == (tmp_path / "engine/rank0.engine").read_bytes()
    layers = json.loads((tmp_path / "ckpt/config.json").read_text())["quantization"]["quantized_layers"]
    assert layers["transformer.vocab_embedding"]["quant_algo"] == ("W8A16_GPTQ" if "--group-size" in form else "W8A16")
    answers = [run("run", DEMO, *asked, "--prompt", "What is 27 + 54?", "--max-tokens", 16).stdout]
    for directory in ("ckpt", "engine"):
        assert "lm_head       int8" in run("inspect", tmp_path / directory, *asked).stdout
        answers.append(run("run", tmp_path / directory, *asked, "--prompt", "What is 27 + 54?", "--max-tokens", 16).stdout)
    assert "81" in answers[0] and len(set(answers)) == 1
    refused = error("build", "--checkpoint-dir", DEMO, "--output-dir", tmp_path / "no", "--target", "cuda", *asked)
    assert "W4A16_GPTQ), on a GPU unless lm_head is the embedding table" in refused
    assert "the engine's lm_head is int8" not in error("inspect", tmp_path / "engine", *form)


def test_groups_that_do_not_fit_are_refused(tmp_path):
    convert = ["convert", "--model-dir", DEMO, "--output-dir", tmp_path / "out", "--quant-algo"]
    assert "group_size: got 48, hidden_size 256 is no multiple of it" in error(*convert, "W4A16_GPTQ", "--group-size", 48)
    assert "--group-size: got 64, only beside --quant-algo W4A16_GPTQ" in error(*convert, "W8A16", "--group-size", 64)
    assert "which cuts the 256 columns" in error(*convert, "W4A16_GPTQ", "--group-size", 256, "--tp-size", 2)
    assert not (tmp_path / "out").exists()


def test_groups_of_what_has_none_are_refused(tmp_path):
    """Of a model that is known by its sizes or its configuration alone, too."""
    sizes = ("--n-layer", 1, "--n-head", 4, "--n-embd", 64, "--vocab-size", 300, "--n-positions", 128)
    groups = ("--group-size", 64)
    only = ", only beside --quant-algo W4A16_GPTQ and W8A16_GPTQ"
    assert "--group-size: got 64" + only in error("build", *sizes, *groups, "--output-dir", tmp_path / "engine")
    assert not (tmp_path / "engine").exists()
    (tmp_path / "config.json").write_text((DEMO / "config.json").read_text())
    assert "group_size: got 64, only beside quant_algo" in error("inspect", tmp_path, *groups)


def test_other_precisions_are_refused_by_name(tmp_path):
    done = run(
        "convert",
        "--model-dir",
        DEMO,
        "--output-dir",
        tmp_path,
        "--use-weight-only",
        "--weight-only-precision",
        "int4_gptq",
        check=False,
    )
    assert done.returncode == 1
    assert "--weight-only-precision: got 'int4_gptq'" in done.stderr


def test_a_precision_alone_quantises_nothing_and_says_so(tmp_path):
    done = run("build", "--checkpoint-dir", DEMO, "--output-dir", tmp_path / "engine", "--weight-only-precision", "int8")
    assert "--weight-only-precision has no effect without --use-weight-only" in done.stderr
    assert "quantization" not in run("inspect", tmp_path / "engine").stdout
