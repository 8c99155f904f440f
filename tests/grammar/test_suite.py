# SPDX-License-Identifier: Apache-2.0
"""The tests of JSON-Schema-Test-Suite (data/suite.json, take_suite.py) of keywords that guides support.

What the suite calls invalid is never accepted. What it calls valid is, but for what docs/reference/structured-output.md
says is never written: `is_left_out` is those sentences as code. Schemas that are refused are passed over, but not a whole file.
"""

import contextlib
import itertools
import json
import pathlib
import re

import pytest
from grammar_driver import Refused

SUITE = json.loads((pathlib.Path(__file__).parent / "data/suite.json").read_text())
GROUPS = [(file, group) for file, groups in SUITE.items() for group in groups]

REFUSALS = ["not supported", "are supported", "may both be valid", "no text matches"]
KEYWORD_TYPES = {dict: ["properties", "required", "additionalProperties", "patternProperties", "propertyNames"],
                 list: ["items", "prefixItems", "minItems", "maxItems"],
                 str: ["minLength", "maxLength", "pattern", "format"],
                 float: ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]}


def subschemas(schema):
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from subschemas(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from subschemas(value)


def keywords(schema):
    return {key for sub in subschemas(schema) for key in sub}


def is_left_out(file, schema, instance):
    """Whether a valid instance is of the kinds that are never written."""
    if file.startswith("optional/format/"):
        return True  # each format is written in its usual forms
    found = keywords(schema)
    # Types are those that keywords are about where no schema says one, there or at some place within.
    if isinstance(schema, dict) and "type" not in schema:
        about = types_of_keywords(schema)
        if about and type_of(instance) not in about:
            return True
    if "type" not in found or file in ("items", "prefixItems"):
        about = types_of_keywords(found)
        if about and not all(type_of(part) in about for part in parts(instance)):
            return True
    # Integers without a point, numbers with bounds without an exponent.
    for part in parts(instance):
        if isinstance(part, float) and (part == int(part) or "e" in json.dumps(part)):
            return True
    if not isinstance(instance, dict):
        return False
    # Names that two patterns match are not written.
    patterns = schema.get("patternProperties", {}) if isinstance(schema, dict) else {}
    if any(sum(re.search(pattern, name) is not None for pattern in patterns) > 1 for name in instance):
        return True
    # A schema with properties and without additionalProperties is closed.
    return "properties" in found and "additionalProperties" not in found


def types_of_keywords(found):
    return {t for t, names in KEYWORD_TYPES.items() if set(found) & set(names)}


def type_of(value):
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)


def parts(value):
    yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
        yield from parts(part)


def orders(instance):
    """Texts of the instance with the members of the outer objects in any order, as far as they are few."""
    if isinstance(instance, dict) and 1 < len(instance) <= 4:
        for members in itertools.permutations(instance.items()):
            yield json.dumps(dict(members), ensure_ascii=False)
    else:
        yield json.dumps(instance, ensure_ascii=False)


@pytest.mark.parametrize(("file", "group"), GROUPS, ids=[f"{file}: {group['description']}" for file, group in GROUPS])
def test_group(driver, file, group):
    try:
        driver.schema(group["schema"])
    except Refused as refused:
        assert any(words in str(refused) for words in REFUSALS), refused
        return
    for test in group["tests"]:
        matches = any(driver.matches(orders(test["data"])))
        if not test["valid"]:
            assert not matches, test
        elif not is_left_out(file, group["schema"], test["data"]):
            assert matches, test


@pytest.mark.parametrize("file", [name for name in SUITE if name != "oneOf"])  # of which most may be valid for two
def test_no_keyword_is_refused_altogether(driver, file):
    num_accepted = 0
    for group in SUITE[file]:
        with contextlib.suppress(Refused):
            driver.schema(group["schema"])
            num_accepted += 1
    assert num_accepted > 0
