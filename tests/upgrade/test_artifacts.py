# SPDX-License-Identifier: Apache-2.0
"""What earlier versions left on disk is read by this one: the answers that transformers gave (expected.json), the
fields that were written; and what a later version would leave is refused with the remedy.

docs/releasing.md, "What is on disk", has the promises. Each folder VERSION was written by that version
(make_artifacts.py).
"""

import ctypes
import json
import pathlib
import re
import shutil
import struct
import sys

import pytest
import requests

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "protocol"))
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
from command import error, run
from live_server import start_server
from make_artifacts import ENGINES, KEYS, NOT_BESIDE_EVERY_ENGINE, OURS, SERVE, fill_template, options_of, write_repository

HERE = pathlib.Path(__file__).resolve().parent
EXPECTED = json.loads((HERE / "expected.json").read_text())


def in_order(versions):
    return sorted(versions, key=lambda version: [int(part) for part in version.split(".")])


VERSIONS = in_order(path.name for path in HERE.iterdir() if re.fullmatch(r"\d+\.\d+\.\d+", path.name))
CPU = ("--device", "cpu")
REMEDY = "rebuild it with `inflight build --checkpoint-dir CHECKPOINT --output-dir ENGINE`"


@pytest.fixture(params=VERSIONS)
def version(request):
    return HERE / request.param


@pytest.fixture
def engine(version, tmp_path):
    """A copy of an engine of the version, with a tokenizer, by its name."""

    def get(name):
        copy = shutil.copytree(version / "engines" / name, tmp_path / name)
        for file in NOT_BESIDE_EVERY_ENGINE:
            shutil.copy(version / "engines/float32" / file, copy)
        return copy

    return get


def answers(model, work, *options):
    """[ids, text] that a model makes of the texts of expected.json, which it gets as ids and as texts."""
    file = work / "requests.jsonl"
    lines = [{"input_ids": case["ids"], "max_tokens": 32} for case in EXPECTED["texts"]]
    lines += [{"text_input": case["prompt"], "max_tokens": 32} for case in EXPECTED["texts"]]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = [json.loads(line) for line in run("run", model, "--input", file, *CPU, *options).stdout.splitlines()]
    return [[answer["output_ids"], answer["text_output"]] for answer in done]


def expected_answers():
    """What transformers says, without the end id, which an answer leaves out."""
    answer = [[case["greedy"][:-1], case["text"]] for case in EXPECTED["texts"]]
    return answer + answer


def test_the_version_that_is_released_next_has_its_artifacts():
    """docs/releasing.md, "How one is made": the version is raised, and its folder written with it."""
    header = (HERE.parents[1] / "include/inflight/version.h").read_text()
    (version,) = re.findall(r'kVersion\[\] = "([\d.]+)"', header)
    assert VERSIONS and VERSIONS[-1] == version, "tests/upgrade/make_artifacts.py writes them"
    assert in_order(["0.10.0", "0.2.0"]) == ["0.2.0", "0.10.0"]


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_answers_as_transformers_does(engine, name, tmp_path):
    assert answers(engine(name), tmp_path) == expected_answers()


def test_an_engine_tokenizes_as_transformers_does(version):
    for case in EXPECTED["texts"]:
        done = run("tokenize", version / "engines/float32", "--input", "-", input=case["prompt"] + "\n")
        assert [int(word) for word in done.stdout.split()] == case["ids"]


def test_a_checkpoint_answers_and_makes_an_engine(version, tmp_path):
    assert answers(version / "checkpoint", tmp_path) == expected_answers()
    run("build", "--checkpoint-dir", version / "checkpoint", "--output-dir", tmp_path / "engine")
    assert answers(tmp_path / "engine", tmp_path) == expected_answers()


def test_an_engine_of_a_later_format_is_refused_with_the_remedy(engine):
    folder = engine("float32")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "format": 1000, "version": "77.1.0"}))
    message = error("run", folder, "--prompt", "x", *CPU)
    assert f"{folder / 'config.json'}: format: got 1000" in message
    assert "run the release that built the engine, 77.1.0, or a later one" in message
    assert REMEDY in message


def test_a_file_of_weights_of_a_later_format_is_refused_with_the_remedy(engine):
    folder = engine("float32")
    content = bytearray((folder / "rank0.engine").read_bytes())
    struct.pack_into("<I", content, 16, 1000)  # docs/reference/artifacts.md, "rankN.engine"
    (folder / "rank0.engine").write_bytes(content)
    message = error("run", folder, "--prompt", "x", *CPU)
    assert "rank0.engine: engine format version 1000" in message
    assert f"{REMEDY}, or run the later release that built it" in message


# ---- The flight recorder ----


def printed(journal):
    return [json.loads(line) for line in run("replay", journal, "--print").stdout.splitlines()]


