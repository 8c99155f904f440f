# SPDX-License-Identifier: Apache-2.0
"""`inflight chat` from outside: the history goes through the model's template, signals, errors."""

import json
import os
import pathlib
import pty
import select
import shutil
import signal
import subprocess
import termios
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

    def __init__(self, *options, term="dumb"):
        self.process_id, self.fd = pty.fork()
        if self.process_id == 0:
            os.environ["TERM"] = term
            os.execv(INFLIGHT, ["inflight", "chat", str(DEMO), "--dtype", "float32", *options])
        self.text = ""

    def wait_for(self, text, begin=0, timeout_s=60):
        deadline = time.monotonic() + timeout_s
        while text not in self.text[begin:]:
            assert time.monotonic() < deadline, self.text
            if select.select([self.fd], [], [], 1)[0]:
                self.text += os.read(self.fd, 4096).decode(errors="replace")
        return len(self.text)

    def wait_for_editor(self, begin=0):
        """Until it has the terminal: the prompt of a new line is there, and what is typed is its own."""
        end = self.wait_for("\n> ", begin)
        while termios.tcgetattr(self.fd)[3] & termios.ICANON:
            time.sleep(0.01)
        return end

    def wait_for_more(self, size):
        end = len(self.text) + size
        while len(self.text) < end:
            assert select.select([self.fd], [], [], 60)[0], self.text
            self.text += os.read(self.fd, 4096).decode(errors="replace")

    def send(self, data):
        os.write(self.fd, data)

    def status(self):
        """What it ended with; one that does not end is killed, which is a status too."""
        for _ in range(600):
            ended, status = os.waitpid(self.process_id, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.1)
        os.kill(self.process_id, signal.SIGKILL)
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


# --- commands, texts of several lines, files ---


def test_lines_between_quotes_are_one_text(tmp_path):
    quoted = chat(DEMO, '"""\nWhat is\n2 plus 3?\n"""\n"""/help me"""\n', "--max-tokens", "8")
    assert quoted.returncode == 0, quoted.stderr
    first = [{"role": "user", "content": "What is\n2 plus 3?"}]
    [one] = continued([first], tmp_path, 8)
    [two] = continued([[*first, {"role": "assistant", "content": one}, {"role": "user", "content": "/help me"}]], tmp_path, 8)
    assert quoted.stdout == f"{one}\n{two}\n"


def test_text_that_does_not_end_is_an_error():
    done = chat(DEMO, '"""What is\n', "--max-tokens", "8")
    assert done.returncode == 1 and 'inside a text that """ began' in done.stderr


def test_bye_ends_and_what_follows_is_not_read():
    done = chat(DEMO, "/bye\nHello\n")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("/cleer", "no command is called '/cleer'; did you mean '/clear'?"),
        ("/exit", "no command is called '/exit'; did you mean '/bye'? /help lists them"),
        ("/?", "did you mean '/help'?"),
        ("/dictionary", "no command is called '/dictionary'; /help lists them"),
        ("/set parameter temperature 1", "/set parameter: here it is /set NAME VALUE"),
        ("/set system You are kind.", "/set system: here it is /system TEXT"),
        ("/clear now", "/clear: takes nothing behind it, got 'now'"),
        ("/set temprature 1", "unknown option 'temprature'; did you mean 'temperature'?"),
        ("/set top_p 2", "--top-p: got '2', needs a number 0 to 1"),
        ("/save", "/save: a file is needed"),
        ("/load nowhere.json", "nowhere.json"),
    ],
)
def test_wrong_commands_are_errors(line, error):
    done = chat(DEMO, line + "\n")
    assert done.returncode == 1 and error in done.stderr


def test_help_and_show_say_what_there_is():
    done = chat(DEMO, "/help\n/set temperature 0.5\n/set seed 3\n/show\n/set temperature\n/set\n", "--system", "Be kind.")
    help_text, show, fresh = done.stdout.partition("model  ")[0], *done.stdout.split("model  ")[1:]
    for command in ("/help", "/bye", "/clear", "/system", "/set", "/save", "/load", "/show", '"""'):
        assert f"\n{command}" in f"\n{help_text}"
    assert "temperature         0.5" in show and "seed                3, of the next answer" in show
    assert "system              Be kind." in show and "do_sample false" in show
    assert "temperature         0: each token is the likeliest" in fresh  # the demo's own: do_sample false


