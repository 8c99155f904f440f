#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends one request to the model tensorrt_llm over gRPC: ids in, ids out, with the tokenizer on this side."""

import argparse
import csv
import pathlib
import sys
import time
import uuid

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

from inflight_program import Tokenizer
from prompts import TEXT
from triton_requests import Answers, add_sampling, connect, given, inputs_of, sampling, tensor

GPT2_IDS = [28524, 287, 5093, 12, 23316, 4881, 11, 30022, 263, 8776, 355, 257]  # of TEXT
GPT2_ANSWER = [21221, 290, 257, 4255, 379, 262, 1957, 7072, 11, 4689, 347, 2852, 2564, 494, 13, 679]
DTYPES = {"float16": np.float16, "float32": np.float32, "bfloat16": np.float32}


def add_connection(parser):
    parser.add_argument("-v", "--verbose", action="store_true", help="print each request and answer")
    parser.add_argument("-u", "--url", default="localhost:8001", help="address of gRPC")
    parser.add_argument("-s", "--ssl", action="store_true", help="TLS")
    parser.add_argument("-t", "--stream-timeout", type=float, help="seconds that a stream may last")
    parser.add_argument("-r", "--root-certificates", help="PEM file of the roots that sign the server's certificate")
    parser.add_argument("-p", "--private-key", help="PEM file of this client's key")
    parser.add_argument("-x", "--certificate-chain", help="PEM file of this client's certificate")
    parser.add_argument("-C", "--grpc-compression-algorithm", choices=["none", "deflate", "gzip"], help="of requests")
    parser.add_argument("--model-name", "--tensorrt-llm-model-name", default="tensorrt_llm", help="the model")
    parser.add_argument("--request-id", "--request_id", default="", help="id of the request")


def add_request(parser):
    parser.add_argument("--text", default=TEXT, help="the prompt, with a tokenizer")
    parser.add_argument("--tokenizer-dir", "--tokenizer_dir", default="", help="directory of the tokenizer")
    parser.add_argument("--tokenizer-type", "--tokenizer_type", default="auto", choices=["auto", "t5", "llama"],
                        help="no effect: the files say their kind")  # fmt: skip
    parser.add_argument("--input-tokens-csv", default="", help="file whose first row is the prompt's ids")
    parser.add_argument("--draft-tokens-csv", default="", help="file whose first row is draft ids")
    parser.add_argument("--output-tokens-csv", default="", help="file whose first row is what --check-output expects")
    parser.add_argument("--end-id", type=int, default=50256, help="end id, without a tokenizer")
    parser.add_argument("--pad-id", type=int, default=50256, help="pad id, without a tokenizer")
    parser.add_argument("--request-output-len", type=int, default=16, help="new tokens at most")
    parser.add_argument("--top-k", type=int, default=1, help="top-k")
    parser.add_argument("--top-p", type=float, default=0.0, help="top-p")
    parser.add_argument("-n", "--num-return-sequences", type=int, help="sequences of the request; releases from 0.14")
    parser.add_argument("-S", "--streaming", action="store_true", help="an answer for each step")
    parser.add_argument("--stop-after-ms", type=int, default=0, help="end the request after so many milliseconds")
    parser.add_argument("--stop-via-request-cancel", action="store_true", help="end it by cancelling the call")
    parser.add_argument("--exclude-input-in-output", action="store_true", help="the server leaves the prompt out of its answer")
    for name in ("log-probs", "context-logits", "generation-logits", "perf-metrics", "kv-cache-reuse-stats"):
        parser.add_argument(f"--return-{name}", action="store_true", help=f"ask for {name.replace('-', ' ')}")
    parser.add_argument("--requested-outputs", nargs="+", default=[], help="outputs to ask for, output_ids among them")


