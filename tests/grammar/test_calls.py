# SPDX-License-Identifier: Apache-2.0
"""Calls of tools in each model's format: what walks through masks write, the reader of answers finds again, and its
arguments are valid by jsonschema."""

import json
import random

import jsonschema
import pytest
from grammar_driver import TOKENS, Refused
from test_schemas import CHECKER, random_schema

JSON_ENDS = ['"', "}", "]", ",", ":", *"0123456789"]
MARKED = ["}", "]", ",", ":", *"0123456789"]


# Texts of templates that show a format, and tokens that lead to its end, the first that fit first.
FORMATS = {
    "mistral": ("[TOOL_CALLS]", JSON_ENDS),
    "mistral's newer": ("[TOOL_CALLS] [ARGS]", JSON_ENDS),
    "deepseek": ("<｜tool▁calls▁begin｜> ```json", JSON_ENDS),
    "deepseek's newer": ("<｜tool▁calls▁begin｜>", JSON_ENDS),
    "harmony": ("<|channel|>analysis<|message|> functions.", ["<|channel|>commentary to=functions.", *JSON_ENDS]),
    "gemma": ("<|tool_call>call:", ['<|"|>', *MARKED]),
    "function gemma": ("<start_function_call>", ["<escape>", *MARKED]),
    "qwen_coder": ("<function= <parameter=", ["\n</parameter>\n", "</function>\n</tool_call>", *JSON_ENDS]),
    "seed": ("<seed:tool_call> <function=", ["\n</parameter>\n", "</function>\n</seed:tool_call>", *JSON_ENDS]),
    "hermes": ("<tool_call> arguments", JSON_ENDS),
    "list": ("<|tool_call|>", JSON_ENDS),
    "functools": ("functools[", JSON_ENDS),
    "pythonic": ("[func_name1(params_name1=", ['"', ")", "}", "]", "=", ",", ":", *"0123456789"]),
    "llama": ('"name": "parameters": ', JSON_ENDS),
}
# Texts where calls begin, for models that may call or not.
TRIGGERS = {
    "mistral": "[TOOL_CALLS]",
    "mistral's newer": "[TOOL_CALLS]",
    "deepseek": "<｜tool▁call▁begin｜>",
    "deepseek's newer": "<｜tool▁call▁begin｜>",
    "harmony": "<|channel|>commentary to=functions.",
    "gemma": "<|tool_call>",
    "function gemma": "<start_function_call>",
    "qwen_coder": "<function=",
    "seed": "<function=",
    "hermes": "<tool_call>",
    "list": "<|tool_call|>",
    "functools": "functools[",
}
NAMES = ["a", "b", "name", "größe", "n-1", "x.y"]


def is_of_texts(schema):
    """A parameter whose value is text where a format has no quotes."""
    kinds = [schema.get("type")] if isinstance(schema.get("type"), str) else schema.get("type", [])
    return "string" in kinds or any(one.get("type") == "string" for one in schema.get("anyOf", []))


def parameters(draw, names=NAMES):
    chosen = draw.sample(names, draw.randrange(1, 4))
    schema = {
        "type": "object",
        "properties": {name: random_schema(draw, 2) for name in chosen},
        "required": draw.sample(chosen, draw.randrange(len(chosen) + 1)),
    }
    others = draw.choice([None, False, {"type": "integer"}])
    return schema if others is None else {**schema, "additionalProperties": others}


def function(name, schema):
    return name, schema, [p for p, s in schema.get("properties", {}).items() if is_of_texts(s)]


def check(schema, arguments):
    jsonschema.Draft202012Validator(schema, format_checker=CHECKER).validate(json.loads(arguments))


def walk(driver, name, seed, schemas, must_call=True, max_calls=2, answer=None, **options):
    template, closing = FORMATS[name]
    functions = [function(*one) if one[1] is not None else (*one, []) for one in schemas.items()]
    tokens = [*TOKENS, *(c for c in closing if len(c) > 1), "<|end|><|start|>assistant", TRIGGERS.get(name, "?!")]
    driver.calls(template, functions, must_call=must_call, max_calls=max_calls, tokens=tokens, answer=answer)
    return driver.walks(seed, closing=closing, **options)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", FORMATS)
