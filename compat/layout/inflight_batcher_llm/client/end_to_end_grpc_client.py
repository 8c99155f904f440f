#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends one text to the ensemble or to tensorrt_llm_bls over a gRPC stream, and prints the texts of the answers."""

import argparse
import json
import pathlib
import sys

import numpy as np
from tritonclient.utils import InferenceServerException

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

from triton_requests import Answers, add_sampling, connect, given, inputs_of, sampling, tensor, texts


def add_text_request(parser):
    """The flags of a request for text, which the test tools of this folder have too."""
    add_sampling(parser)
    parser.add_argument("-S", "--streaming", action="store_true", help="an answer for each step")
    parser.add_argument("-o", "--output-len", type=int, default=100, help="new tokens at most")
    parser.add_argument("--stop-words", nargs="+", default=[], help="words that end the text")
    parser.add_argument("--bad-words", nargs="+", default=[], help="words that do not come")
    parser.add_argument("--embedding-bias-words", nargs="+", default=[], help="words that become likelier or less likely")
    parser.add_argument("--embedding-bias-weights", nargs="+", type=float, default=[], help="by how much, a number each")
    parser.add_argument("--end-id", type=int, help="end id; not sent unless it is given")
    parser.add_argument("--pad-id", type=int, help="pad id; not sent unless it is given")
    for name in ("context-logits", "generation-logits", "log-probs", "perf-metrics", "kv-cache-reuse-stats"):
        parser.add_argument(f"--return-{name}", action="store_true", help=f"ask for {name.replace('-', ' ')}")


def check_text_request(parser, arguments):
    words, weights = arguments.embedding_bias_words, arguments.embedding_bias_weights
    if len(words) != len(weights):
        parser.error(
            f"--embedding-bias-words has {len(words)} and --embedding-bias-weights {len(weights)}; each word needs one weight"
        )


def text_inputs(arguments, prompts):
    """The tensors of a request for the texts after `prompts`, one a row."""
    rows = len(prompts)
    inputs = [tensor("text_input", np.array([[prompt.encode()] for prompt in prompts], dtype=object))]
    inputs += sampling(arguments, rows) + given([
        ("max_tokens", arguments.output_len, np.int32),
        ("stream", arguments.streaming, bool),
        ("end_id", arguments.end_id, np.int32),
        ("pad_id", arguments.pad_id, np.int32),
        *((name, getattr(arguments, name) or None, bool) for name in (
            "return_context_logits", "return_generation_logits", "return_log_probs", "return_perf_metrics",
            "return_kv_cache_reuse_stats")),
    ], rows)  # fmt: skip
    for name in ("stop_words", "bad_words", "embedding_bias_words"):
        if getattr(arguments, name):
            inputs.append(texts(name, getattr(arguments, name), rows))
    if arguments.embedding_bias_weights:
        weights = np.array([arguments.embedding_bias_weights] * rows, np.float32)
        inputs.append(tensor("embedding_bias_weights", weights))
    return inputs


def ask(client, model, tensors, request_id=""):
    """All answers and errors of one request on a stream of its own, which the client closes for writing at once."""
    inputs = inputs_of(client, model, tensors, droppable=("beam_width", "temperature", "stream"))
    answers = Answers()
    client.start_stream(answers.callback)
    client.async_stream_infer(model, inputs, request_id=request_id)
    client.stop_stream()
    return list(answers.rest())