def add_adapters(parser):
    parser.add_argument("--prompt-embedding-table-path", default="", help=".npy file of prompt-tuning rows")
    parser.add_argument("--prompt-task-id", type=int, default=0, help="row of that file")
    parser.add_argument("--prompt_table_extra_id", type=int, help="extra id of virtual tokens")
    parser.add_argument("--vocab_size", type=int, help="first id of virtual tokens, with --prompt_table_extra_id")
    parser.add_argument("--lora-path", default="", help="directory of model.lora_weights.npy and model.lora_config.npy")
    parser.add_argument("--lora-task-id", type=int, help="id of the adapter; 0 is none")
    parser.add_argument("--dtype", choices=list(DTYPES), default="float16", help="of table and adapter")
    parser.add_argument("--lookahead_config", help="window,ngram,verification set; releases from 0.19")


def parse_arguments():
    parser = argparse.ArgumentParser(description="Sends one request to tensorrt_llm.")
    add_connection(parser)
    add_request(parser)
    add_sampling(parser)
    add_adapters(parser)
    parser.add_argument("-c", "--check-output", action="store_true", help="compare the ids with those expected")
    parser.add_argument("--correctness-threshold", type=float, default=1.0, help="share of ids that must agree")
    arguments = parser.parse_args()
    if arguments.requested_outputs and "output_ids" not in arguments.requested_outputs:
        parser.error("--requested-outputs: output_ids must be among them")
    if arguments.stop_after_ms > 0 and not arguments.request_id:
        arguments.request_id = uuid.uuid4().hex  # a stop names the request that it ends
    return arguments


def first_row(path, option):
    try:
        with open(path, newline="") as file:
            return [int(cell) for cell in next(csv.reader(file))]
    except (OSError, StopIteration, ValueError) as error:
        sys.exit(f"{option}: {path} does not begin with a row of token ids: {error or 'it is empty'}")


def array_of(path, option):
    try:
        return np.load(path)
    except (OSError, ValueError) as error:
        sys.exit(f"{option}: {path} cannot be read: {error}")


def adapter_inputs(arguments):
    inputs = []
    dtype = DTYPES[arguments.dtype]
    if arguments.prompt_embedding_table_path:
        table = array_of(arguments.prompt_embedding_table_path, "--prompt-embedding-table-path")
        table = table[arguments.prompt_task_id] if table.ndim == 3 else table
        inputs += [tensor("prompt_embedding_table", table[None].astype(dtype)),
                   *given([("prompt_vocab_size", table.shape[0], np.int32)])]  # fmt: skip
    if arguments.lora_task_id:
        inputs += given([("lora_task_id", arguments.lora_task_id, np.uint64)])
    if arguments.lora_path:
        folder = pathlib.Path(arguments.lora_path)
        layout = next((p for p in (folder / "model.lora_config.npy", folder / "model.lora_keys.npy") if p.exists()), None)
        if layout is None:
            sys.exit(f"--lora-path: {folder} has neither model.lora_config.npy nor model.lora_keys.npy")
        weights = array_of(folder / "model.lora_weights.npy", "--lora-path").astype(dtype)
        rows = array_of(layout, "--lora-path").astype(np.int32)
        inputs += [tensor("lora_weights", weights.reshape(1, *weights.shape[-2:])),
                   tensor("lora_config", rows.reshape(1, *rows.shape[-2:]))]  # fmt: skip
    if arguments.lookahead_config:
        names = ("lookahead_window_size", "lookahead_ngram_size", "lookahead_verification_set_size")
        sizes = arguments.lookahead_config.strip("[]").split(",")
        if len(sizes) != 3 or not all(size.strip().isdigit() for size in sizes):
            sys.exit(f"--lookahead_config: got {arguments.lookahead_config!r}, must be three integers, as in 7,7,7")
        inputs += given([(name, int(size), np.int32) for name, size in zip(names, sizes, strict=True)])
    return inputs


