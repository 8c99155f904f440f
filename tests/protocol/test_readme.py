# SPDX-License-Identifier: Apache-2.0
"""The README's requests, word for word but for the ports."""

import json
import pathlib
import re
import subprocess
import sys

README = (pathlib.Path(__file__).resolve().parents[2] / "README.md").read_text()


def block(heading, language=""):
    """The first code block under a heading."""
    return re.search(rf"### {heading}\n.*?```{language}\n(.*?)```", README, re.DOTALL).group(1)


def at(server, text):
    return text.replace("localhost:8000", server.http).replace("localhost:8002", server.metrics)


def test_curl_lines(server):
    answers = []
    for line in at(server, block("curl")).splitlines():
        answers.append(subprocess.run(["bash", "-c", line], check=True, capture_output=True, text=True, timeout=60).stdout)
    whole, stream, metrics = answers
    text = json.loads(whole)["text_output"]
    assert len(text) > 20
    chunks = [json.loads(event.removeprefix("data: "))["text_output"] for event in stream.strip().split("\n\n")]
    assert len(chunks) > 5 and "".join(chunks) == text
    assert 'nv_inference_request_success{model="ensemble"' in metrics


def test_python_client(server):
    program = at(server, block("A client in Python", "python"))
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert re.fullmatch(r"\[\[?b['\"].{20,}['\"]\]?\]\n", done.stdout, re.DOTALL), done.stdout
