#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what the ensemble answers with what its models answer one after the other, then sends all prompts at once.

The models must not be decoupled.
"""

import argparse
import ast
import pathlib
import sys
import time

import numpy as np
from tritonclient.utils import InferenceServerException

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from prompts import read_dataset
from triton_requests import Answers, add_protocol, connect_by, declared, given, inputs_of, response_of, tensor, texts

ARRAYS = ("cum_log_probs", "output_log_probs", "context_logits", "generation_logits")  # beside ids and text


class Difference(Exception):
    """The answers of two roads differ, or have another shape than they must have."""


def check(holds, what):
    if not holds:
        raise Difference(what)


class Roads:
    """The roads from a text to its answer: model by model, by the ensemble, by BLS."""

    def __init__(self, client, arguments):
        self.client, self.arguments = client, arguments
        self.has = {model: declared(client, model) for model in ("preprocessing", "tensorrt_llm", "postprocessing")}

    def infer(self, model, tensors, request_id):
        return self.client.infer(model, inputs_of(self.client, model, tensors), request_id=request_id)

    def warm_up(self, tensors, request_id):
        self.infer(self.arguments.model_name, tensors, request_id)

    def logits(self):
        return given([
            ("return_log_probs", self.arguments.return_log_probs or None, bool),
            ("return_context_logits", self.arguments.return_context_logits or None, bool),
            ("return_generation_logits", self.arguments.return_generation_logits or None, bool),
        ])  # fmt: skip

    def step_by_step(self, prompt, length, request_id):
        """Text and arrays, and the number of the prompt's tokens."""
        prepared = self.infer("preprocessing", [
            texts("QUERY", [prompt]), texts("BAD_WORDS_DICT", [""]), texts("STOP_WORDS_DICT", [""]),
            *given([("REQUEST_OUTPUT_LEN", length, np.int32)])], request_id)  # fmt: skip
        names = {"input_ids": "INPUT_ID", "input_lengths": "REQUEST_INPUT_LEN", "request_output_len": "REQUEST_OUTPUT_LEN",
                 "end_id": "OUT_END_ID", "pad_id": "OUT_PAD_ID", "decoder_input_ids": "DECODER_INPUT_ID",
                 "decoder_input_lengths": "REQUEST_DECODER_INPUT_LEN"}  # fmt: skip
        inputs = [
            tensor(name, prepared.as_numpy(output)) for name, output in names.items()
            if name in self.has["tensorrt_llm"][0] and output in self.has["preprocessing"][1]
        ]  # fmt: skip
        generated = self.infer("tensorrt_llm", inputs + self.logits(), request_id)
        arrays = {name: generated.as_numpy(name) for name in ARRAYS}
        inputs = [tensor("TOKENS_BATCH", generated.as_numpy("output_ids")),
                  tensor("SEQUENCE_LENGTH", generated.as_numpy("sequence_length"))]  # fmt: skip
        passed = [name for name in ARRAYS if name.upper() in self.has["postprocessing"][0] and arrays[name] is not None]
        inputs += [tensor(name.upper(), arrays[name]) for name in passed]
        finished = self.infer("postprocessing", inputs, request_id)
        for name in passed:
            check(np.array_equal(finished.as_numpy(f"OUT_{name.upper()}"), arrays[name]), f"postprocessing changed {name}")
        return finished.as_numpy("OUTPUT").flat[0], arrays, prepared.as_numpy("INPUT_ID").size

    def text_request(self, prompt, length):
        return [texts("text_input", [prompt]), texts("bad_words", [""]), texts("stop_words", [""]),
                *given([("max_tokens", length, np.int32)]), *self.logits()]  # fmt: skip

    def whole(self, model, prompt, length, request_id):
        """Text and arrays of the ensemble or of BLS."""
        result = self.infer(model, self.text_request(prompt, length), request_id)
        return result.as_numpy("text_output").flat[0], {name: result.as_numpy(name) for name in ARRAYS}


