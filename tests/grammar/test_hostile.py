# SPDX-License-Identifier: Apache-2.0
"""Guides of strangers: each is refused by a bound, or compiled within it."""

import json

import pytest
from grammar_driver import Refused

NEST = 20_000


def nested(open_, inner, close, count=NEST):
    return open_ * count + inner + close * count


GUIDES = {
    "exponential expression": ("regex", "(a|b)*a(a|b){60}"),
    "repetitions of repetitions": ("regex", "((((a{999}){999}){999}){999}){999}"),
    "a repetition without end": ("regex", "(.{0,100000}){0,100000}"),
    "nested groups": ("regex", nested("(", "a", ")")),
    "nested grammar": ("grammar", "root ::= " + nested("(", '"a"', ")")),
    "many rules": ("grammar", "\n".join(["root ::= r0", *(f"r{i} ::= r{i + 1}?" for i in range(9000)), 'r9000 ::= "x"'])),
    "many alternatives": ("regex", "|".join(str(i) for i in range(150_000))),
    "nested schema": ("schema", nested('{"items":', "{}", "}")),
    "nested constant": ("schema", '{"const":' + nested("[", "1", "]") + "}"),
    "powers of allOf": ("schema", json.dumps({"allOf": [{"anyOf": [{"minLength": i}, {"maxLength": i + j}]}
                                                        for i in range(4) for j in range(12)]})),
    "a long text of tables": ("regex", "[acegi]{250000}"),
    "a long string": ("schema", '{"type": "string", "minLength": 4000000}'),
    "a long array": ("schema", '{"type": "array", "items": {"type": "array", "minItems": 4000000}}'),
    "many properties": ("schema", json.dumps({"properties": {f"name{i}": {"type": "integer"} for i in range(20_000)}})),
    "many choices": ("choice", json.dumps([f"choice {i}" for i in range(60_000)])),
    "many tags": ("tagged", json.dumps({"tags": [{"begin": "<", "schema": {}, "end": ">"}] * 2000})),
    "many references to a long schema": ("schema", json.dumps({
        "$defs": {"x": {"properties": {"a": {"description": "x" * 400_000}}}},
        "properties": {str(i): {"$ref": "#/$defs/x"} for i in range(15_000)}})),
    "alternatives of many names": ("schema", json.dumps({
        "$defs": {"x": {"required": [f"name{i}" for i in range(20_000)]}},
        "oneOf": [{"type": "object", "$ref": "#/$defs/x", "properties": {"k": {"const": i}}, "required": ["k"]}
                  for i in range(256)]})),
    "a chain of references": ("schema", json.dumps({"$ref": "#/$defs/0", "$defs": {
        str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(3000)} | {"3000": {"type": "null"}}})),
}


@pytest.mark.parametrize("name", GUIDES)
def test_is_bounded(driver, name):
    try:
        driver.guide(*GUIDES[name])
    except Refused as refused:
        assert "RESOURCE_EXHAUSTED" in str(refused) or "INVALID_ARGUMENT" in str(refused)
        return
    driver.walks(1, count=1, soft=3, hard=12)


@pytest.mark.parametrize("name", ["exponential expression", "repetitions of repetitions", "a repetition without end",
                                  "a long text of tables", "a long string"])
def test_past_a_bound_is_refused_as_such(driver, name):
    with pytest.raises(Refused, match="RESOURCE_EXHAUSTED"):
        driver.guide(*GUIDES[name])


def test_a_text_of_many_ways_to_read_it_goes_on(driver):
    rules = ["root ::= x | y", 'x ::= "a" x "b" | "a" y "c" | "a"', 'y ::= "a" x "d" | "a" y "e" | "a"']
    driver.guide("grammar", "\n".join(rules), tokens=["aa", "aaa"])
    driver.walks(3, count=3, soft=40, hard=60)
