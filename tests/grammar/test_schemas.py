# SPDX-License-Identifier: Apache-2.0
"""Schemas by jsonschema: what walks through masks write is valid; what is valid and usual is accepted."""

import json
import random

import jsonschema
import pytest
from grammar_driver import Refused

FORMATS = ["date", "date-time", "time", "duration", "uuid", "ipv4", "ipv6", "email", "hostname", "uri"]
CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER  # it knows most of them; test_suite.py has cases of all
PERSON = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
                                           "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3}},
          "required": ["name", "age"], "additionalProperties": False}
TREE = {"$defs": {"node": {"type": "object", "properties": {"value": {"type": "number"},
                                                            "left": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                           "required": ["value", "left"]}}, "$ref": "#/$defs/node"}
SHAPES = {"oneOf": [{"type": "object", "required": ["kind", "r"],
                     "properties": {"kind": {"const": "circle"}, "r": {"type": "number", "exclusiveMinimum": 0}}},
                    {"type": "object", "properties": {"kind": {"const": "square"}, "side": {"type": "integer"}},
                     "required": ["kind", "side"]}]}


def valid(schema):
    validator = jsonschema.Draft202012Validator(schema, format_checker=CHECKER)
    return lambda text: validator.is_valid(json.loads(text))


def without_duplicates(pairs):
    names = [name for name, _ in pairs]
    assert len(set(names)) == len(names), names
    return dict(pairs)


# Texts of each schema: the first list matches, the second does not.
CASES = {
    "person": (PERSON, ['{"name": "Ann", "age": 7}', '{"name":"é\\n","age":150,"tags":["a"]}',
                        '{\n  "name": "",\n  "age": 0,\n  "tags": []\n}'],
               ['{"age": 7, "name": "Ann"}', '{"name": "Ann", "age": 151}', '{"name": "Ann", "age": -1}', '{"name": "Ann"}',
                '{"name": "Ann", "age": 7, "x": 1}', '{"name": "A", "age": 7, "tags": ["a", "b", "c", "d"]}',
                '{"name": "Ann", "age": 07}', '{"name": "Ann", "age": 7', '{"name": "Ann",  "age": 7}']),
    "tree": (TREE, ['{"value": 1, "left": {"value": -2.5e3, "left": null}}'], ['{"value": 1, "left": {}}', '{"value": 1}']),
    "shapes": (SHAPES, ['{"kind": "circle", "r": 0.5}', '{"kind": "square", "side": 2}'],
               ['{"kind": "circle", "side": 2}', '{"kind": "circle", "r": 0}', '{"kind": "circle", "r": 0.0}']),
    "optional": ({"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}},
                 ["{}", '{"a": 1}', '{"b": 2}', '{"a": 1, "c": 3}', '{"a":1,"b":2,"c":3}'],
                 ['{"b": 2, "a": 1}', '{"a": 1, "a": 1}', '{, "a": 1}', '{"a": 1,}']),
    "others": ({"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "integer"}},
               ['{"a": null, "b": 1}', '{"b": 1, "ab": 2, "": 3}', '{"é": 1}'],
               ['{"b": 1, "a": null}', '{"a": null, "a": 1}', '{"a": 1}', '{"b": null}', '{"\\u0061": 1}']),
    "patterns": ({"type": "object", "patternProperties": {"^n_": {"type": "number"}, "^s_": {"type": "string"}},
                  "additionalProperties": False}, ['{"n_a": 1, "s_": "x"}', "{}"], ['{"n_a": "1"}', '{"a": 1}']),
    "names": ({"type": "object", "propertyNames": {"pattern": "^[a-z]{2}$"}},
              ['{"ab": 1, "cd": [2]}'], ['{"a": 1}', '{"abc": 1}']),
    "merged": ({"allOf": [{"properties": {"a": {"minimum": 3}}, "required": ["a"]},
                          {"properties": {"a": {"type": "integer", "maximum": 5}, "b": {"type": "boolean"}}}]},
               ['{"a": 3}', '{"a": 5, "b": true}'], ['{"a": 2}', '{"a": 6}', '{"a": 3.5}', '{"b": true}']),
    "tuple": ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}, {"type": "null"}], "items": False,
               "minItems": 1}, ['["a"]', '["a", 1]', '["a", 1, null]'], ["[]", "[1]", '["a", 1, null, 1]', '["a", null]']),
    "counts": ({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
               ["[true,false]", "[true, true, true]"], ["[true]", "[true, true, true, true]", "[]"]),
    "lengths": ({"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^[a-z😀\"]*$"},
                ['"ab"', '"😀b"', '"a\\"c"'], ['"a"', '"abcd"', '"AB"', '""']),
    "search": ({"type": "string", "pattern": "b+|^c"}, ['"abba"', '"c"', '"\\n b"'], ['"a"', '"ac"']),
    "types": ({"type": ["string", "null"]}, ['"a"', "null"], ["1", "{}"]),
    "enum": ({"enum": ["a", 1, 2.5, None, True, {"k": [1, "é"]}]},
             ['"a"', "1", "2.5", "null", "true", '{"k": [1, "é"]}'], ['"b"', "2", "false", '{"k": [1]}']),
    "enum of a type": ({"type": "string", "enum": ["ab", "c", 3], "minLength": 2}, ['"ab"'], ['"c"', "3"]),
    "decimals": ({"type": "number", "minimum": -1.25, "maximum": 10},
                 ["-1.25", "-1.2", "-1", "-0.5", "0", "9.99", "10", "10.0", "3"], ["-1.26", "-2", "10.01", "11", "100", "1e1"]),
    "small decimals": ({"type": "number", "exclusiveMinimum": 0.1, "exclusiveMaximum": 0.25},
                       ["0.11", "0.2", "0.2499", "0.101"], ["0.1", "0.10", "0.25", "0.3", "0", "1", "-0.2",
                                                           "0.10000000000000000001"]),
    "bounds that doubles keep": ({"type": "number", "exclusiveMinimum": 675}, ["675.5", "675.000000000001", "12345678901234567"],
                                 ["675", "675.00000000000000001"]),
    "large bounds that doubles keep": ({"type": "number", "exclusiveMinimum": 2**53, "exclusiveMaximum": 2**53 + 8},
                                       ["9007199254740994", "9007199254740998"],
                                       ["9007199254740992", "9007199254740993", "9007199254740999", "9007199254741000"]),
    "negative integers": ({"type": "integer", "maximum": -10, "exclusiveMinimum": -200},
                          ["-10", "-199", "-45"], ["-9", "-200", "-1000", "10", "0"]),
    "multiples": ({"type": "integer", "multipleOf": 7, "minimum": -20}, ["0", "7", "-14", "70", "343"],
                  ["1", "-21", "8", "77.7", "07"]),
    "any": (True, ["1", '"a"', "[]", '{"a": [null]}'], ["", "[", "nul"]),
}