class LlmApi:
    """The one model of the LLM API's repository, which has no batch dimension."""

    def __init__(self, client, arguments):
        self.client, self.arguments = client, arguments

    def infer(self, model, tensors, request_id):
        return self.client.infer(model, inputs_of(self.client, model, tensors), request_id=request_id)

    def request(self, prompt, values):
        """Of one prompt, with further values by the names of their tensors: numbers, texts, lists of them."""
        tensors = []
        for name, value in {"text_input": prompt, **({"streaming": True} if self.arguments.streaming else {}), **values}.items():
            row = [each.encode() if isinstance(each, str) else each for each in (value if isinstance(value, list) else [value])]
            tensors.append((name, np.array(row, object if isinstance(row[0], bytes) else None)))
        return tensors

    def text_request(self, prompt, length):
        return self.request(prompt, {"sampling_param_max_tokens": length})

    def asked_request(self, prompt):
        """By --sampling-params and --output-config; what they leave open is the server's default."""
        sampling = {f"sampling_param_{name}": value for name, value in self.arguments.sampling_params.items()}
        return self.request(prompt, sampling | self.arguments.output_config)

    def warm_up(self, tensors, _request_id):
        self.answers([tensors])

    def answers(self, requests):
        """The results of each request: of a stream all of them, else one."""
        model = self.arguments.model_name
        if not self.arguments.streaming:
            return [[self.infer(model, tensors, str(number))] for number, tensors in enumerate(requests)]
        got, results = Answers(), [[] for _ in requests]
        self.client.start_stream(got.callback)
        for number, tensors in enumerate(requests):
            self.client.async_stream_infer(model, inputs_of(self.client, model, tensors), request_id=str(number))
        self.client.stop_stream()
        for result in got.rest():
            if isinstance(result, InferenceServerException):
                raise result
            results[int(response_of(result)["id"])].append(result)
        return results

    def test_functionality(self, pairs):
        """Each prompt has a text, and the outputs that --output-config asks for."""
        print(f"[INFO] Start testing on {len(pairs)} prompts.")
        asked = [name.removeprefix("return_") for name, value in self.arguments.output_config.items() if value]
        for number, results in enumerate(self.answers([self.asked_request(prompt) for prompt, _ in pairs])):
            text = b"".join(result.as_numpy("text_output").flat[0] for result in results)
            check(text, f"prompt {number}: the text is empty")
            if self.arguments.verbose:
                print(f"Text output: {text.decode()}", flush=True)
            for name in asked:
                values = results[-1].as_numpy(name)
                check(values is not None and values.size > 0, f"prompt {number}: the answer has no {name}")
                if self.arguments.verbose:
                    print(f"{name.replace('_', ' ').capitalize()}: {values}")
        print("[INFO] Functionality test succeeded.")


def check_shapes(arguments, arrays, prompt_tokens, length):
    for name, is_asked, begin in (
        ("context_logits", arguments.return_context_logits, (1, prompt_tokens)),
        ("generation_logits", arguments.return_generation_logits, (1, 1, length)),
    ):
        array = arrays[name]
        if is_asked:
            check(array is not None, f"{name}: asked for, and not in the answer")
            check(array.shape[:-1] == begin, f"{name}: got shape {array.shape}, must be {(*begin, 'vocabulary')}")
        elif array is not None:  # up to 0.13 each answer has a single 0 in its place
            check(array.size == 1 and not array.any(), f"{name}: not asked for, and not a single 0: {array.shape}")


def test_functionality(roads, pairs):
    print(f"[INFO] Start testing on {len(pairs)} prompts.")
    for number, (prompt, length) in enumerate(pairs):
        text, arrays, prompt_tokens = roads.step_by_step(prompt, length, str(number))
        for model in ("ensemble", "tensorrt_llm_bls") if roads.arguments.test_bls else ("ensemble",):
            whole_text, whole_arrays = roads.whole(model, prompt, length, str(number))
            check(text == whole_text, f"prompt {number}: model by model gives {text!r}, {model} gives {whole_text!r}")
            for name in ARRAYS:
                one, other = arrays[name], whole_arrays[name]
                if one is None or other is None:
                    check(one is other, f"prompt {number}: only one of the roads has {name}, beside {model}")
                else:
                    check(np.array_equal(one, other), f"prompt {number}: {name} of {model} differs")
            check_shapes(roads.arguments, whole_arrays, prompt_tokens, length)
    print("[INFO] Functionality test succeed.")