def test_calls_that_are_made_are_read_and_fit(driver, name, seed):
    draw = random.Random(f"{name} {seed}")
    schemas = {"get_it": parameters(draw), "f-2": parameters(draw)}
    texts = walk(driver, name, seed, schemas, count=8, soft=30, hard=600)
    for text, (content, _, calls) in zip(texts, driver.read(texts), strict=True):
        assert content == "", text
        assert 1 <= len(calls) <= 2, text
        for called, arguments in calls:
            check(schemas[called], arguments)
    single = walk(driver, name, seed, schemas, max_calls=1, count=3, soft=10, hard=600)
    assert [len(calls) for _, _, calls in driver.read(single)] == [1] * len(single)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", FORMATS)
def test_an_answer_is_calls_or_what_its_guide_says(driver, name, seed):
    """A value of the answer may hold what calls begin with."""
    draw = random.Random(f"{name} {seed}")
    schemas = {"get_it": parameters(draw), "f-2": parameters(draw)}
    shape = {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}, "required": ["name"]}
    texts = walk(driver, name, seed, schemas, answer=shape, count=24, soft=30, hard=600)
    kinds = set()
    for text, (content, _, calls) in zip(texts, driver.read(texts), strict=True):
        kinds.add(bool(calls))
        if calls:
            assert content == "", text
            for called, arguments in calls:
                check(schemas[called], arguments)
        else:
            check({**shape, "additionalProperties": True}, content)
    assert kinds, "no walk ended"


@pytest.mark.parametrize("name", FORMATS)
def test_most_walks_end(driver, name):
    """So that the tests above say something."""
    schemas = {
        "f": {
            "type": "object",
            "properties": {"x": {"type": "string"}, "y": {"type": "array", "items": {"type": "number"}}},
            "required": ["x"],
        }
    }
    texts = walk(driver, name, 1, schemas, count=60, soft=30, hard=600)
    assert len(texts) > 30
    given = [json.loads(a) for _, _, calls in driver.read(texts) for _, a in calls]
    assert len({json.dumps(g) for g in given}) > 4
    assert all(isinstance(g["x"], str) for g in given)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", TRIGGERS)
def test_a_model_that_may_call_calls_strict_functions_well(driver, name, seed):
    draw = random.Random(f"{name} {seed}")
    schemas = {"get_it": parameters(draw), "f-2": parameters(draw)}
    template, closing = FORMATS[name]
    ends = [TRIGGERS[name], *closing] if TRIGGERS[name] not in closing else closing
    driver.calls(
        template,
        [function(*one) for one in schemas.items()],
        must_call=False,
        max_calls=64,
        tokens=[*TOKENS, *(c for c in ends if len(c) > 1)],
    )
    texts = driver.walks(seed, count=20, soft=40, hard=500, closing=ends)
    read = driver.read(texts)
    for _, _, calls in read:
        for called, arguments in calls:
            check(schemas[called], arguments)
    assert any(calls for _, _, calls in read)
    without = [text for text, (_, _, calls) in zip(texts, read, strict=True) if not calls]
    assert all(TRIGGERS[name] not in text for text in without)


# Of each format a whole answer with a call, its text around the call, and the same call with other arguments.
AROUND = {
    "mistral": ('Well. [TOOL_CALLS][{"name": "f", "arguments": {"x": 1}}]', '{"x": 1}', '{"x": "1"}'),
    "mistral's newer": ('Well. [TOOL_CALLS]f[ARGS]{"x": 1}', '{"x": 1}', '{"y": 1}'),
    "deepseek": ('Well. <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"x": 1}\n'
                 "```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", '{"x": 1}', '{"x": 1, "x": 2}'),
    "harmony": ('<|channel|>analysis<|message|>Well.<|end|><|start|>assistant<|channel|>commentary to=functions.f '
                '<|constrain|>json<|message|>{"x": 1}', '{"x": 1}', "{}"),
    "gemma": ("Well. <|tool_call>call:f{x:1}<tool_call|> So.", "{x:1}", '{x:<|"|>1<|"|>}'),
    "qwen_coder": ("Well. <tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call> So.",
                   "\n1\n", "\na\n"),
    "seed": ("Well. <seed:tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</seed:tool_call> So.",
             "\n1\n", "\na\n"),
    "hermes": ('Well. <tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call> So.', '{"x": 1}', '{"x": 1.5}'),
    "list": ('Well. <|tool_call|>[{"name": "f", "arguments": {"x": 1}}]<|/tool_call|> So.', '{"x": 1}', "{}"),
}  # fmt: skip
STRICT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}