def test_a_journal_has_the_requests_that_were_sent(version):
    header, *turns = printed(version / "journal")
    assert (header["version"], header["has_prompts"], header["part"]) == (version.name, True, 0)
    assert (header["block_size"], header["deterministic"], header["dtype"]) == (16, True, "float32")
    arrived = [request for turn in turns for request in turn.get("arrivals", ())]
    assert [request["prompt"] for request in arrived] == [case["ids"] for case in EXPECTED["texts"]]
    assert [(request["seed"], request["max_tokens"]) for request in arrived] == [(1, 32), (2, 32), (3, 32)]
    ends = [end for turn in turns for end in turn.get("ends", ())]
    tokens = [len(case["greedy"]) - 1 for case in EXPECTED["texts"]]  # without the end id
    assert [(end["reason"], end["tokens"]) for end in ends] == [("end_id", number) for number in tokens]


def test_a_journal_is_repeated(version):
    """Plans and numbers of tokens are those that were; the hash of an end covers bits that another processor rounds
    apart."""
    done = run("replay", version / "journal", "--model", version / "engines/float32", check=False)
    if done.returncode == 0:
        assert done.stdout.splitlines()[-1] == "equal"
        return
    same_but_bits = r"the replay differs: step \d+, request \d+, sequence 0: the end was (\w+ after \d+ tokens) with hash \w+, "
    assert re.search(same_but_bits + r"and is \1 with hash \w+$", done.stderr.strip()), done.stderr


def test_a_journal_of_a_later_format_is_refused_with_the_remedy(version, tmp_path):
    content = (version / "journal").read_bytes()
    (size,) = struct.unpack_from("<I", content, 8)
    record = content[16 : 16 + size].replace(b'"inflight_journal":1', b'"inflight_journal":7')
    xxh3 = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
    xxh3.restype, xxh3.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]
    check = xxh3(record, size) & 0xFFFFFFFF
    (tmp_path / "journal").write_bytes(content[:8] + struct.pack("<II", size, check) + record + content[16 + size :])
    message = error("replay", tmp_path / "journal", "--print")
    assert "a journal of format 7: this version reads format 1; replay it with the program that recorded it" in message


# ---- What people write, or keep ----


def test_a_saved_conversation_goes_on(version):
    first, second = EXPECTED["conversations"]
    saved = json.loads((version / "chat.json").read_text())["messages"]
    assert saved == [*first["messages"], {"role": "assistant", "content": first["text"]}]
    talk = f"/load {version / 'chat.json'}\n{second['messages'][-1]['content']}\n"
    done = run("chat", version / "engines/float32", "--temperature", 0, *CPU, input=talk)
    assert done.stdout.strip().endswith(second["text"].strip())


def test_flags_and_file_keys_are_still_there(version):
    """With their types; a default may change by the rules of docs/releasing.md, and then stands in CHANGED."""
    now = options_of(run("options").stdout)
    for command, flags in json.loads((version / "options.json").read_text()).items():
        for flag, (key, kind, details) in flags.items():
            if (command, flag) in REMOVED:
                assert flag not in now[command], "it has an effect, and stands in REMOVED"
                continue
            assert flag in now[command], f"inflight {command} {flag} is gone: docs/releasing.md, 'How a thing is removed'"
            assert now[command][flag][:2] == [key, kind], f"inflight {command} {flag}"
            assert default_of(now[command][flag][2]) == CHANGED.get((command, flag), default_of(details)), (command, flag)


# (command, flag) of those that were deprecated and are gone; the new default of those that were announced as changed.
REMOVED: set[tuple[str, str]] = set()
CHANGED: dict[tuple[str, str], str | None] = {
    ("bench load", "--concurrency"): None,  # still 1, of prompts without --request-rate, as its text says
}


def default_of(details):
    found = re.match(r"default ([^;]*)", details)
    return found.group(1) if found else None


@pytest.fixture
def server(version, tmp_path):
    """By the version's option file, with its keys."""
    (tmp_path / "keys.txt").write_text((version / "keys.txt").read_text())
    (tmp_path / "keys.txt").chmod(0o600)
    options = ("--config", version / "serve.json", "--api-key-file", tmp_path / "keys.txt")
    server = start_server(tmp_path, version / "engines/float32", *options, max_kv_tokens=None)
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


