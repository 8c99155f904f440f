# SPDX-License-Identifier: Apache-2.0
"""The `inflight` binary from outside: help, option errors, documents, convert, build, inspect, run, tokenize."""

import contextlib
import csv
import json
import os
import pty
import re
import subprocess

import pytest
from command import DEMO, INFLIGHT, ROOT, needs_terminal, run


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """The demo model converted to a float32 checkpoint and built."""
    work = tmp_path_factory.mktemp("engine")
    run("convert", "--model-dir", DEMO, "--output-dir", work / "ckpt", "--dtype", "float32")
    run("build", "--checkpoint-dir", work / "ckpt", "--output-dir", work / "engine", "--max-seq-len", 256)
    return work


def generate(directory, requests, tmp_path, *options):
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(request if isinstance(request, str) else json.dumps(request) + "\n" for request in requests))
    done = run("run", directory, "--input", path, "--output", tmp_path / "results.jsonl", *options, check=False)
    results = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    failed = sum("error" in result for result in results)
    assert done.returncode == (1 if failed else 0), done.stderr
    assert not failed or f"{failed} of {len(results)} requests failed" in done.stderr
    return results


def test_configuration_page_is_what_the_schemas_say():
    assert (ROOT / "docs/configuration.md").read_text() == run("options").stdout


def test_parameters_page_is_what_the_table_says():
    assert (ROOT / "docs/reference/parameters.md").read_text() == run("parameters").stdout


@pytest.mark.parametrize("command", ["serve", "run", "chat", "tokenize", "convert", "build", "inspect", "bench", "bench load"])
def test_help_lists_options_of_each_command(command):
    text = run(*command.split(), "--help").stdout
    assert f"inflight {command}" in text
    assert "--" in text


def test_every_command_that_opens_models_takes_the_models_own_dtype_by_name():
    dtypes = re.findall(r"^\| `--dtype` \| `dtype` \| text \| ([^|]*) \|", run("options").stdout, re.MULTILINE)
    assert len(dtypes) >= 6
    for values in dtypes:
        assert values.startswith("default auto; auto, float32, bfloat16, float16")
    of_auto, of_none = (
        run("inspect", DEMO, "--device", "cpu", *options).stdout.split("Memory plan")[0] for options in (["--dtype", "auto"], [])
    )  # the plan is of the memory that is free just then
    assert of_auto == of_none
    assert "LlamaForCausalLM" in of_auto


@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_directory_may_stand_anywhere_between_options(place):
    words = ["--max-tokens", "4", "--prompt", "Once upon"]
    words.insert(place, DEMO)
    assert run("run", *words).stdout == run("run", DEMO, "--max-tokens", "4", "--prompt", "Once upon").stdout


def test_unknown_option_suggests_the_nearest_one():
    done = run("build", "--checkpont-dir", "x", check=False)
    assert done.returncode == 1
    assert "did you mean '--checkpoint-dir'?" in done.stderr


def test_option_out_of_range_names_option_value_and_bound():
    done = run("serve", DEMO, "--http-port", "70000", check=False)
    assert done.returncode == 1
    assert "--http-port: got '70000', needs an integer 0 to 65535" in done.stderr


def test_switch_takes_no_word():
    done = run("serve", "--disable-auto-complete-config=maybe", check=False)
    assert done.returncode == 1
    assert done.stderr == "inflight: option '--disable-auto-complete-config' doesn't allow an argument\n"


def test_refused_option_says_why():
    done = run("serve", DEMO, "--host-policy", "p,numa-node=0", check=False)
    assert done.returncode == 1
    assert "--host-policy: got 'p,numa-node=0'; instances are not bound to cores" in done.stderr


def test_models_to_load_need_the_mode_that_loads_them():
    done = run("serve", DEMO, "--load-model", "m", check=False)
    assert done.returncode == 1
    assert "Use of '--load-model' requires setting '--model-control-mode=explicit' as well." in done.stderr


def test_same_answers_from_all_three_kinds_of_directory(engine, tmp_path):
    requests = [{"text_input": "Once upon a time", "max_tokens": 24, "return_log_probs": True}]
    hugging_face = generate(DEMO, requests, tmp_path, "--dtype", "float32")
    checkpoint = generate(engine / "ckpt", requests, tmp_path)
    built = generate(engine / "engine", requests, tmp_path)
    assert hugging_face == checkpoint == built
    assert len(built[0]["output_ids"]) == len(built[0]["output_log_probs"])
    assert built[0]["text_output"].strip()