def test_saved_conversation_goes_on_where_it_was(tmp_path):
    saved = tmp_path / "talk.json"
    first = chat(DEMO, f"/system Be kind.\nTell a story.\n/save {saved}\n", "--max-tokens", "12").stdout.rstrip("\n")
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Tell a story."}]
    messages.append({"role": "assistant", "content": first})
    assert json.loads(saved.read_text())["messages"] == messages
    done = chat(DEMO, f"/load {saved}\nAnd then?\n", "--max-tokens", "12")
    [answer] = continued([[*messages, {"role": "user", "content": "And then?"}]], tmp_path, 12)
    assert done.stdout == f"{answer}\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[]", "no JSON object with an array"),
        ('{"messages": [{"role": "user"}]}', "messages[0]: needs role and content"),
        ('{"messages": [{"role": "tool", "content": ""}]}', "role: got 'tool', must be system, user or assistant"),
        (
            '{"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]}',
            "messages[1]: a system message has to be the first",
        ),
    ],
)
def test_files_that_are_no_conversations_are_errors(text, error, tmp_path):
    path = tmp_path / "wrong.json"
    path.write_text(text)
    done = chat(DEMO, f"/load {path}\n")
    assert done.returncode == 1 and error in done.stderr


# --- how tokens are drawn ---


@pytest.fixture
def drawing_model(tmp_path):
    """The demo, whose generation_config.json asks to draw."""
    directory = tmp_path / "drawing"
    shutil.copytree(DEMO, directory)
    config = json.loads((directory / "generation_config.json").read_text())
    (directory / "generation_config.json").write_text(
        json.dumps({**config, "do_sample": True, "temperature": 1.4, "top_p": 0.97, "max_new_tokens": 10})
    )
    return directory


def test_a_model_that_draws_does_so_with_a_seed_by_chance_that_is_told(drawing_model):
    first = chat(drawing_model, "Tell a story.\n/show\n")
    seed = int(first.stdout.split("seed ")[1].split()[0]) - 1  # each answer adds one
    again = chat(drawing_model, "Tell a story.\n", "--seed", str(seed))
    assert first.stdout.startswith(again.stdout)
    other = chat(drawing_model, "Tell a story.\n/show\n").stdout
    assert "temperature         1.4" in other and "top_p               0.97" in other and "max_tokens          10" in other
    assert other.split("seed ")[1] != first.stdout.split("seed ")[1]


def test_temperature_alone_draws():
    options = ("--max-tokens", "16", "--seed", "7")
    drawn = chat(DEMO, "Tell a story.\n", *options, "--temperature", "2").stdout
    assert drawn == chat(DEMO, "Tell a story.\n", *options, "--temperature", "2", "--top-p", "1").stdout
    assert drawn != chat(DEMO, "Tell a story.\n", *options).stdout


# --- the line editor ---


@needs_terminal
def test_lines_are_edited_and_remembered(tmp_path):
    history = tmp_path / "state/history"
    options = ("--max-tokens", "3", "--threads", "1", "--history-file", str(history))
    terminal = Terminal(*options, term="xterm")
    at = terminal.wait_for_editor()
    terminal.send("/sistem Grüße\x01\x06\x06\x04y\r".encode())  # to the beginning, two forward, another letter
    at = terminal.wait_for_editor(begin=at)
    terminal.send(b"/show\r")
    terminal.wait_for("system              Grüße", begin=at)
    terminal.wait_for_editor(begin=at)
    terminal.send(b"\x04")
    assert terminal.status() == 0
    lines = history.read_text().splitlines()
    assert lines[-1] == "/show" and history.stat().st_mode & 0o777 == 0o600
    terminal = Terminal(*options, term="xterm")
    at = terminal.wait_for_editor()
    terminal.send(b"\x1b[A\r")  # the line before, of another process
    terminal.wait_for("conversation ", begin=at)
    terminal.wait_for_editor(begin=at)
    terminal.send(b"\x04")
    assert terminal.status() == 0


def test_interrupt_of_piped_input_ends_the_program_as_a_signal_does():
    command = [INFLIGHT, "chat", DEMO, "--dtype", "float32", "--threads", "1", "--no-template", "--max-tokens", "900"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    )
    process.stdin.write(b"Once upon a time\n")
    process.stdin.flush()
    assert process.stdout.read(10)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT


def test_closed_output_is_an_error():
    with open("/dev/full", "w") as full:
        done = subprocess.run([INFLIGHT, "chat", DEMO], input="Hi\n", stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1 and "standard output takes no more" in done.stderr
