# SPDX-License-Identifier: Apache-2.0
"""`inflight chat` from outside: the history goes through the model's template, signals, errors."""

import json
import os
import pathlib
import pty
import select
import shutil
import subprocess
import time

import jinja2
import jinja2.sandbox
import pytest
import tokenizers
from command import needs_terminal

ROOT = pathlib.Path(__file__).resolve().parents[2]
INFLIGHT = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
DEMO = ROOT / "models/demo"


def chat(directory, text, *options):
    command = [INFLIGHT, "chat", directory, "--dtype", "float32", *options]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)


def continued(prompts, tmp_path, max_tokens):
    """What `inflight run` says after each prompt's ids, ended as chat ends it."""
    config = json.loads((DEMO / "tokenizer_config.json").read_text())
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(config["chat_template"])
    answers = []
    for messages in prompts:
        text = template.render(messages=messages, bos_token=config["bos_token"], add_generation_prompt=True)
        path = tmp_path / "requests.jsonl"
        path.write_text(json.dumps({"input_ids": encode(text), "max_tokens": max_tokens}) + "\n")
        done = subprocess.run(
            [INFLIGHT, "run", DEMO, "--dtype", "float32", "--input", path],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        answers.append(json.loads(done.stdout)["text_output"])
    return answers


def encode(text):
    return tokenizers.Tokenizer.from_file(str(DEMO / "tokenizer.json")).encode(text, add_special_tokens=False).ids


def test_answers_follow_the_whole_conversation_in_the_models_template(tmp_path):
    first, second = "What is 2 plus 3?", "Tell a story."
    done = chat(DEMO, f"{first}\n\n{second}\n", "--max-tokens", "24")
    assert done.returncode == 0, done.stderr
    [one] = continued([[{"role": "user", "content": first}]], tmp_path, 24)
    history = [{"role": "user", "content": first}, {"role": "assistant", "content": one}, {"role": "user", "content": second}]
    [two] = continued([history], tmp_path, 24)
    assert done.stdout == f"{one}\n{two}\n"


def test_clear_forgets_and_system_text_stays(tmp_path):
    question = "What is 2 plus 3?"
    done = chat(DEMO, f"Hello\n/clear\n{question}", "--max-tokens", "8", "--system", "Be kind.")
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": question}]
    [answer] = continued([messages], tmp_path, 8)
    assert done.stdout.endswith(f"\n{answer}\n")


def test_seed_repeats_an_answer():
    options = ("--max-tokens", "16", "--top-p", "0.95", "--temperature", "1.5", "--seed", "7")
    assert chat(DEMO, "Tell a story.\n", *options).stdout == chat(DEMO, "Tell a story.\n", *options).stdout


@pytest.mark.parametrize(
    ("flag", "value", "bounds"),
    [
        ("--repetition-penalty", "0", "a number above 0"),
        ("--temperature", "-0.5", "a number at least 0"),
        ("--top-p", "1.5", "a number 0 to 1"),
        ("--top-k", "-1", "an integer 0 to 2147483647"),
    ],
)
def test_flags_have_the_bounds_of_the_requests_fields(flag, value, bounds):
    done = chat(DEMO, "Hello\n", f"{flag}={value}")
    assert done.returncode != 0
    assert f"{flag}: got '{value}', needs {bounds}" in done.stderr


@pytest.fixture
def without_template(tmp_path):
    directory = tmp_path / "model"
    shutil.copytree(DEMO, directory)
    config = json.loads((directory / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


def test_model_without_template_names_the_remedies(without_template):
    done = chat(without_template, "Hi\n")
    assert done.returncode == 1
    assert "--chat-template" in done.stderr and "--no-template" in done.stderr


def test_no_template_continues_plain_text(without_template):
    done = chat(without_template, "Once upon a time\n", "--no-template", "--max-tokens", "12")
    assert done.returncode == 0, done.stderr
    run = subprocess.run(
        [INFLIGHT, "run", DEMO, "--dtype", "float32", "--prompt", "Once upon a time", "--max-tokens", "12"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == run.stdout


def test_template_file_is_used_and_what_it_raises_is_the_error(without_template, tmp_path):
    path = tmp_path / "raises.jinja"
    path.write_text("{{ raise_exception('no talking here') }}")
    done = chat(without_template, "Hi\n", "--chat-template", path)
    assert done.returncode == 1
    assert "no talking here" in done.stderr
    path.write_text("{% include 'x' %}")
    error = chat(without_template, "Hi\n", "--chat-template", path).stderr
    assert "line 1: the statement 'include' is not supported; supported are if, for," in error


def test_conversation_longer_than_the_model_is_an_error_that_says_so(tmp_path):
    done = chat(DEMO, "word " * 5000 + "\n")
    assert done.returncode == 1
    assert "the conversation has" in done.stderr and "/clear" in done.stderr


class Terminal:
    """chat at the other end of a terminal."""

    def __init__(self, *options):
        self.process_id, self.fd = pty.fork()
        if self.process_id == 0:
            os.execv(INFLIGHT, ["inflight", "chat", str(DEMO), "--dtype", "float32", *options])
        self.text = ""

    def wait_for(self, text, begin=0, timeout_s=60):
        deadline = time.monotonic() + timeout_s
        while text not in self.text[begin:]:
            assert time.monotonic() < deadline, self.text
            if select.select([self.fd], [], [], 1)[0]:
                self.text += os.read(self.fd, 4096).decode(errors="replace")
        return len(self.text)

    def wait_for_more(self, size):
        end = len(self.text) + size
        while len(self.text) < end:
            assert select.select([self.fd], [], [], 60)[0], self.text
            self.text += os.read(self.fd, 4096).decode(errors="replace")

    def send(self, data):
        os.write(self.fd, data)

    def status(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.process_id, 0)[1])


@needs_terminal
def test_interrupt_stops_the_answer_and_end_of_input_the_program():
    terminal = Terminal("--no-template", "--max-tokens", "900", "--threads", "1")
    at = terminal.wait_for("> ")
    terminal.send(b"Once upon a time\n")
    terminal.wait_for_more(len("Once upon a time\r\n") + 20)  # the echo, and the answer has begun
    terminal.send(b"\x03")
    at = terminal.wait_for("\r\n> ", begin=at)
    terminal.send(b"typed but not sent\x03")  # drops the line
    at = terminal.wait_for("\r\n> ", begin=at)
    terminal.send(b"\x04")
    assert terminal.status() == 0


@needs_terminal
def test_interrupt_right_behind_a_line_hangs_nothing():
    """A terminal forgets at Ctrl-C what was not read yet, in both directions, whatever the program does just then."""
    terminal = Terminal("--no-template", "--max-tokens", "3")
    at = terminal.wait_for("> ")
    for _ in range(20):
        terminal.send(b"Hi\n\x03")
        terminal.send(b"\n")  # a prompt that is not forgotten
        at = terminal.wait_for("> ", begin=at)
    terminal.send(b"\x04\x04")
    assert terminal.status() == 0