@pytest.mark.parametrize("name", AROUND)
def test_text_around_calls_is_free(driver, name):
    whole, fits, other = AROUND[name]
    template, _ = FORMATS[name]
    driver.calls(template, [("f", STRICT, []), ("g", None, [])], must_call=False, max_calls=64)
    assert driver.matches([whole, whole.replace(fits, other)]) == [True, False]
    free = "<|channel|>final<|message|>Hm." if name == "harmony" else "Hm. <tool"
    assert driver.matches([free]) == [True]
    ((_, _, calls),) = driver.read([whole])
    assert [(n, json.loads(a)) for n, a in calls] == [("f", {"x": 1})]
    any_call = whole.replace("=f>", "=g>").replace("call:f", "call:g").replace('"f"', '"g"').replace("]f[", "]g[")
    any_call = any_call.replace("｜>f\n", "｜>g\n").replace("functions.f", "functions.g").replace(fits, other)
    assert driver.matches([any_call]) == [True]
    driver.calls(template, [("f", STRICT, [])], must_call=False, max_calls=1)
    assert driver.matches([whole + whole, whole + "x"]) == [False, False]
    driver.calls(template, [("f", STRICT, [])])
    assert driver.matches([free, "", whole if name != "harmony" else "Well." + whole]) == [False] * 3


@pytest.mark.parametrize(("name", "other"), [
    ("gemma", "<start_function_call>"), ("function gemma", "<|tool_call>"),
    ("list", "functools["), ("functools", "<|tool_call|>"),
])  # fmt: skip
def test_free_text_has_no_begin_of_calls_of_another_format(driver, name, other):
    driver.calls(FORMATS[name][0], [("f", STRICT, [])], must_call=False, max_calls=64)
    begun = f"Hm. {other[:-1]}"
    assert driver.matches([begun, begun + other[-1], begun + "x"]) == [True, False, True]


@pytest.mark.parametrize(("name", "text"), [
    ("gemma", "<|tool_call>call:g{}<|tool_call>call:f{x:a}<tool_call|>"),
    ("qwen_coder", "<function=g>\n</function>\n<function=f>\n<parameter=x>\na\n</parameter>\n</function>\n</tool_call>"),
    ("qwen_coder", "<function=g>\n</tool_call>\n<function=f>\n<parameter=x>\na\n</parameter>\n</function>\n</tool_call>"),
])  # fmt: skip
def test_calls_that_follow_others_without_their_end_are_strict_too(driver, name, text):
    driver.calls(FORMATS[name][0], [("f", STRICT, []), ("g", None, [])], must_call=False, max_calls=64)
    assert driver.matches([text]) == [False]
    ((_, _, calls),) = driver.read([text])
    assert [(n, json.loads(a)) for n, a in calls] == [("g", {}), ("f", {"x": "a"})]


