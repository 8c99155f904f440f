#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks a served model for JSON of generated schemas, at temperature 1, and checks each answer with jsonschema.

    INFLIGHT_BIN_DIR=build/release/bin tests/grammar/run_schemas.py [MODEL] [--count 1000] [--first-seed 0]

MODEL is what `inflight serve` takes, models/demo by default. An answer that says `stop` must be valid for its schema; one
that says `length` was cut. The exit status is 1 where an answer is anything else. Arguments behind -- go to the server:
run_schemas.py model.gguf -- --chat-template one.jinja, as a model without one of its own needs.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import random
import sys
import tempfile
import time

import jsonschema
import requests

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests/protocol")]
from live_server import DEMO, start_server  # noqa: E402
from test_schemas import CHECKER, random_schema  # noqa: E402


def ask(http, seed, options):
    """What became of one schema: a word, and where it is a fault what is wrong."""
    schema = random_schema(random.Random(seed), 3)
    body = {
        "messages": [{"role": "user", "content": "Tell me about a fox, as JSON."}], "temperature": 1, "seed": seed,
        "max_tokens": options.max_tokens,
        "response_format": {"type": "json_schema", "json_schema": {"name": "generated", "schema": schema}},
    }  # fmt: skip
    answer = requests.post(f"http://{http}/v1/chat/completions", json=body, timeout=3600)
    if answer.status_code != 200:
        return f"status {answer.status_code}", f"seed {seed}: {answer.text[:1000]}\n{json.dumps(schema)}"
    (choice,) = answer.json()["choices"]
    if choice["finish_reason"] == "length":
        return "cut", None
    text = choice["message"]["content"]
    try:
        jsonschema.Draft202012Validator(schema, format_checker=CHECKER).validate(json.loads(text))
    except (ValueError, jsonschema.ValidationError) as error:
        return "not valid", f"seed {seed}: {str(error)[:1000]}\n{json.dumps(schema)}\n{text}"
    return ("valid", None) if choice["finish_reason"] == "stop" else (f"ended by {choice['finish_reason']}", f"seed {seed}")


def main():
    own = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", type=pathlib.Path, default=DEMO)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--at-once", type=int, default=16, help="requests in flight")
    options = parser.parse_args(own)
    counts, began = collections.Counter(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        server = start_server(pathlib.Path(folder), options.model, *sys.argv[2 + len(own) :])
        with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
            seeds = range(options.first_seed, options.first_seed + options.count)
            for word, fault in pool.map(lambda seed: ask(server.http, seed, options), seeds):
                counts[word] += 1
                if fault:
                    print(fault, flush=True)
                if counts.total() % 100 == 0:
                    print(f"{counts.total()}: {dict(counts)}", file=sys.stderr, flush=True)
        status = server.stop()
    print(f"{options.model.name}: {dict(counts)} of {options.count} in {time.monotonic() - began:.0f} s")
    return 0 if status == 0 and set(counts) <= {"valid", "cut"} else 1


if __name__ == "__main__":
    sys.exit(main())