@pytest.mark.parametrize("name", CASES)
def test_texts(driver, name):
    schema, matching, others = CASES[name]
    driver.schema(schema)
    for text in matching:
        assert valid(schema)(text), f"the test itself: {text}"
    assert driver.matches(matching) == [True] * len(matching), list(zip(matching, driver.matches(matching), strict=True))
    assert driver.matches(others) == [False] * len(others), list(zip(others, driver.matches(others), strict=True))


def random_schema(draw, depth):
    kinds = ["string", "integer", "number", "boolean", "enum", "format", "pattern"]
    if depth > 0:
        kinds += ["object"] * 3 + ["array"] * 2 + ["anyOf", "allOf", "tuple", "map"]
    kind = draw.choice(kinds)
    if kind == "string":
        low = draw.randrange(4)
        return draw.choice([{"type": "string"}, {"type": "string", "minLength": low, "maxLength": low + draw.randrange(6)}])
    if kind in ("integer", "number"):
        schema = {"type": kind}
        low = draw.randrange(-1200, 1200) / draw.choice([1, 1, 10, 100, 1000])
        if draw.random() < 0.5:
            schema[draw.choice(["minimum", "exclusiveMinimum"])] = low
        if draw.random() < 0.5:
            schema[draw.choice(["maximum", "exclusiveMaximum"])] = low + draw.randrange(2, 500)
        return schema
    if kind == "boolean":
        return draw.choice([{"type": "boolean"}, {"type": ["boolean", "null"]}])
    if kind == "enum":
        return {"enum": draw.sample(["a", "b\"c", 1, -2.5, None, True, [1, {"x": "y"}], "é/\\"], draw.randrange(1, 5))}
    if kind == "format":
        return {"type": "string", "format": draw.choice(FORMATS)}
    if kind == "pattern":
        return {"type": "string", "pattern": draw.choice(["^[a-z]+\\d{2,3}$", "x|y", "^(ab|cd)*$", "^\\S+@\\w+$", "é?\\.$"])}
    if kind == "object":
        names = draw.sample(["a", "b", "name", "größe", "x\"y", "long name"], draw.randrange(1, 5))
        schema = {"type": "object", "properties": {name: random_schema(draw, depth - 1) for name in names},
                  "required": draw.sample(names, draw.randrange(len(names) + 1))}
        others = draw.choice([None, False, {"type": "integer"}])
        return schema if others is None else {**schema, "additionalProperties": others}
    if kind == "array":
        low = draw.randrange(3)
        return {"type": "array", "items": random_schema(draw, depth - 1), "minItems": low, "maxItems": low + draw.randrange(3)}
    if kind == "tuple":
        return {"type": "array", "prefixItems": [random_schema(draw, depth - 1) for _ in range(draw.randrange(1, 4))],
                "items": draw.choice([False, {"type": "null"}])}
    if kind == "map":
        return {"type": "object", "patternProperties": {"^[a-c]+$": random_schema(draw, depth - 1)},
                "additionalProperties": False}
    if kind == "anyOf":
        return {"anyOf": [random_schema(draw, depth - 1) for _ in range(draw.randrange(1, 4))]}
    return {"allOf": [{"type": "object", "properties": {"a": random_schema(draw, depth - 1)}, "required": ["a"]},
                      {"type": "object", "properties": {"b": random_schema(draw, depth - 1)}}]}


