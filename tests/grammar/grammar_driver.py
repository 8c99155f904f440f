# SPDX-License-Identifier: Apache-2.0
"""Talks to the grammar_driver executable (driver.cc describes the protocol)."""

import json
import os
import pathlib
import subprocess

# Tokens as vocabularies of models have them, besides the bytes: parts of JSON, words, parts of characters' neighbours.
TOKENS = ['{"', '": ', '": "', '", "', '"}', '"]', '},', '}]', '}}', '[]', '{}', '[[', ', ', ': ', 'true', 'false', 'null',
          'name', 'value', ' the', 'foo', 'bar', 'foo"', '":', '":1', '12', '123', '1.5', '-1', '00', '.0', 'e1', '\\n',
          '\\u00', '\n  ', '\n    ', 'é', '😀', 'ab', 'abc', '2024', '-01', ' ']


class Refused(Exception):
    pass


class Driver:
    def __init__(self):
        binary = pathlib.Path(os.environ.get("INFLIGHT_BIN_DIR", "build/release/bin")) / "grammar_driver"
        self._process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _call(self, **request):
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"grammar_driver ended with {self._process.wait()} on {str(request)[:500]}"
        reply = json.loads(line)
        if "error" in reply:
            raise Refused(reply["error"])
        return reply

    def guide(self, kind, text, begins_after="", tokens=TOKENS):
        """Raises Refused with the message of the status."""
        self._call(op="guide", kind=kind, text=text, begins_after=begins_after, tokens=tokens)

    def calls(self, template, functions, must_call=True, max_calls=2, tokens=TOKENS, answer=None):
        """`functions` are (name, schema or None, names of parameters that are texts); `answer` is a schema of other texts."""
        told = [{"name": n, "schema": "" if s is None else json.dumps(s), "texts": list(texts)} for n, s, texts in functions]
        other = {} if answer is None else {"answer": json.dumps(answer)}
        other |= {"must_call": must_call, "max_calls": max_calls}
        self._call(op="calls", template=template, functions=told, tokens=tokens, **other)

    def read(self, texts):
        """Of each text (content, reasoning, [(name, arguments)])."""
        answers = self._call(op="read", texts=list(texts))["answers"]
        return [(a["content"], a["reasoning"], [tuple(call) for call in a["calls"]]) for a in answers]

    def schema(self, schema):
        self.guide("schema", json.dumps(schema))

    def matches(self, texts):
        return self._call(op="match", texts=list(texts))["matches"]

    def walks(self, seed, count=20, soft=30, hard=300, closing=()):
        """Finished texts, of `count` that were begun."""
        texts = self._call(op="walk", seed=seed, count=count, soft=soft, hard=hard, closing=list(closing))["texts"]
        return [text for text in texts if text is not None]

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=30)
