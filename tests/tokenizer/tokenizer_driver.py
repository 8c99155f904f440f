# SPDX-License-Identifier: Apache-2.0
"""Talks to the tokenizer_driver executable (driver.cc describes the protocol)."""

import fcntl
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
        return self.call_all([request])[0]

    def call_all(self, requests):
        """The replies in order. As many requests as the pipe has room for go out before their replies are read."""
        room = fcntl.fcntl(self._process.stdin, fcntl.F_GETPIPE_SZ)
        lines = [json.dumps(request).encode() + b"\n" for request in requests]
        replies = []
        while len(replies) < len(lines):
            end = len(replies) + 1  # one alone may be longer: it is read whole before it is answered
            num_bytes = len(lines[end - 1])
            while end < len(lines) and num_bytes + len(lines[end]) <= room:
                num_bytes += len(lines[end])
                end += 1
            self._process.stdin.write(b"".join(lines[len(replies) : end]))
            self._process.stdin.flush()
            while len(replies) < end:
                line = self._process.stdout.readline()
                assert line, f"tokenizer_driver ended with {self._process.wait()} on {str(requests[len(replies)])[:500]}"
                replies.append(json.loads(line))
        return replies

    def load(self, path):
        return self.call(op="load", path=str(path))

    def encode(self, text, add_special_tokens=False):
        return self.call(op="encode", text=text, add_special_tokens=add_special_tokens)["ids"]

    def encode_all(self, texts, add_special_tokens=False):
        replies = self.call_all([{"op": "encode", "text": text, "add_special_tokens": add_special_tokens} for text in texts])
        return [reply["ids"] for reply in replies]

    def decode(self, ids, skip_special_tokens=False):
        return self.call(op="decode", ids=ids, skip_special_tokens=skip_special_tokens)["text"]

    def decode_all(self, lists, skip_special_tokens=False):
        replies = self.call_all([{"op": "decode", "ids": ids, "skip_special_tokens": skip_special_tokens} for ids in lists])
        return [reply["text"] for reply in replies]

    def detokenize(self, chunks, skip_special_tokens=False):
        return self.call(op="detokenize", chunks=chunks, skip_special_tokens=skip_special_tokens)["pieces"]

    def detokenize_all(self, answers, skip_special_tokens=False):
        """Of lists of chunks."""
        replies = self.call_all(
            [{"op": "detokenize", "chunks": chunks, "skip_special_tokens": skip_special_tokens} for chunks in answers]
        )
        return [reply["pieces"] for reply in replies]

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=30)