@pytest.mark.parametrize("seed", range(120))
def test_what_is_written_is_valid(driver, seed):
    schema = random_schema(random.Random(seed), 3)
    driver.schema(schema)
    check = valid(schema)
    for text in driver.walks(seed, count=12, soft=20, hard=400):
        json.loads(text, object_pairs_hook=without_duplicates)
        assert check(text), (schema, text)


@pytest.mark.parametrize("name", [name for name in FORMATS if name in CHECKER.checkers])
def test_formats_that_are_written_are_valid(driver, name):
    schema = {"type": "string", "format": name}
    driver.schema(schema)
    texts = driver.walks(1, count=60, soft=10, hard=300)
    assert texts
    assert all(map(valid(schema), texts)), texts


@pytest.mark.parametrize(("schema", "words"), [
    ({"type": "object", "minProperties": 2}, "at #: minProperties: this keyword is not supported"),
    ({"properties": {"a/b": {"not": {}}}}, "at #/properties/a~1b: not: this keyword is not supported"),
    ({"type": "number", "multipleOf": 0.01}, "at #: multipleOf: integers from 1 to 1000 are supported"),
    ({"if": True}, "at #: if"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "schemas 0 and 1 may both be valid"),
    ({"$ref": "#/$defs/none"}, "leads to nothing"),
    ({"$ref": "https://example.com/s"}, "only pointers into the same schema"),
    ({"$ref": "#"}, "refers to itself"),
    ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "refers to itself"),
    ({"type": "integer", "minimum": 3, "maximum": 2}, "no text matches"),
    ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "no text matches"),
    (False, "no text matches"),
    ({"type": "string", "minLength": 3, "maxLength": 2}, "no text matches"),
    ({"type": "string", "pattern": "(?=a)"}, "at #: pattern: at byte 1: looking ahead"),
    ({"type": "string", "format": "color"}, "format: color is not supported"),
    ({"type": "strin"}, "type: must be"),
    ({"items": [{}]}, "write prefixItems"),
    ([], "must be an object, true or false"),
])
def test_refusals_name_what_is_wrong(driver, schema, words):
    with pytest.raises(Refused, match="INVALID_ARGUMENT") as refused:
        driver.schema(schema)
    assert words in str(refused.value)
