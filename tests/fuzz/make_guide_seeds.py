#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the fuzzer guide: a guide of each kind, and those that ask for too much.

usage: tests/fuzz/make_guide_seeds.py
"""

import json
import pathlib

SEEDS = pathlib.Path(__file__).parent / "seeds/guide"
KINDS = ["json", "schema", "regex", "choice", "grammar", "tagged"]  # GuideSpec::Kind
OBJECT = {"type": "object", "properties": {"a": {"type": "integer", "minimum": -3, "maximum": 12}, "b": {"$ref": "#"}},
          "required": ["a"], "additionalProperties": {"type": ["string", "null"]}}
STRINGS = {"anyOf": [{"type": "string", "minLength": 1, "maxLength": 4, "pattern": "^[a-cé]+$"}, {"format": "date"},
                     {"enum": ["x", 1, None, {"y": [True]}]}]}
ARRAYS = {"prefixItems": [{"type": "number", "exclusiveMinimum": 0.25}], "items": {"const": "z"}, "minItems": 1, "maxItems": 3}
SUITE = {
    "json": ("json", ""),
    "object": ("schema", json.dumps(OBJECT)),
    "strings": ("schema", json.dumps(STRINGS)),
    "arrays": ("schema", json.dumps(ARRAYS)),
    "patterns": ("schema", '{"patternProperties": {"^a": {"type": "null"}}, "propertyNames": {"maxLength": 3}}'),
    "one_of": ("schema", '{"oneOf": [{"type": "string"}, {"allOf": [{"type": "number"}, {"maximum": 7}]}]}'),
    "regex": ("regex", r"^(?:a|[^\w\s]{2,3}?|\d+\.\u00e9)*$"),
    "exponential": ("regex", "(a|b)*a(a|b){30}"),
    "choice": ("choice", '["yes", "no", "not sure"]'),
    "gbnf": ("grammar", 'root ::= sum\nsum ::= sum "+" x | x # sums\nx ::= [0-9]{1,3} | "(" sum ")"'),
    "ambiguous": ("grammar", 'root ::= x | y\nx ::= "a" x "b" | "a"\ny ::= "a" y "c" | "a"'),
    "tagged": ("tagged", json.dumps({"tags": [{"begin": "<t>", "schema": OBJECT, "end": "</t>"}], "min": 0, "max": 2,
                                     "between": "\n", "before": "!", "after": "."})),
    "last_message": ("tagged", json.dumps({"tags": [{"begin": "!", "regex": "a{2,3}", "end": ""},
                                                   {"begin": "?", "choice": ["b"], "end": "?"},
                                                   {"begin": ":", "grammar": 'root ::= "x" root?', "end": ""}],
                                          "max": 1, "preambles": [{"begin": "<t>", "end": "</t>"}], "never": ["<"]})),
}


def main():
    SEEDS.mkdir(parents=True, exist_ok=True)
    for name, (kind, text) in SUITE.items():
        (SEEDS / name).write_bytes(bytes([KINDS.index(kind), 7]) + text.encode())
    (SEEDS / "after_tag").write_bytes(bytes([KINDS.index("choice") + 6 * 22, 9]) + b'["a", "b"]')


if __name__ == "__main__":
    main()