def parse_arguments():
    parser = argparse.ArgumentParser(description="Sends one text to the ensemble or to tensorrt_llm_bls.")
    parser.add_argument("-v", "--verbose", action="store_true", help="print each request and answer")
    parser.add_argument("-u", "--url", default="localhost:8001", help="address of gRPC")
    parser.add_argument("-p", "--prompt", required=True, help="the text, or with --batch-inputs a JSON list of texts")
    parser.add_argument("--model-name", default="ensemble", choices=["ensemble", "tensorrt_llm_bls"], help="the model")
    parser.add_argument("--request-id", default="", help="id of the request")
    parser.add_argument("--overwrite-output-text", action="store_true", help="each streamed text is all of the answer so far")
    parser.add_argument("--batch-inputs", action="store_true", help="several texts in one request; releases from 0.12")
    parser.add_argument("--check-outputs", action="store_true", help="compare with --expected-outputs")
    parser.add_argument("--expected-outputs", default="[]", help="JSON list of texts")
    parser.add_argument("-n", "--num-return-sequences", type=int, help="answers for each text; releases from 0.14")
    parser.add_argument("--exclude-input-in-output", action="store_true", help="without the prompt; releases from 0.16")
    parser.add_argument("--lora-task-id", type=int, help="id of an adapter; releases from 0.15")
    parser.add_argument("--guided-decoding-guide-type", help="json, json_schema, regex or ebnf_grammar; releases from 0.19")
    parser.add_argument("--guided-decoding-guide", help="the guide of that type")
    add_text_request(parser)
    arguments = parser.parse_args()
    check_text_request(parser, arguments)
    arguments.prompts = [arguments.prompt]
    try:
        if arguments.batch_inputs:
            arguments.prompts = json.loads(arguments.prompt)
        arguments.expected = json.loads(arguments.expected_outputs)
    except ValueError as error:
        parser.error(f"--prompt and --expected-outputs must be JSON lists of texts here: {error}")
    if not isinstance(arguments.prompts, list) or not all(isinstance(p, str) for p in arguments.prompts) or not arguments.prompts:
        parser.error(f"--prompt: got {arguments.prompt!r}, which is no JSON list of texts as --batch-inputs asks for")
    return arguments


def later_inputs(arguments):
    """Tensors that only later releases declare, where they are asked for."""
    rows = len(arguments.prompts)
    inputs = given([
        ("num_return_sequences", arguments.num_return_sequences, np.int32),
        ("exclude_input_in_output", arguments.exclude_input_in_output or None, bool),
        ("lora_task_id", arguments.lora_task_id, np.uint64),
    ], rows)  # fmt: skip
    for name in ("guided_decoding_guide_type", "guided_decoding_guide"):
        if getattr(arguments, name):
            inputs.append(texts(name, [getattr(arguments, name)], rows))
    return inputs


def show(arguments, results):
    """Prints the answers as they came; the texts of each prompt of a batch."""
    together = {}
    for result in results:
        if isinstance(result, InferenceServerException):
            print("Received an error from server:")
            print(result)
            continue
        output = result.as_numpy("text_output")
        index = result.as_numpy("batch_index")
        row = int(index.flat[0]) if index is not None and len(arguments.prompts) > 1 else 0
        if arguments.streaming and arguments.beam_width == 1:
            text = output.flat[0].decode()
            together[row] = text if arguments.overwrite_output_text else together.get(row, "") + text
        else:
            print(output, flush=True)
            together[row] = output.flat[0].decode()
        for name in ("context_logits", "generation_logits", "cum_log_probs", "output_log_probs"):
            option = "return_log_probs" if name.endswith("log_probs") else f"return_{name}"
            if getattr(arguments, option) and result.as_numpy(name) is not None:
                print(f"{name}.shape: {result.as_numpy(name).shape}")
                print(f"{name}: {result.as_numpy(name)}")
    if arguments.streaming and arguments.beam_width == 1:
        for row in sorted(together):
            print(together[row])
    return [together.get(row) for row in range(len(arguments.prompts))]


def main():
    arguments = parse_arguments()
    inputs = text_inputs(arguments, arguments.prompts) + later_inputs(arguments)
    try:
        with connect(arguments.url, arguments.verbose) as client:
            results = ask(client, arguments.model_name, inputs, arguments.request_id)
    except InferenceServerException as error:
        results = [error]
    got = show(arguments, results)
    if arguments.check_outputs and got != arguments.expected:
        sys.exit(f"the outputs are {got}, expected were {arguments.expected}")


if __name__ == "__main__":
    main()
