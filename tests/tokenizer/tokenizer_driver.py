# SPDX-License-Identifier: Apache-2.0
"""Talks to the tokenizer_driver executable (driver.cc describes the protocol)."""

import json
import os
import pathlib
import subprocess


class Driver:
    def __init__(self):
        binary = pathlib.Path(os.environ.get("INFLIGHT_BIN_DIR", "build/release/bin")) / "tokenizer_driver"
        self._process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def call(self, **request):
        """The reply as a dict; {"error": message} is returned, not raised."""
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"tokenizer_driver ended with {self._process.wait()} on {str(request)[:500]}"
        return json.loads(line)

    def load(self, path):
        return self.call(op="load", path=str(path))

    def encode(self, text, add_special_tokens=False):
        return self.call(op="encode", text=text, add_special_tokens=add_special_tokens)["ids"]

    def decode(self, ids, skip_special_tokens=False):
        return self.call(op="decode", ids=ids, skip_special_tokens=skip_special_tokens)["text"]

    def detokenize(self, chunks, skip_special_tokens=False):
        return self.call(op="detokenize", chunks=chunks, skip_special_tokens=skip_special_tokens)["pieces"]

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=30)