def test_answers_keep_the_order_and_a_bad_line_does_not_stop_the_others(engine, tmp_path):
    results = generate(
        engine / "engine",
        [
            {"text_input": "Once upon a time", "max_tokens": 30},
            "not json\n",
            {"text_input": "Hello", "max_tokens": 1},
            {"text_input": "Hello", "max_tokens": -1},
            {"text_input": "Hello", "max_token": 1},
            {"text_input": "Hello", "max_tokens": 1, "lora_task_id": 7},
            {"text_input": "Hello", "max_tokens": 1, "temperature": -1.0, "top_k": 5},
            {"input_ids": [1, 2, 99999999], "max_tokens": 1},
            {"input_ids": [5, 6, 7], "max_tokens": 3, "end_id": -1},
            {"text_input": "Hello", "max_tokens": 1, "pad_id": 0, "stream": False},
            {"text_input": "Hello", "max_tokens": 1, "stream": True},
        ],
        tmp_path,
    )
    assert len(results) == 11
    assert results[0]["text_output"]
    assert "JSON" in results[1]["error"]
    assert len(results[2]["output_ids"]) == 1
    assert "max_tokens" in results[3]["error"]
    assert "did you mean 'max_tokens'" in results[4]["error"]
    assert "lora_task_id" in results[5]["error"]
    assert "temperature" in results[6]["error"]
    assert "99999999" in results[7]["error"]
    assert len(results[8]["output_ids"]) == 3 and results[8]["finish_reason"] == "length"
    assert len(results[9]["output_ids"]) == 1
    assert results[10]["error"].startswith("stream: got true")


def test_any_of_several_end_ids_ends_the_text(engine, tmp_path):
    [free] = generate(engine / "engine", [{"text_input": "Once upon a time", "max_tokens": 12, "end_id": -1}], tmp_path)
    ids = free["output_ids"]
    assert free["finish_reason"] == "length" and len(ids) == 12
    unused = next(i for i in range(300, 2000) if i not in ids)
    for end_id in (ids[4], [unused, ids[4]]):
        [ended] = generate(engine / "engine", [{"text_input": "Once upon a time", "max_tokens": 12, "end_id": end_id}], tmp_path)
        assert ended["finish_reason"] == "end_id"
        assert ended["output_ids"] == ids[: ids.index(ids[4])]


@needs_terminal
def test_progress_is_a_bar_on_a_terminal_that_moves_with_the_answers(engine, tmp_path):
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps({"text_input": "Hello", "max_tokens": 1 + 8 * i}) + "\n" for i in range(20)))
    terminal, end = pty.openpty()
    command = [INFLIGHT, "run", engine / "engine", "--input", path, "--output", tmp_path / "results.jsonl"]
    process = subprocess.Popen([*command, "--max-batch-size", "2"], stderr=end)
    os.close(end)
    shown = b""
    with contextlib.suppress(OSError):  # the other end was closed
        while chunk := os.read(terminal, 4096):
            shown += chunk
    os.close(terminal)
    assert process.wait(60) == 0
    percents = [int(p) for p in re.findall(rb"\rrun \[#* *\] +(\d+)% requests", shown)]
    assert percents == sorted(set(percents)) and percents[-1] == 100 and len(percents) > 5


def test_log_probs_under_greedy_are_true_and_sum_up(engine, tmp_path):
    [result] = generate(
        engine / "engine", [{"text_input": "Once upon a time", "max_tokens": 8, "end_id": -1, "return_log_probs": True}], tmp_path
    )
    assert all(p < 0 for p in result["output_log_probs"])
    assert result["cum_log_probs"] == pytest.approx(sum(result["output_log_probs"]), abs=1e-4)


def test_same_seed_gives_the_same_tokens_alone_and_in_a_crowd(engine, tmp_path):
    requests = [
        {"text_input": "Once upon a time", "max_tokens": 20, "top_p": 0.95, "temperature": 1.2, "random_seed": seed}
        for seed in range(24)
    ]
    together = generate(engine / "engine", requests, tmp_path)
    for seed in (0, 7, 23):
        assert generate(engine / "engine", [requests[seed]], tmp_path) == [together[seed]]
    assert len({tuple(result["output_ids"]) for result in together}) > 12


def test_stop_words_end_the_text_and_stay_in_it(engine, tmp_path):
    [free] = generate(engine / "engine", [{"text_input": "Once upon a time", "max_tokens": 16}], tmp_path)
    ids = free["output_ids"]
    texts = run("tokenize", engine / "engine", "--decode", input="".join(f"{i}\n" for i in ids)).stdout.split("\n")
    again = run("tokenize", engine / "engine", "--add-special-tokens=false", input="\n".join(texts)).stdout.split("\n")
    # A word in the middle whose text is one token again.
    at = next(i for i in range(3, 16) if again[i] == str(ids[i]) and ids.index(ids[i]) == i)
    request = {"text_input": "Once upon a time", "max_tokens": 16, "stop_words": texts[at]}
    [stopped] = generate(engine / "engine", [request], tmp_path)
    assert stopped["finish_reason"] == "stop_words"
    assert stopped["output_ids"] == ids[: at + 1]


