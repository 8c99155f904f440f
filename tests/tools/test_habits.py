# SPDX-License-Identifier: Apache-2.0
"""What people type who come from another server, or slip: help, other programs' names, misspelt words."""

import os
import re

import pytest
from command import DEMO, ROOT, documented_flags, error, run

TABLE = (ROOT / "tools/inflight/names_elsewhere.cc").read_text()
ROWS = re.findall(r'^    \{"([^"]+)", k(?:Vllm|Llama|Ollama),', TABLE, re.MULTILINE)
OPTIONS = [name for name in ROWS if name.startswith("-")]
COMMANDS = [name for name in ROWS if name.islower() and not name.startswith("-")]
VARIABLES = [name for name in ROWS if name.isupper()]


def named_in(text):
    return set(re.findall(r"--[a-z][a-z0-9-]+", text))


def honoured():
    """Flags of serve that have an effect, and their aliases."""
    text = run("serve", "--help-all").stdout
    return named_in(text)


def test_help_of_serve_fits_a_screen_and_says_where_the_rest_is():
    text = run("serve", "--help").stdout
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    flags = re.findall(r"^  (--[a-z-]+) ", text, re.MULTILINE)
    assert len(flags) == 15
    assert {"--model", "--http-port", "--api-key-file", "--max-seq-len"} <= set(flags)
    assert f"--help-all lists all {len(documented_flags()['serve'])} options." in lines
    assert run("help", "serve").stdout == text


@pytest.mark.parametrize("command", ["serve", "run", "build"])
def test_all_options_are_listed_on_request_in_lines_of_a_hundred_columns(command):
    text = run(command, "--help-all").stdout
    assert max(map(len, text.splitlines())) <= 100
    assert set(re.findall(r"^  (--[a-z0-9-]+)\b", text, re.MULTILINE)) == documented_flags()[command]
    assert run("help", command, "--help-all").stdout == text


def test_help_of_a_command_of_two_words():
    assert "inflight bench load" in run("help", "bench", "load").stdout
    assert "serve models over HTTP" in run("help").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["srve"], "unknown command 'srve'; did you mean 'serve'?"),
        (["help", "insepct"], "unknown command 'insepct'; did you mean 'inspect'?"),
        (["x" * 100], f"unknown command '{'x' * 100}' ("),
        (["serve", DEMO, "--http-prot", "1"], "unknown option '--http-prot'; did you mean '--http-port'?"),
        (["serve", DEMO, "--hlep"], "unknown option '--hlep'; did you mean '--help'?"),
        (["serve", DEMO, "--" + "http-port" * 8], f"unknown option '--{'http-port' * 8}' ("),
        (["--verson"], "unknown option '--verson'; did you mean '--version'? (options of a command stand behind it;"),
        (["-x"], "unknown option '-x' (options of a command stand behind it;"),
    ],
)
def test_misspelt_words_are_answered_with_the_nearest(words, message):
    assert error(*words).startswith(f"inflight: {message}")


@pytest.mark.parametrize("flag", ["--version", "-v", "-V", "version"])
def test_the_version_is_told(flag):
    assert re.fullmatch(r"inflight \d+\.\d+\.\d+\S*\n", run(flag).stdout)


