# SPDX-License-Identifier: Apache-2.0
"""The program `inflight` as the scripts of this folder use it: its commands, and the tokenizer of a model directory."""

import json
import os
import pathlib
import shutil
import subprocess
import sys


def program():
    """bin/inflight of the folder that this file was laid out in, else the one in PATH."""
    beside = pathlib.Path(__file__).resolve().parents[1] / "bin/inflight"
    found = str(beside) if beside.exists() else shutil.which("inflight")
    if found is None:
        sys.exit(f"{sys.argv[0]}: the program inflight is neither at {beside} nor in PATH; `inflight compat install` lays it out")
    return found


def become(command, arguments):
    """Runs `inflight COMMAND ARGUMENTS` in place of this process: its output and exit status are the script's."""
    sys.stdout.flush()
    os.execv(program(), ["inflight", command, *arguments])


class Tokenizer:
    """Text to ids and back, by the tokenizer's files of a model directory or of org/name in the hub's cache."""

    def __init__(self, directory):
        self.directory = str(directory)

    def _lines(self, lines, *options):
        command = [program(), "tokenize", self.directory, "--json", *options]
        text = "".join(line + "\n" for line in lines)
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the tokenizer of {self.directory} cannot be used: {done.stderr.strip()}")
        return done.stdout.split("\n")[: len(lines)]

    def encode(self, texts, add_special_tokens=True):
        """A list of ids for each text."""
        options = ["--add-special-tokens", str(add_special_tokens).lower()]
        return [[int(word) for word in line.split()] for line in self._lines([json.dumps(t) for t in texts], *options)]

    def decode(self, ids, skip_special_tokens=True):
        """The text of one list of ids."""
        options = ["--decode", "--skip-special-tokens", str(skip_special_tokens).lower()]
        [line] = self._lines([" ".join(str(i) for i in ids)], *options)
        return json.loads(line)

    def end_id(self):
        """The id of the tokenizer's EOS token; without one, what the model's configuration says; None without both."""
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            token = self._read(name).get("eos_token")
            token = token.get("content") if isinstance(token, dict) else token
            if token:
                [ids] = self.encode([token], add_special_tokens=False)
                return ids[0]
        for name in ("generation_config.json", "config.json"):
            found = self._read(name).get("eos_token_id")
            if found is not None:
                return found[0] if isinstance(found, list) else found
        return None

    def _read(self, name):
        path = pathlib.Path(self.directory) / name
        return json.loads(path.read_text()) if path.exists() else {}