def test_an_option_file_and_keys_are_read(server, version):
    written = json.loads((version / "serve.json").read_text())
    assert written.keys() >= SERVE.keys() or version.name != VERSIONS[-1]
    url = f"http://{server.http}"
    headers = {"Authorization": "Bearer " + (version / "key").read_text().strip()}
    assert requests.get(f"{url}/v2", timeout=10).status_code == 401
    assert requests.get(f"{url}/v2", headers=headers, timeout=10).json()["name"] == written["id"]
    generate = f"{url}/v2/models/ensemble/generate"
    for case in EXPECTED["texts"]:
        body = {"text_input": case["prompt"], "max_tokens": 32}
        assert requests.post(generate, headers=headers, json=body, timeout=60).json()["text_output"] == case["text"]
    case = EXPECTED["conversations"][1]
    body = {"model": "float32", "messages": case["messages"], "max_tokens": 32, "temperature": 0}
    answer = requests.post(f"{url}/v1/chat/completions", headers=headers, json=body, timeout=60).json()
    assert answer["choices"][0]["message"]["content"] == case["text"]
    too_long = {"text_input": "monday " * written["max_seq_len"], "max_tokens": 1}
    refused = requests.post(generate, headers=headers, json=too_long, timeout=10)
    assert refused.status_code == 400 and f"maximum input length ({written['max_seq_len'] - 1})" in refused.text


def test_a_repository_with_every_key_is_read(version, tmp_path):
    repository = shutil.copytree(version / "repository", tmp_path / "repository")
    engine = version / "engines/float32"
    for path in repository.glob("*/config.pbtxt"):
        (path.parent / "1").mkdir()
        path.write_text(fill_template(path.read_text(), engine_dir=engine, tokenizer_dir=engine))
    report = run("inspect", repository, *CPU).stdout
    lines = {row[0]: row[1:] for row in re.findall(r"^  (\w+) +(\S+) +(\w+) +(\w+)", report, re.MULTILINE)}
    for key, value, effect in KEYS_READ:
        assert (lines[key][0].lower(), *lines[key][1:]) == (value, "file", effect), key
    assert all(effect != "refused" for _, _, effect in lines.values())
    server = start_server(tmp_path, None, "--model-repository", repository, max_kv_tokens=None)
    for model in ("ensemble", "tensorrt_llm_bls"):
        for case in EXPECTED["texts"]:
            body = {"text_input": case["prompt"], "max_tokens": 32, "stream": True}
            url = f"http://{server.http}/v2/models/{model}/generate_stream"
            events = [line[6:] for line in requests.post(url, json=body, timeout=60).text.splitlines() if line]
            assert "".join(json.loads(event)["text_output"] for event in events) == case["text"], model
    assert server.stop() == 0


# What docs/reference/repositories.md, "Keys of tensorrt_llm", says of the keys that the repository has filled in.
KEYS_READ = [
    ("gpt_model_type", "inflight_fused_batching", "honoured"),
    ("max_beam_width", "2", "honoured"),
    ("max_tokens_in_paged_kv_cache", "2048", "honoured"),
    ("max_attention_window_size", "128", "honoured"),
    ("sink_token_length", "0", "honoured"),
    ("batch_scheduler_policy", "max_utilization", "honoured"),
    ("kv_cache_free_gpu_mem_fraction", "0.5", "honoured"),
    ("kv_cache_host_memory_bytes", "0", "honoured"),
    ("exclude_input_in_output", "true", "honoured"),
    ("enable_kv_cache_reuse", "true", "honoured"),
    ("normalize_log_probs", "true", "honoured"),
    ("enable_chunked_context", "true", "honoured"),
    ("stats_check_period_ms", "50", "honoured"),
    ("iter_stats_max_iterations", "100", "honoured"),
    ("request_stats_max_iterations", "10", "honoured"),
    ("decoding_mode", "top_k_top_p", "honoured"),
    ("lora_cache_max_adapter_size", "8", "honoured"),
    ("lora_cache_host_memory_bytes", "1048576", "honoured"),
    ("cancellation_check_period_ms", "100", "ignored"),
    ("lora_cache_optimal_adapter_size", "8", "ignored"),
    ("gpu_device_ids", "0", "ignored"),
    ("add_special_tokens", "true", "honoured"),
    ("skip_special_tokens", "true", "honoured"),
    ("accumulate_tokens", "false", "honoured"),
    ("tensorrt_llm_model_name", "tensorrt_llm", "honoured"),
]


def test_the_newest_artifacts_have_what_the_script_writes(tmp_path):
    """So that a key which is added to the script comes with a version that writes it."""
    names = {path.name for path in (HERE / VERSIONS[-1]).iterdir()}
    files = {"journal", "chat.json", "options.json", "serve.json", "keys.txt", "key"}
    assert names == files | {"engines", "checkpoint", "repository"}
    assert {path.name for path in (HERE / VERSIONS[-1] / "engines").iterdir()} == set(ENGINES)
    made = write_repository(tmp_path / "repository", OURS, **KEYS)
    assert {path.parent.name for path in made.rglob("config.pbtxt")} == {
        path.parent.name for path in (HERE / VERSIONS[-1] / "repository").rglob("config.pbtxt")
    }