def test_bans_lengths_and_n_grams_of_a_line(engine, tmp_path):
    ask = {"text_input": "Once upon a time", "max_tokens": 16, "end_id": -1}
    [free] = generate(engine / "engine", [ask], tmp_path)
    ids = free["output_ids"]
    words = run("tokenize", engine / "engine", "--decode", input=f"{ids[0]}\n").stdout.split("\n")[0]
    assert run("tokenize", engine / "engine", "--add-special-tokens=false", input=words).stdout.split() == [str(ids[0])]
    banned, ended, longer, unrepeated, refused = generate(
        engine / "engine",
        [ask | {"bad_words": [words]}, ask | {"end_id": ids[2]}, ask | {"end_id": ids[2], "min_length": 9},
         ask | {"no_repeat_ngram_size": 1}, ask | {"embedding_bias_words": ["a"]}],
        tmp_path,
    )  # fmt: skip
    assert ids[0] not in banned["output_ids"]
    assert len(ended["output_ids"]) <= 2 and len(longer["output_ids"]) >= 9
    assert len(set(unrepeated["output_ids"])) == len(unrepeated["output_ids"])
    assert refused["error"].startswith("embedding_bias_words: is not offered by run")


def test_tokenize_and_decode_are_inverse(tmp_path):
    lines = "Once upon a time\n\tTabs and  blanks \nü 漢字 😀\n"
    ids = run("tokenize", DEMO, input=lines).stdout
    assert all(token.isdigit() for token in ids.split())
    assert run("tokenize", DEMO, "--decode", input=ids).stdout == lines


def test_inspect_shows_model_and_memory_plan(engine):
    text = run("inspect", engine / "engine").stdout
    assert "LlamaForCausalLM, float32" in text
    assert "KV cache" in text and "sequences at full length (256 tokens)" in text


def test_inspect_says_which_layers_have_a_window():
    text = run("inspect", ROOT / "tests/golden/data/qwen2_head64").stdout
    assert "Qwen2ForCausalLM, float32" in text
    assert "window        40 tokens, of 1 of 2 layers" in text


def damaged_engine(engine, tmp_path, damage):
    """A copy of the engine whose packed file went through `damage`; returns the error of running it."""
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in (engine / "engine").iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    packed = broken / "rank0.engine"
    packed.write_bytes(damage(packed.read_bytes()))
    done = run("run", broken, "--prompt", "x", check=False)
    assert done.returncode == 1
    assert "rank0.engine" in done.stderr
    return done.stderr


def test_truncated_engine_is_refused_with_the_remedy(engine, tmp_path):
    error = damaged_engine(engine, tmp_path, lambda data: data[:-4096])
    assert "truncated" in error and "inflight build" in error


def test_engine_of_another_version_is_refused_with_the_remedy(engine, tmp_path):
    error = damaged_engine(engine, tmp_path, lambda data: data[:16] + (99).to_bytes(4, "little") + data[20:])
    assert "version 99" in error and "inflight build" in error


def test_checkpoint_with_a_missing_tensor_names_it(engine, tmp_path):
    broken = tmp_path / "ckpt"
    broken.mkdir()
    for path in (engine / "ckpt").iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    data = (broken / "rank0.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    # Rename in place, so that offsets stay true.
    text = json.dumps(header, separators=(",", ":")).replace("transformer.ln_f.weight", "transformer.ln_x.weight").encode()
    (broken / "rank0.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    done = run("run", broken, "--prompt", "x", check=False)
    assert done.returncode == 1
    assert "transformer.ln_f.weight" in done.stderr


def test_corrupt_tokenizer_is_refused_naming_the_file(engine, tmp_path):
    broken = tmp_path / "engine"
    broken.mkdir()
    for path in (engine / "engine").iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    (broken / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": ')
    done = run("run", broken, "--prompt", "x", check=False)
    assert done.returncode == 1
    assert "tokenizer.json" in done.stderr


def test_bench_mixes_measures_each_mix_beside_its_counterpart(tmp_path):
    shown = run(
        "bench", "mixes", DEMO, "--device", "cpu", "--batch", "3", "--input-len", "4", "--output-len", "64", "--repeats", "2"
    )
    comments, rows = shown.stdout.split("\n")[:2], list(csv.DictReader(shown.stdout.split("\n")[2:]))
    assert all(line.startswith("# ") for line in comments)
    assert [row["mix"] for row in rows] == ["one row uses everything", "all rows return log-probs", "4 beams for 4 sampled rows"]
    assert [row["rows"] for row in rows] == ["3", "3", "4"]
    for row in rows:
        assert float(row["step_ms"]) > 0 and float(row["step_ms_without"]) > 0
        assert float(row["ratio_p10"]) <= float(row["ratio"]) <= float(row["ratio_p90"])
        if abs(float(row["ratio"]) - float(row["asked"])) > 0.001:  # else rounding decides
            assert row["verdict"] == ("reached" if float(row["ratio"]) < float(row["asked"]) else "missed")
