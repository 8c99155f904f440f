# SPDX-License-Identifier: Apache-2.0
"""The commands of documents, as they stand there: each line of a block of `sh` succeeds and prints something that it should.
Words in capitals and org/name are those of a place made for the test; a server of a page listens on free ports."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest
from command import DEMO, INFLIGHT, ROOT
from hub_stand_in import Hub, without_hub
from live_server import START_TIMEOUT_S, ports_in

FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
# What a line prints, by its beginning; the first that fits.
EXPECTED = [
    ("inflight pull", "files, "),
    ("inflight list", "LlamaForCausalLM"),
    ("inflight rm", "removed org/name"),
    ("inflight ps", "READY"),
    ("inflight inspect", "KV cache"),
    ("inflight doctor", "CPU"),
    ("inflight chat", ""),
    ("inflight run", ""),
    ("curl localhost:8000/v1/chat/completions", '"choices"'),
    ("curl localhost:8000/v1/completions", '"token_logprobs"'),
    ("curl localhost:8000/v2/models/ensemble/generate", '"text_output"'),
]


def blocks(page):
    """The lines of each block of `sh`."""
    text = (ROOT / "docs" / page).read_text()
    return [block.split("\n```")[0].splitlines() for block in text.split("```sh\n")[1:]]


class Place:
    """A home with the demo model in it, on a hub, and the server of a page."""

    def __init__(self, folder):
        self.folder = folder
        self.hub = Hub("org/name", {name: (DEMO / name).read_bytes() for name in FILES}, large=["model.safetensors"])
        home = folder / "home"
        (home / ".local/share/inflight/models").mkdir(parents=True)
        shutil.copytree(DEMO, folder / "model")
        template = json.loads((DEMO / "tokenizer_config.json").read_text())["chat_template"]
        (folder / "template.jinja").write_text(template)
        self.environment = dict(
            without_hub(), HOME=str(home), HF_ENDPOINT=self.hub.endpoint, PATH=f"{INFLIGHT.parent}:{os.environ['PATH']}"
        )
        self.server = None
        self.words = {
            "DIR": folder / "model", "CKPT": folder / "checkpoint", "MODELS": home / ".local/share/inflight/models",
            "TEMPLATE": folder / "template.jinja",
        }  # fmt: skip

    def close(self):
        self.hub.close()
        if self.server is not None:
            self.server.send_signal(signal.SIGTERM)
            assert self.server.wait(60) == 0

    def spelt(self, line):
        """The line with the words of this place."""
        words = [str(self.words.get(word, word)) for word in line.split(" ")]
        for i, word in enumerate(words):
            first, slash, rest = word.partition("/")
            if slash and first in self.words:
                words[i] = f"{self.words[first]}/{rest}"
        return " ".join(words)

    def run(self, line):
        if line.startswith("inflight serve "):
            return self.serve(self.spelt(line))
        done = subprocess.run(
            ["bash", "-ec", self.spelt(line)], env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def serve(self, line):
        ports = self.folder / "ports.json"
        options = "--http-port 0 --grpc-port 0 --metrics-port 0 --max-kv-tokens 4096 --device cpu"
        command = [*line.split(), *options.split(), "--port-file", ports]
        with open(self.folder / "log", "wb") as log:
            self.server = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        deadline = time.monotonic() + START_TIMEOUT_S
        while (used := ports_in(ports)) is None:
            assert self.server.poll() is None and time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.02)
        self.words["localhost:8000"] = f"127.0.0.1:{used['http']}"
        self.words["http://localhost:8000"] = f"http://{self.words['localhost:8000']}"
        for path in ("v1", "v2"):
            self.words[f"localhost:8000/{path}"] = f"{self.words['localhost:8000']}/{path}"
        return ""


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    made.close()


PAGES = ["first-model.md", "my-model.md", "log-probs.md", "troubleshooting.md"]


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_do_what_it_says(page, place):
    lines = [line for block in blocks(page) for line in block]
    assert len(lines) > 2
    for line in lines:
        printed = place.run(line)
        expected = [text for begin, text in EXPECTED if line.startswith(begin)]
        if expected and "||" not in line:
            assert expected[0] in printed, f"{line}\n{printed}"


def test_each_page_that_says_it_is_tested_is():
    saying = {path.name for path in (ROOT / "docs").glob("*.md") if pathlib.Path(__file__).name in path.read_text()}
    assert saying == set(PAGES)
