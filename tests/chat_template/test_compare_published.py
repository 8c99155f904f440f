# SPDX-License-Identifier: Apache-2.0
"""compare_published.py: which templates it finds, and what it says of a program that renders them otherwise."""

import json
import subprocess
import sys

import as_transformers
import pytest
from compare_published import main, published
from conversations import CONVERSATIONS

SAYS = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
REFUSES = "{{ raise_exception('nothing of ' ~ bos_token) }}"


@pytest.fixture
def folder(tmp_path):
    for name in ("one", "two/deep", "none"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "one/chat_template.jinja").write_text(SAYS)
    named = [{"name": "default", "template": SAYS}, {"name": "tool_use", "template": REFUSES}]
    config = {"bos_token": {"content": "<b>"}, "eos_token": None, "chat_template": named}
    (tmp_path / "two/deep/tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "two/deep/chat_template.json").write_text(json.dumps({"chat_template": SAYS}))
    (tmp_path / "none/tokenizer_config.json").write_text(json.dumps({"bos_token": "<b>"}))
    return tmp_path


def test_templates_have_the_tokens_of_their_model(folder):
    found, num_files = published([folder])
    tokens = [(template, json.loads(tokens)["bos_token"]) for template, tokens in found]
    assert (sorted(tokens), num_files) == (sorted([(SAYS, "<s>"), (SAYS, "<b>"), (REFUSES, "<b>")]), 3)
    assert [place.removeprefix(f"{folder}/") for place in found.values()] == [
        "one/chat_template.jinja", "two/deep/chat_template.json", "two/deep/tokenizer_config.json [tool_use]",
    ]  # fmt: skip


def test_what_is_equal_is_counted(folder, capsys):
    assert main([str(folder)]) == 0
    texts = 2 * len(CONVERSATIONS)
    assert capsys.readouterr().out == (
        f"3 files, 3 different templates, {3 * texts} texts: {2 * texts} equal, {texts} refused by both, 0 differ, of 0"
        " templates\n"
    )
    assert main([str(folder / "none")]) == 1
    assert "no *.jinja and no chat_template of" in capsys.readouterr().out


def test_what_differs_is_told(folder, capsys, tmp_path):
    """A program that leaves out each text's last line end, and refuses in words of its own."""
    program = tmp_path / "driver"
    program.write_text(
        f"#!{sys.executable}\nimport json, subprocess, sys\n"
        f"real = subprocess.Popen([{str(as_transformers.DRIVER)!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "for line in sys.stdin:\n"
        "    real.stdin.write(line.encode())\n"
        "    real.stdin.flush()\n"
        "    answer = json.loads(real.stdout.readline())\n"
        "    answer = {'error': 'no'} if 'error' in answer else {'text': answer['text'].removesuffix('\\n')}\n"
        "    print(json.dumps(answer), flush=True)\n"
    )
    program.chmod(0o755)
    assert main([str(folder / "one"), str(folder / "two"), "--driver", str(program)]) == 1
    *told, totals = capsys.readouterr().out.splitlines()
    first = f"{folder}/one/chat_template.jinja: one_turn, generation prompt: at character 14: "
    assert first + r"'<s>user: Hello', not '<s>user: Hello\n'" in told
    assert f"{folder}/two/deep/tokenizer_config.json [tool_use]: one_turn: raised 'no', not 'nothing of <b>'" in told
    texts = 2 * len(CONVERSATIONS)
    empty = 2 * sum(not conversation["messages"] for conversation in CONVERSATIONS.values())  # none has a line end
    assert len(told) == 3 * texts - 2 * empty and totals.endswith(f" {len(told)} differ, of 3 templates")


def test_it_is_a_program(folder):
    script = as_transformers.pathlib.Path(__file__).with_name("compare_published.py")
    done = subprocess.run([sys.executable, script, folder], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.endswith("of 0 templates\n")