def request_inputs(arguments, input_ids, end_id, pad_id):
    """The tensors of the request; those that upstream always sends come first."""
    inputs = [tensor("input_ids", np.array([input_ids], np.int32))]
    inputs += given([
        ("input_lengths", len(input_ids), np.int32),
        ("request_output_len", arguments.request_output_len, np.int32),
        ("streaming", arguments.streaming, bool),
        ("end_id", end_id, np.int32),
        ("pad_id", pad_id, np.int32),
        ("return_log_probs", arguments.return_log_probs, bool),
        ("runtime_top_k", arguments.top_k, np.int32),
        ("runtime_top_p", arguments.top_p, np.float32),
        ("return_context_logits", arguments.return_context_logits or None, bool),
        ("return_generation_logits", arguments.return_generation_logits or None, bool),
        ("return_perf_metrics", arguments.return_perf_metrics or None, bool),
        ("return_kv_cache_reuse_stats", arguments.return_kv_cache_reuse_stats or None, bool),
        ("num_return_sequences", arguments.num_return_sequences, np.int32),
    ])  # fmt: skip
    inputs += sampling(arguments)
    if arguments.draft_tokens_csv:
        draft = first_row(arguments.draft_tokens_csv, "--draft-tokens-csv")
        inputs.append(tensor("draft_input_ids", np.array([draft], np.int32)))
    if arguments.prompt_table_extra_id is not None:
        first = arguments.vocab_size if arguments.vocab_size is not None else len(input_ids)
        extra = [arguments.prompt_table_extra_id if i >= first else 0 for i in input_ids]
        inputs.append(tensor("prompt_table_extra_ids", np.array([extra], np.uint64)))
    return inputs + adapter_inputs(arguments)


def stop_inputs():
    integers = [(name, value, np.int32) for name, value in (("input_ids", -1), ("input_lengths", 0), ("request_output_len", 0))]
    return given([*integers, ("stop", True, bool)])


