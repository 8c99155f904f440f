# SPDX-License-Identifier: Apache-2.0
"""The exit status tells the truth: a full disk, a reader that left, closed ends, a failed line; and what is written is whole."""

import json
import os
import resource
import signal
import subprocess
import time

import pytest
from command import DEMO, INFLIGHT, ROOT, error, run

RUN = ("run", DEMO, "--device", "cpu", "--max-tokens", 4)
PRINTING = [
    ("--help",), ("options",), ("serve", "--help-all"), ("man", "serve"), ("completion", "bash"), ("--version",), ("key",),
    ("inspect", DEMO, "--device", "cpu"), (*RUN, "--prompt", "Once"),
    ("replay", ROOT / "tests/upgrade/0.1.0/journal", "--print"),
]  # fmt: skip
FULL = "inflight: standard output: not all could be written"


def exit_of(command, shell, **kwargs):
    """Of the command with what the shell does to its ends, and what it says."""
    line = " ".join(f"'{word}'" for word in (INFLIGHT, *command))
    done = subprocess.run(["bash", "-c", f"{line} {shell}"], capture_output=True, text=True, timeout=120, check=False, **kwargs)
    return done.returncode, done.stderr


@pytest.fixture
def requests_file(tmp_path):
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps({"text_input": f"Once {i}"}) + "\n" for i in range(40)))
    return path


@pytest.mark.parametrize("command", PRINTING, ids=lambda command: command[0].strip("-"))
def test_what_a_full_disk_does_not_take_is_a_failure(command):
    status, said = exit_of(command, "> /dev/full")
    assert status == 1 and FULL in said


@pytest.mark.parametrize("command", PRINTING, ids=lambda command: command[0].strip("-"))
def test_a_closed_standard_output_is_a_failure(command):
    status, said = exit_of(command, ">&-")
    assert status == 1 and FULL in said


@pytest.mark.parametrize("command", [("options",), PRINTING[-1]], ids=lambda command: command[0])
def test_a_reader_that_leaves_is_a_failure_without_a_word(command):
    status, said = exit_of(command, "| (exec <&-; sleep 0.3); exit ${PIPESTATUS[0]}")
    assert (status, said) == (1, "")


def test_results_that_a_full_disk_does_not_take_are_a_failure(requests_file):
    for place in ("--output /dev/full", "> /dev/full"):
        status, said = exit_of((*RUN, "--input", requests_file), place)
        assert status == 1 and "not all could be written" in said


def test_input_that_cannot_be_read_is_a_failure(tmp_path):
    for command in (RUN, ("tokenize", DEMO)):
        status, said = exit_of((*command, "--input", "-"), "<&-")
        assert status == 1 and "--input: '-' cannot be read" in said
        status, said = exit_of((*command, "--input", tmp_path), "")
        assert status == 1 and "cannot be read" in said


def test_a_failed_line_is_a_failure_after_the_others_are_answered(tmp_path, requests_file):
    requests_file.write_text('{"text_input": "Once"}\n{"text_input": 1}\n{"text_input": "Once"}\n')
    done = run(*RUN, "--input", requests_file, check=False)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1 and [sorted(result) for result in results][1] == ["error"] and "text_output" in results[2]
    assert "inflight: 1 of 3 requests failed; the lines of the output say why" in done.stderr
    requests_file.write_text('{"text_input": "Once"}\n')
    assert run(*RUN, "--input", requests_file).returncode == 0


def test_a_model_is_not_written_over_unless_that_is_asked_for(tmp_path):
    out, engine = tmp_path / "new/folders/ckpt", tmp_path / "engine"
    convert = ("convert", "--model-dir", DEMO, "--output-dir", out)
    text = run(*convert).stdout
    assert f"inflight serve {out}" in text and f"inflight build --checkpoint-dir {out} --output-dir ENGINE" in text
    assert os.listdir(tmp_path / "new/folders") == ["ckpt"]
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    assert error(*convert) == f"inflight: {out}: has a model already; --force replaces it, or choose another directory"
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before
    (out / "mine.txt").write_text("kept")
    run(*convert, "--force", "--tp-size", 2)
    assert {"mine.txt", "config.json", "rank0.safetensors", "rank1.safetensors"} <= set(os.listdir(out))
    run(*convert, "--force")
    assert "mine.txt" in os.listdir(out) and "rank1.safetensors" not in os.listdir(out)

    engine.mkdir()
    (engine / "model.py").write_text("kept")
    assert f"next: inflight serve {engine}" in run("build", "--checkpoint-dir", out, "--output-dir", engine).stdout
    assert {"model.py", "config.json", "rank0.engine"} <= set(os.listdir(engine))
    assert "has a model already" in error("build", "--checkpoint-dir", out, "--output-dir", engine)
    assert run(*RUN[:1], engine, *RUN[2:], "--prompt", "Once").stdout.strip()
    assert os.stat(out).st_mode & 0o777 == 0o777 & ~current_umask()


def test_the_output_directory_may_be_relative(tmp_path):
    run("convert", "--model-dir", DEMO, "--output-dir", "ckpt", "--tp-size", 2, cwd=tmp_path)
    run("build", "--checkpoint-dir", "ckpt", "--output-dir", "engines/one/", cwd=tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["ckpt", "engines"] and os.listdir(tmp_path / "engines") == ["one"]


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def limited():
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))


@pytest.mark.parametrize("command", ["convert", "build"])
def test_a_write_that_fails_leaves_nothing(tmp_path, command):
    source = "--model-dir" if command == "convert" else "--checkpoint-dir"
    done = run(command, source, DEMO, "--output-dir", tmp_path / "a/b", check=False, preexec_fn=limited)
    assert done.returncode == 1 and "File too large" in done.stderr
    assert os.listdir(tmp_path) == []


def interrupted(tmp_path, disposition, *numbers):
    """Exit status of a run that gets signals. The model's configuration is a pipe that nobody writes to, so that the run waits
    until they come."""
    model, out = tmp_path / "model", tmp_path / "out"
    model.mkdir()
    os.mkfifo(model / "config.json")
    process = subprocess.Popen(["env", disposition, INFLIGHT, "convert", "--model-dir", model, "--output-dir", out / "ckpt"])
    deadline = time.monotonic() + 60
    while not (begun := list(out.glob(".ckpt.*"))):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    (begun[0] / "rank0.safetensors").write_text("a part")
    for number in numbers:
        process.send_signal(number)
    return process.wait(60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_interrupted_leaves_nothing(tmp_path, number):
    # Programs that are started in the background ignore SIGINT.
    assert interrupted(tmp_path, "--default-signal=INT", number) == -number
    assert os.listdir(tmp_path) == ["model"]


def test_a_signal_that_the_caller_ignores_ends_nothing(tmp_path):
    assert interrupted(tmp_path, "--ignore-signal=HUP", signal.SIGHUP, signal.SIGTERM) == -signal.SIGTERM