# Formats whose calls are the whole answer: two calls, a call with other arguments, and texts that are none.
WHOLE = {
    "llama": ('{"name": "g", "parameters": {"y": [1]}}; {"name": "f", "parameters": {"x": 1}}', '"x": 1', '"x": "a"',
              ['{"a": 1}', ' {"name": "f"', "Hm. <|python_tag|>", '{"name": "h", "parameters": {}}']),
    "pythonic": ("[g(y=[1]), f(x=1)]", "x=1", 'x="a"', ["[1, 2]", " [f(", "Hm. <|python_start|>", "[h()]"]),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_an_answer_is_calls_or_a_text_where_nothing_marks_calls(driver, name):
    calls_alone, fits, other, refused = WHOLE[name]
    driver.calls(FORMATS[name][0], [("f", STRICT, []), ("g", None, [])], must_call=False, max_calls=64)
    assert driver.matches([calls_alone, calls_alone.replace(fits, other), *refused]) == [True] + [False] * (1 + len(refused))
    texts = ["", "\n", "Hm.", "\n 1 {[ <b>", "Let me look: " + calls_alone.replace(fits, other)]
    assert driver.matches(texts) == [True] * len(texts)
    ((content, _, calls), *free) = driver.read([calls_alone, *texts])
    assert (content, [(n, json.loads(a)) for n, a in calls]) == ("", [("g", {"y": [1]}), ("f", {"x": 1})])
    assert [c for _, _, c in free] == [[]] * len(texts)
    driver.calls(FORMATS[name][0], [("f", STRICT, []), ("g", None, [])], must_call=False, max_calls=1)
    assert driver.matches([calls_alone, "Hm."]) == [False, True]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", WHOLE)
def test_calls_that_a_model_may_make_fit_where_nothing_marks_them(driver, name, seed):
    draw = random.Random(f"{name} {seed}")
    schemas = {"get_it": parameters(draw), "other": parameters(draw)}
    functions = [function(*one) for one in schemas.items()]
    begin = {"llama": '{"name": "', "pythonic": "[get_it("}[name]  # else hardly any walk would begin with a call
    driver.calls(FORMATS[name][0], functions, must_call=False, max_calls=2, tokens=[*TOKENS, begin])
    texts = driver.walks(seed, count=60, soft=30, hard=600, closing=[begin, *FORMATS[name][1]])
    found = [calls for _, _, calls in driver.read(texts) if calls]
    for called, arguments in (call for calls in found for call in calls):
        check(schemas[called], arguments)
    assert found and len(found) < len(texts)


@pytest.mark.parametrize("end", ["</function>\n</tool_call>", "</function></tool_call>", "</function>", "</tool_call>", ""])
def test_a_call_of_any_arguments_ends_where_the_model_ends_it(driver, end):
    driver.calls(FORMATS["qwen_coder"][0], [("f", STRICT, []), ("g", None, [])], must_call=False, max_calls=64)
    free = f"<tool_call>\n<function=g>\n<parameter=x>\na\n</parameter>\n{end}"
    strict = "<function=f>\n<parameter=x>\n1\n</parameter>\n</function>"
    for text in (free, f"{free} So.", f"{strict}</tool_call> So.", f"{free}\n{strict}", f"{free}{strict}\n{free}"):
        assert driver.matches([text, text.replace("\n1\n", "\nb\n")]) == [True, strict not in text], text
    ((_, _, calls),) = driver.read([free + strict])
    assert [(n, json.loads(a)) for n, a in calls] == [("g", {"x": "a"}), ("f", {"x": 1})]


def test_texts_without_quotes_keep_to_their_schemas(driver):
    schema = {"type": "object", "properties": {"p": {"type": "string", "pattern": "^[a-z]\"?$"},
                                               "e": {"type": "string", "enum": ["x\ny", 3]},
                                               "u": {"type": ["string", "null"], "minLength": 2, "maxLength": 2}}}  # fmt: skip
    qwen = "<tool_call>\n<function=f>\n{}</function>\n</tool_call>"
    parts = {name: f"<parameter={name}>\n{{}}\n</parameter>\n" for name in "peu"}
    driver.calls(FORMATS["qwen_coder"][0], [function("f", schema)])
    good = [
        parts["p"].format('a"'),
        parts["e"].format("x\ny"),
        parts["u"].format("\n\n"),
        parts["p"].format("b") + parts["u"].format("é<"),
    ]
    bad = [parts["p"].format("A"), parts["e"].format("3"), parts["e"].format('"x\\ny"'), parts["u"].format("abc")]
    assert driver.matches([qwen.format(one) for one in good + bad]) == [True] * 4 + [False] * 4
    given = [json.loads(calls[0][1]) for _, _, calls in driver.read([qwen.format(one) for one in good])]
    assert given == [{"p": 'a"'}, {"e": "x\ny"}, {"u": "\n\n"}, {"p": "b", "u": "é<"}]
    driver.calls(FORMATS["gemma"][0], [function("f", schema)])
    gemma = "<|tool_call>call:f{{{}}}<tool_call|>"
    mark = '<|"|>'
    good = [f'p:{mark}a"{mark}', f"e:{mark}x\ny{mark}", f"u:{mark}<|{mark}", "u:null"]
    assert driver.matches([gemma.format(one) for one in [*good, f"p:{mark}A{mark}", "e:3"]]) == [True] * 4 + [False, False]
    given = [json.loads(calls[0][1]) for _, _, calls in driver.read([gemma.format(one) for one in good])]
    assert given == [{"p": 'a"'}, {"e": "x\ny"}, {"u": "<|"}, {"u": None}]


@pytest.mark.parametrize(("name", "text"), [
    ("hermes", '<tool_call>\n{{"name": "f", "arguments": {{"x": {}}}}}\n</tool_call>'),
    ("gemma", "<|tool_call>call:f{{x:{}}}<tool_call|>"),
    ("qwen_coder", "<tool_call>\n<function=f>\n<parameter=x>\n{}\n</parameter>\n</function>\n</tool_call>"),
    ("pythonic", "[f(x={})]"),
])  # fmt: skip
def test_what_a_guide_lets_nest_is_read(driver, name, text):
    driver.calls(FORMATS[name][0], [("f", {"type": "object", "properties": {"x": {"type": "array"}}}, [])])
    nested = ["[" * depth + "]" * depth for depth in (200, 300, 400, 500, 600)]
    texts = [text.format(one) for one in nested]
    written = driver.matches(texts)
    assert written[0] and not written[-1]
    for one, is_written, (_, _, calls) in zip(nested, written, driver.read(texts), strict=True):
        if is_written:
            assert [(n, "".join(a.split())) for n, a in calls] == [("f", f'{{"x":{one}}}')]


def test_choices_of_texts_within_each_other_have_a_bound(driver):
    def chain(length):
        one = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}]} for i in range(length)}
        texts = {"type": "string", "$ref": "#/$defs/d0"}
        return {"type": "object", "properties": {"x": texts}, "$defs": {**one, f"d{length}": {"maxLength": 2}}}

    driver.calls(FORMATS["qwen_coder"][0], [function("f", chain(100))])
    begin = "<tool_call>\n<function=f>\n<parameter=x>\n"
    end = "\n</parameter>\n</function>\n</tool_call>"
    assert driver.matches([begin + "ab" + end, begin + "abc" + end]) == [True, False]
    with pytest.raises(Refused, match=r"INVALID_ARGUMENT.*anyOf and oneOf of a text lead through more than 200"):
        driver.calls(FORMATS["qwen_coder"][0], [function("f", chain(1000))])


@pytest.mark.parametrize(("name", "schema", "words"), [
    ("pythonic", {"type": "object", "properties": {"a b": {}}}, "a property's name, 'a b', cannot be written"),
    ("qwen_coder", {"type": "object", "properties": {"a>b": {}}}, "a property's name, 'a>b', cannot be written"),
    ("qwen_coder", {"type": "object", "anyOf": [{"required": ["a"]}]}, "at #: anyOf: is not supported for all arguments"),
    ("pythonic", {"type": "object", "const": {}}, "at #: const: is not supported for all arguments"),
    ("gemma", {"properties": {"a": {"type": "string", "pattern": "^<\\|\"\\|>$"}}, "required": ["a"]}, "no text matches"),
    ("mistral", {"type": "object", "not": {}}, "at #: not: this keyword is not supported"),
])  # fmt: skip
def test_what_a_format_cannot_hold_is_refused_by_name(driver, name, schema, words):
    with pytest.raises(Refused, match="INVALID_ARGUMENT") as refused:
        driver.calls(FORMATS[name][0], [function("f", schema)])
    assert words in str(refused.value)
