# SPDX-License-Identifier: Apache-2.0
"""Guides of other kinds: tags, what stands before a guide, any JSON."""

import json

import jsonschema
import pytest
from grammar_driver import Refused

CALL = {"begin": '<tool_call>\n{"name": "f", "arguments": ', "end": "}\n</tool_call>",
        "schema": {"type": "object", "properties": {"x": {"$ref": "#/$defs/n"}}, "required": ["x"],
                   "$defs": {"n": {"type": "integer"}}}}
OTHER = {"begin": "<g>", "end": "</g>", "schema": {"enum": ["<", "</g>"]}}


def tagged(**members):
    return json.dumps({"tags": [CALL, OTHER], **members})


def test_sections_are_of_the_tags(driver):
    driver.guide("tagged", tagged(min=1, max=2, between="\n", before="!", after="."))
    call = '<tool_call>\n{"name": "f", "arguments": {"x": 12}}\n</tool_call>'
    assert driver.matches([f"!{call}.", f"!{call}\n<g>\"</g>\"</g>.", '!<g>"<"</g>.']) == [True] * 3
    assert driver.matches([call, f"!{call}", "!.", f"!{call}{call}.", f"!{call}\n{call}\n{call}.",
                           '!<g>"x"</g>.', call.replace("12", '"a"')]) == [False] * 7


def test_sections_may_be_left_out(driver):
    driver.guide("tagged", tagged(min=0))
    assert driver.matches(["", '<g>"<"</g>', '<g>"<"</g><g>"<"</g>', "<g>"]) == [True, True, True, False]


@pytest.mark.parametrize(("guide", "fits", "other"), [
    ({"regex": "a{2}b?"}, ["aa", "aab"], ["a", "aac"]),
    ({"choice": ["<b>", "</g>x"]}, ["<b>", "</g>x"], ["b", ""]),
    ({"grammar": 'root ::= "(" root? ")"'}, ["()", "((()))"], ["(()", ")"]),
    ({"schema": {"type": "array", "items": {"const": 1}}}, ["[]", "[1, 1]"], ["[2]", "1"]),
])  # fmt: skip
def test_a_section_is_of_any_kind(driver, guide, fits, other):
    driver.guide("tagged", json.dumps({"tags": [{"begin": "<g>", "end": "</g>", **guide}], "max": 2}))
    assert driver.matches([f"<g>{one}</g>" for one in fits + other]) == [True] * len(fits) + [False] * len(other)
    assert driver.matches([f"<g>{fits[0]}</g><g>{fits[1]}</g>"]) == [True]
    driver.guide("tagged", json.dumps({
        "tags": [{"begin": "!", "end": "", **guide}], "max": 1,
        "preambles": [{"begin": "<think>", "end": "</think>"}], "never": ["<think>", "</think>"],
    }))  # fmt: skip
    assert driver.matches([f"!{fits[0]}", f"<think>{other[0]}</think>!{fits[1]}", f"<think></think>!{fits[0]}x", fits[0]]) == [
        True, True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), [
    ('{"tags": [{"begin": "a", "end": "b", "regex": "a", "choice": ["a"]}]}', "one of schema, regex, choice and grammar"),
    ('{"tags": [{"begin": "a", "end": "b", "regex": "(a"}]}', "tagged: tags/0: regex: "),
    ('{"tags": [{"begin": "a", "end": "b", "grammar": "root ::= x"}]}', "tagged: tags/0: grammar: line 1"),
    ("[]", "must be a JSON object"), ("{}", "tags: must be an array"), ('{"tags": []}', "must have one at least"),
    (tagged(min=2, max=1), "min: is above max"), (tagged(mx=1), "mx: is not supported"),
    (tagged(min=-1), "min: must be an integer"),
    ('{"tags": [{"begin": "a", "schema": {}}]}', "begin and end"),
    (tagged(trigger=""), "trigger: must have 1 to 1024 bytes"), (tagged(once=True), "once: must be true or false, beside"),
    (tagged(arguments="xml"), "arguments: got xml, must be json, python"), (tagged(never=[1]), "never: must be strings"),
    (tagged(preambles=[{"begin": "a"}]), "preambles: each must have begin and end"),
    (tagged(answer={"begin": "", "end": "."}), "answer: must have one of schema, regex"),
    (tagged(answer={"begin": "", "end": "", "schema": {"not": {}}}), "tagged: answer: schema: at #: not"),
    (tagged(instead="(a"), "tagged: instead: "), (tagged(instead=1), "instead: must be a string"),
    ('{"tags": [{"begin": "a", "end": "b", "schema": {"not": {}}}]}', "tagged: tags/0: schema: at #: not"),
])
def test_refusals_name_the_member(driver, text, words):
    with pytest.raises(Refused, match="INVALID_ARGUMENT") as refused:
        driver.guide("tagged", text)
    assert words in str(refused.value)


def test_text_before_the_guide_is_free(driver):
    driver.guide("choice", '["yes", "no"]', begins_after="</think>")
    assert driver.matches(["</think>yes", "<think> no\n</thin</think>no", "é</think></think>"]) == [True, True, False]
    assert all("</think>" in text for text in driver.walks(5, count=20, soft=5, hard=50))


def test_json_is_any_object(driver):
    driver.guide("json", "")
    texts = driver.walks(2, count=60, soft=25, hard=600)
    assert texts
    for text in texts:
        jsonschema.validate(json.loads(text), {"type": "object"})
