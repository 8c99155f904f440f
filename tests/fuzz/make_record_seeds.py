# SPDX-License-Identifier: Apache-2.0
"""Writes seeds/journal (of a journal that release 0.1.0 recorded), seeds/receipt and seeds/answer_parts.

usage: python3 tests/fuzz/make_record_seeds.py
"""

import json
import pathlib
import struct

SEEDS = pathlib.Path(__file__).parent / "seeds"
JOURNAL = pathlib.Path(__file__).parents[1] / "upgrade/0.1.0/journal"
FILE, HEADER, TURN, FRAMES = range(4)  # modes of journal_fuzz.cc
MAGIC = 8  # bytes
MANY = 40  # turns, of which the first and the last are seeds of their own


def write(fuzzer, name, data):
    path = SEEDS / fuzzer / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def records(data):
    """Kind and content of each frame (src/flight_recorder/journal.h)."""
    at = MAGIC
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        yield data[at + 8], data[at + 9 : at + 8 + size]
        at += 8 + size


def journal():
    data = JOURNAL.read_bytes()
    found = list(records(data))
    header = next(record for kind, record in found if kind == 1)
    turns = [record for kind, record in found if kind == 2]
    size = MAGIC + sum(8 + 1 + len(record) for record in [header, *turns[:3]])
    write("journal", "file", bytes([FILE]) + data[:size])
    write("journal", "torn_file", bytes([FILE]) + data[: size - 3])
    write("journal", "header", bytes([HEADER]) + header)
    for name, turn in {"first": turns[0], "last": turns[-1], "longest": max(turns[:MANY], key=len)}.items():
        write("journal", f"turn_{name}", bytes([TURN]) + turn)
    framed = b"".join(struct.pack("<HB", len(turn), 2) + turn for turn in turns[:2])
    write("journal", "frames", bytes([FRAMES]) + framed + struct.pack("<HBQ", 8, 3, 5))


RECEIPT = {
    "inflight_receipt": 1,
    "model": {
        "weights": "aa", "architecture": "LlamaForCausalLM", "quant_algo": "none", "adapter": None,
        "options": {
            "dtype": "auto", "quant_algo": "auto", "group_size": None, "fp8_kv_cache": False, "quantize_lm_head": None,
            "tensor_parallel_size": None, "pipeline_parallel_size": None, "block_size": 64, "attention_windows": [0, 4096],
            "sink_tokens": 0,
        },
    },
    "kernels": {"table": "cpu/avx2", "device": "cpu", "dtype": "float32", "program": "0.1.0"},
    "prompt": {"num_tokens": 2, "hash": "bb", "ids": [5, 6]},
    "parameters": {
        "max_tokens": 3, "end_ids": [2], "stop_words": [[7, 8], [9]], "bad_words": [], "log_probs": True,
        "normalize_log_probs": True, "sampling": {"temperature": 0.5, "top_k": 20, "seed": "18446744073709551615"},
    },
    "outputs": [{"ids": [10, 11], "end": "end_id", "log_probs": "cc"}, {"ids": [], "end": "stop_text", "log_probs": None}],
    "parts": {
        "model": "269537330d274268", "kernels": "5edaf893dc0c8cdb", "prompt": "0cebfd993d39809a",
        "parameters": "a11433f15b7f500a", "outputs": "b5fefdd57833ea49",
    },
    "digest": "7452234bca7bba7a02e1cd86d3dcc4e1ece191c8514eb9c74677dd31a2bca8e2",
}  # fmt: skip


def receipt():
    text = json.dumps(RECEIPT)
    other = RECEIPT | {"prompt": {"num_tokens": 2, "hash": "bb", "ids": None}}
    cases = {
        "receipt": text,
        "list": f"[{text}, {json.dumps(other)}]",
        "answer": json.dumps({"text_output": "a", "parameters": {"receipt": text}}),
        "grpc": json.dumps({"parameters": {"receipt": {"string_param": text}}}),
        "events": "data: {}\n\nevent: x\ndata: " + json.dumps({"response": {"receipt": RECEIPT}}) + "\n\ndata: [DONE]\n\n",
        "not_covered": '{"inflight_receipt":1,"not_covered":"guide"}',
    }
    for name, data in cases.items():
        write("receipt", name, data.encode())


# As the publishers of the models write them, each for some of the formats and tags; fuzzers come to the others.
ANSWERS = [
    "a <tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>",
    "<think>a</think>\n\nb",
    "[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {\"a\": 1}}]",
    "[TOOL_CALLS]add[ARGS]{\"a\": 1}",
    "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"b\"}}",
    "[add(a=1), get_weather(city='b')]",
    "<function=get_weather>\n<parameter=city>\nb\n</parameter>\n</function>",
    "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b",
    "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{\"a\":1}<|call|>",
    "<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>add<\uff5ctool\u2581sep\uff5c>{}"
    "<\uff5ctool\u2581call\u2581end\uff5c><\uff5ctool\u2581calls\u2581end\uff5c>",
    "<start_function_call>call:get_weather{city:<escape>b<escape>}<end_function_call>",
]  # fmt: skip
NUM_FORMATS, NUM_TAGS = 10, 6  # at least so many
PYTHONIC = 8  # of the formats by name, behind none
LITERALS = [
    r"""[add(a=(1, ('\u00e9', ), ("x")), b=0x1F, c={1: r'\d', None: .5}, d='''a'b''' "c", e=[], g=1_0., """
    r"h='\ud83d\ude00\101\q')]",
    "<|python_start|> [ get_weather ( city = '<|python_end|>' , on=True, n=-12.5e+3, ) , add() ]<|python_end|> So.",
    "[add(a=1 + 2, b=x)]<|python_end|>So. <|python_tag|>[add(a=''), other(",
]


def answer_parts():
    for i, text in enumerate(ANSWERS):
        for form in (i % NUM_FORMATS, (i + NUM_FORMATS // 2) % NUM_FORMATS):
            write("answer_parts", f"answer_{i}_{form}", bytes([form, i % NUM_TAGS, form % 3]) + text.encode())
    for i, text in enumerate(LITERALS):
        write("answer_parts", f"literals_{i}", bytes([PYTHONIC, 0, 2 + 4 * i]) + text.encode())


if __name__ == "__main__":
    journal()
    receipt()
    answer_parts()