class Received:
    """The ids of each beam so far, and the arrays of the last answer that had any."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.ids = [[] for _ in range(arguments.beam_width)]
        self.arrays = {}
        self.ended_before_stop = False

    def take(self, result):
        if isinstance(result, InferenceServerException):
            if "CANCELLED" in str(result.status() or ""):
                print("Request is cancelled")
                return
            print("Received an error from server:")
            print(result)
            print(f"Encountered error: {result}")
            sys.exit(f"Encountered error: {result}")
        output_ids = result.as_numpy("output_ids")
        if output_ids is None:
            print("Got cancellation response from server")
            return
        names = [output.name for output in result.get_response().outputs]
        wanted = self.arguments.requested_outputs
        if wanted and set(names) != set(wanted):
            sys.exit(f"the answer has the outputs {sorted(names)}, asked for were {sorted(wanted)}")
        self.arrays = {name: result.as_numpy(name) for name in names}
        lengths = self.arrays.get("sequence_length")
        beams = [
            list(map(int, row[: int(lengths[0][beam])] if lengths is not None else row)) for beam, row in enumerate(output_ids[0])
        ]
        is_delta = self.arguments.streaming and self.arguments.beam_width == 1
        if is_delta:
            if beams[0]:
                print(beams[0], flush=True)
            self.ids[0] += beams[0]
        else:
            self.ids = beams


# Sent with every request, where the release has them.
ALWAYS = ("beam_width", "temperature", "streaming", "end_id", "pad_id", "runtime_top_k", "runtime_top_p")


def send(client, arguments, tensors, answers, received):
    droppable = ALWAYS if arguments.return_log_probs else (*ALWAYS, "return_log_probs")
    inputs = inputs_of(client, arguments.model_name, tensors, droppable)
    stop = inputs_of(client, arguments.model_name, stop_inputs())
    outputs = [grpcclient.InferRequestedOutput(name) for name in arguments.requested_outputs] or None
    options = {"outputs": outputs, "request_id": arguments.request_id, "parameters": {"Streaming": arguments.streaming}}
    stops = arguments.stop_after_ms > 0
    algorithm = arguments.grpc_compression_algorithm
    if arguments.streaming:
        client.start_stream(answers.callback, stream_timeout=arguments.stream_timeout, compression_algorithm=algorithm)
        client.async_stream_infer(arguments.model_name, inputs, **options)
        if stops:
            time.sleep(arguments.stop_after_ms / 1000)
            received.ended_before_stop = answers.has_ended()
            if not arguments.stop_via_request_cancel:
                client.async_stream_infer(arguments.model_name, stop, **{**options, "outputs": None})
        client.stop_stream(cancel_requests=stops and arguments.stop_via_request_cancel)
        for result in answers.rest():
            received.take(result)
        return
    options["compression_algorithm"] = algorithm
    call = client.async_infer(arguments.model_name, inputs, callback=answers.callback, **options)
    expected = 1
    if stops:
        time.sleep(arguments.stop_after_ms / 1000)
        received.ended_before_stop = answers.has_ended()
        if arguments.stop_via_request_cancel:
            call.cancel()
        else:
            client.async_infer(arguments.model_name, stop, callback=answers.callback, **{**options, "outputs": None})
            expected = 2
    for _ in range(expected):
        result = answers.next()
        print("Got completed request", flush=True)
        received.take(result)


def print_ids(name, ids):
    print(f"{name} sequence starts with: " if len(ids) > 256 else f"{name} sequence: ", ids[:256])


def print_answer(arguments, tokenizer, received, sequences, begin):
    """Text and ids of each beam; the text is that after `begin` ids."""
    for beam, ids in enumerate(sequences):
        if tokenizer is not None:
            print(f"Input: {arguments.text}")
            print(f"Output beam {beam}: {tokenizer.decode(ids[begin:])}")
        print_ids("Output", ids)
    arrays = received.arrays
    if arguments.return_log_probs:
        print(arrays.get("cum_log_probs"))
        print(arrays.get("output_log_probs"))
    for name in ("context_logits", "generation_logits"):
        if getattr(arguments, f"return_{name}") and arrays.get(name) is not None:
            print(f"{name}.shape: {arrays[name].shape}")
            print(f"{name}: {arrays[name]}")


def is_as_expected(arguments, ids, begin):
    expected = ids[:begin] + GPT2_ANSWER
    if arguments.output_tokens_csv:
        expected = first_row(arguments.output_tokens_csv, "--output-tokens-csv")
    equal = sum(a == b for a, b in zip(ids, expected, strict=False))
    passed = len(ids) == len(expected) and equal >= arguments.correctness_threshold * len(expected)
    print("expected_output_ids = ", expected)
    print("\n=====\n" + ("PASS!" if passed else "FAIL!") + "\n=====")
    return passed


def main():
    arguments = parse_arguments()
    tokenizer, end_id, pad_id = None, arguments.end_id, arguments.pad_id
    try:
        if arguments.tokenizer_dir:
            print("=========")
            tokenizer = Tokenizer(arguments.tokenizer_dir)
            [input_ids] = tokenizer.encode([arguments.text])
            end_id = tokenizer.end_id()
            pad_id = end_id
            print(f"Using pad_id:  {pad_id}\nUsing end_id:  {end_id}")
    except RuntimeError as error:
        sys.exit(f"--tokenizer-dir: {error}")
    if tokenizer is None:
        input_ids = GPT2_IDS
    if arguments.input_tokens_csv:
        input_ids = first_row(arguments.input_tokens_csv, "--input-tokens-csv")
    print_ids("Input", input_ids)
    inputs = request_inputs(arguments, input_ids, end_id, pad_id)
    answers, received = Answers(), Received(arguments)
    client = connect(
        arguments.url, arguments.verbose, ssl=arguments.ssl, root_certificates=arguments.root_certificates,
        private_key=arguments.private_key, certificate_chain=arguments.certificate_chain,
    )  # fmt: skip
    try:
        with client:
            send(client, arguments, inputs, answers, received)
    except InferenceServerException as error:
        received.take(error)
    begin = 0 if arguments.exclude_input_in_output else len(input_ids)
    sequences = [input_ids[:begin] + ids for ids in received.ids] if arguments.streaming else received.ids
    print_answer(arguments, tokenizer, received, sequences, begin)
    if received.ended_before_stop:
        print(f"The request ended within the {arguments.stop_after_ms} ms after which it was to be stopped")
    elif arguments.stop_after_ms > 0 and len(sequences[0]) - begin >= arguments.request_output_len:
        sys.exit(f"expect less than {arguments.request_output_len} output tokens, got {len(sequences[0]) - begin}")
    if arguments.check_output and not is_as_expected(arguments, sequences[0], begin):
        sys.exit(1)


if __name__ == "__main__":
    main()