RUN_USAGE = "; usage: inflight run DIR --prompt TEXT | --input requests.jsonl [--output results.jsonl]"
NOWHERE = "no such directory, and no model of that name in {home}/.local/share/inflight/models; `inflight list` has what is here"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", DEMO, "Hello"], "unexpected argument 'Hello'; a text to continue stands behind --prompt" + RUN_USAGE),
        (["run", DEMO], "a text by --prompt or a file by --input is needed" + RUN_USAGE),
        (["run", DEMO, "--prompt", ""], "a text by --prompt or a file by --input is needed" + RUN_USAGE),
        (["run", DEMO, "--prompt", "a", "--input", "b"], "--prompt and --input both ask; give one" + RUN_USAGE),
        (["inspect", DEMO, "b"], "unexpected argument 'b'; usage: inflight inspect DIR [--json]"),
        (["inspect"], "one directory is needed; usage: inflight inspect DIR [--json]"),
        (["run", DEMO / "config.json", "--prompt", "a"], f"{DEMO}/config.json: is a file; a Hugging Face directory"),
        (["run", DEMO, "--prompt", "a", "--seed", "-1"], "--seed: got '-1', needs an integer 0 to 9000000000000000000\n"),
        (["run", DEMO, "--prompt"], "--prompt: a value is needed behind it (--help lists the options)\n"),
        (["bench", "--shape", "none"], "--shape: got 'none', needs one of llama-3.2-1b, "),
        (["run", "none", "--prompt", "a"], f"none: {NOWHERE}\n"),
        (["serve", "none"], f"none: {NOWHERE}\n"),
        (["serve", "none", "--exit-on-error=false"], f"none: {NOWHERE}\n"),
        (["serve", "/none/x"], "/none/x: no such directory\n"),
        (["compat", "install", "{home}/a", "--release", "9.9"], "--release: got '9.9', needs one of 0.5, 0.6, "),
        (["ps", "a", "--url", "b"], "the address stands there twice: 'a' and --url b; usage: inflight ps [URL]"),
        (["bench", "latency", DEMO], "--scenarios: got 1x2048/64, a sequence of this model has at most 1024 tokens"),
    ],
)
def test_usual_mistakes_are_told_with_what_helps(words, message, tmp_path):
    words = [str(word).format(home=tmp_path) for word in words]
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    said = error(*words, env=environment) + "\n"
    assert said.startswith(f"inflight: {message}".format(home=tmp_path)), said


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["ps", "localhost:1"], "localhost:1: "),
        (["ps", "--url", "http://localhost:1/"], "localhost:1: "),
        (["sleep", "localhost:1"], "localhost:1: "),
        (["top", "localhost:1"], "http://localhost:1/metrics: "),
    ],
)
def test_who_asks_where_no_server_is_hears_the_address_and_what_helps(words, place):
    said = error(*words)
    assert said.startswith(f"inflight: {place}") and said.endswith("; `inflight serve DIR` starts a server"), said


def test_ids_beyond_the_vocabulary_have_no_text():
    said = run("tokenize", DEMO, "--decode", input="1 2\n3 2048\n", check=False)
    assert said.returncode == 1 and said.stdout.count("\n") == 1
    assert said.stderr == "inflight: line 2: got id 2048, the vocabulary has ids 0 to 2047\n"
    assert "got id -1," in run("tokenize", DEMO, "--decode", input="-1\n", check=False).stderr


def test_options_of_other_servers_are_answered_with_ours():
    known = honoured()
    assert len(OPTIONS) > 80 and len(set(OPTIONS)) == len(OPTIONS)
    for name in OPTIONS:
        said = error("serve", DEMO, name, "1")
        assert re.match(rf"inflight: '{name}' is an option of (vLLM|llama-server); here: \S", said), said
        assert name not in known
        assert named_in(said.split("; here: ")[1]) <= known, said
    for text in ("--gpu-memory-utilization=0.9", "--gpu_memory_utilization"):
        assert "--kv-cache-free-memory-fraction" in error("serve", DEMO, text)


def test_commands_of_ollama_are_answered_with_ours():
    assert len(COMMANDS) > 3
    for name in COMMANDS:
        assert re.match(rf"inflight: '{name}' is a command of Ollama; here: \S", error(name)), name


def test_variables_of_other_servers_lead_to_options_that_exist():
    known = honoured()
    assert len(VARIABLES) > 8
    for row in re.findall(r'^    \{"[A-Z_]+", k\w+, (.*)\},', TABLE, re.MULTILINE):
        text = row if row.startswith('"') else re.search(rf"{row}\[\] =\s+((?:\"[^\"]*\"\s*)+);", TABLE).group(1)
        assert named_in(text) <= known, row


def test_a_length_that_the_model_does_not_have_is_refused():
    for flag in ("-c", "--max-model-len"):
        said = error("serve", DEMO, "--device", "cpu", flag, "1000000", "--http-port=0", "--grpc-port=0", "--metrics-port=0")
        assert "max_seq_len: got 1000000, the engine allows 1 to " in said