def send_all_at_once(roads, pairs):
    model, answers, handles = roads.arguments.model_name, Answers(), []
    for number, pair in enumerate(pairs):
        inputs = inputs_of(roads.client, model, roads.text_request(*pair))
        if roads.arguments.protocol == "http":
            handles.append(roads.client.async_infer(model, inputs, request_id=str(number)))
        else:
            roads.client.async_infer(model, inputs, callback=answers.callback, request_id=str(number))
    for handle in handles:
        handle.get_result()
    for _ in range(len(pairs) if not handles else 0):
        result = answers.next()
        if isinstance(result, InferenceServerException):
            raise result


def test_performance(roads, pairs):
    print("[INFO] Warm up for benchmarking.")
    for number in range(min(10, len(pairs))):
        roads.warm_up(roads.text_request(*pairs[0]), str(number))
    if roads.arguments.test_llmapi:
        print(f"FLAGS.model_name: {roads.arguments.model_name}")
    print(f"[INFO] Start benchmarking on {len(pairs)} prompts.")
    start = time.monotonic()
    if roads.arguments.streaming:
        roads.answers([roads.text_request(*pair) for pair in pairs])
    else:
        send_all_at_once(roads, pairs)
    print(f"[INFO] Total Latency: {round((time.monotonic() - start) * 1000, 3)} ms")


def dictionary(text):
    """The value of a flag: a Python dictionary, as in {'temperature': 0.5}."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError):
        value = None
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise argparse.ArgumentTypeError(f"got {text!r}, must be a dictionary such as {{'temperature': 0.5}}")
    return value


def parse_arguments():
    parser = argparse.ArgumentParser(description="Compares the ensemble with its models, then times it.")
    add_protocol(parser)
    parser.add_argument("--max-input-len", type=int, help="longer prompts are left out; up to 0.18 it must be given")
    parser.add_argument("--dataset", required=True, help="file of prompts")
    parser.add_argument("--return-log-probs", action="store_true", help="ask for log-probs; from 0.14 on")
    parser.add_argument("--return-context-logits", action="store_true", help="ask for the prompt's logits")
    parser.add_argument("--return-generation-logits", action="store_true", help="ask for the answer's logits")
    parser.add_argument("--test-bls", action="store_true", help="compare tensorrt_llm_bls too")
    parser.add_argument("--test-llmapi", action="store_true", help="test the model of an llmapi repository; from 0.19 on")
    parser.add_argument("--model-name", help="the model that is timed; ensemble, or tensorrt_llm with --test-llmapi")
    parser.add_argument("--streaming", action="store_true", help="over a gRPC stream; with --test-llmapi")
    parser.add_argument("--sampling-params", type=dictionary, default={}, help="{'top_k': 2, ...}; with --test-llmapi")
    parser.add_argument("--output-config", type=dictionary, default={},
                        help="{'return_finish_reason': True, ...}; with --test-llmapi")  # fmt: skip
    arguments = parser.parse_args()
    for name in ("streaming", "sampling_params", "output_config"):
        if getattr(arguments, name) and not arguments.test_llmapi:
            parser.error(f"--{name.replace('_', '-')}: needs --test-llmapi")
    if arguments.streaming and arguments.protocol != "grpc":
        parser.error("--streaming: needs --protocol grpc")
    arguments.model_name = arguments.model_name or ("tensorrt_llm" if arguments.test_llmapi else "ensemble")
    return arguments


def main():
    arguments = parse_arguments()
    pairs = read_dataset(arguments.dataset, arguments.max_input_len)
    client = connect_by(arguments.protocol, arguments.url, arguments.concurrency, arguments.verbose)
    try:
        if arguments.test_llmapi:
            roads = LlmApi(client, arguments)
            roads.test_functionality(pairs)
        else:
            roads = Roads(client, arguments)
            test_functionality(roads, pairs)
        test_performance(roads, pairs)
    except Difference as error:
        sys.exit(f"[ERROR] {error}")
    except (InferenceServerException, OSError) as error:
        sys.exit(f"[ERROR] Failed receiving responses: {error}")


if __name__ == "__main__":
    main()
