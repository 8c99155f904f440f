# SPDX-License-Identifier: Apache-2.0
"""Requests to the repository all_models/gpt: flags, tensors, and how many of them are sent at a time."""

import pathlib
import sys

import numpy as np
from tritonclient.utils import InferenceServerException

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from inflight_program import Tokenizer
from triton_requests import Answers, connect_by, given, inputs_of, tensor


def add_flags(parser):
    """Those that all tools of this folder have."""
    parser.add_argument("-v", "--verbose", action="store_true", help="print each request and answer")
    parser.add_argument("-u", "--url", help="address; localhost:8000 of HTTP or localhost:8001 of gRPC")
    parser.add_argument("-i", "--protocol", default="http", choices=["http", "grpc"], help="protocol")
    parser.add_argument("-c", "--concurrency", type=int, default=1, help="connections over HTTP")
    add_sampling(parser)


def add_sampling(parser):
    parser.add_argument("-beam", "--beam_width", type=int, default=1, help="beams of each request")
    parser.add_argument("-topk", "--topk", type=int, default=1, help="top-k")
    parser.add_argument("-topp", "--topp", type=float, default=0.0, help="top-p")
    parser.add_argument("-o", "--output_len", type=int, default=10, help="new tokens")


def add_tokenizer(parser):
    parser.add_argument("--tokenizer_dir", required=True, help="directory of the tokenizer")
    parser.add_argument("--tokenizer_type", default="auto", choices=["auto", "t5", "llama"], help="no effect: files say it")


def connect_as(arguments):
    return connect_by(arguments.protocol, arguments.url, arguments.concurrency, arguments.verbose)


def tokenizer_of(arguments):
    """The tokenizer and its end id; exits where it cannot be used."""
    tokenizer = Tokenizer(arguments.tokenizer_dir)
    try:
        tokenizer.encode([""])
        end_id = tokenizer.end_id()
    except RuntimeError as error:
        sys.exit(f"--tokenizer_dir: {error}")
    if end_id is None:
        sys.exit(f"--tokenizer_dir: {arguments.tokenizer_dir} names no end of text")
    return tokenizer, end_id


# What requests say of sampling beside the flags: name at tensorrt_llm, at the ensemble, value.
NEUTRAL = [
    ("temperature", "temperature", 1.0, np.float32), ("len_penalty", "length_penalty", 1.0, np.float32),
    ("repetition_penalty", "repetition_penalty", 1.0, np.float32), ("min_length", "min_length", 1, np.int32),
    ("presence_penalty", "presence_penalty", 0.0, np.float32), ("frequency_penalty", "frequency_penalty", 0.0, np.float32),
    ("random_seed", "random_seed", 0, np.uint64), ("output_log_probs", "output_log_probs", True, bool),
]  # fmt: skip
LATER = ("frequency_penalty",)  # from 0.8 on


def sampling_tensors(arguments, end_id, rows, of_ensemble=False, pad_id=None):
    """Those of shape [rows, 1] that every request has; the pad id is the end id unless another is given."""
    return given([
        ("pad_id", end_id if pad_id is None else pad_id, np.int32), ("end_id", end_id, np.int32),
        ("beam_width", arguments.beam_width, np.int32),
        ("top_k" if of_ensemble else "runtime_top_k", arguments.topk, np.int32),
        ("top_p" if of_ensemble else "runtime_top_p", arguments.topp, np.float32),
        *((text if of_ensemble else name, value, dtype) for name, text, value, dtype in NEUTRAL),
    ], rows)  # fmt: skip


def llm_tensors(arguments, ids, lengths, end_id, pad_id=None):
    """A request to tensorrt_llm: ids [rows, longest], lengths [rows, 1]."""
    rows = len(ids)
    return [tensor("input_ids", ids), tensor("input_lengths", lengths),
            *given([("request_output_len", arguments.output_len, np.int32)], rows),
            *sampling_tensors(arguments, end_id, rows, pad_id=pad_id)]  # fmt: skip


def send(client, model, tensors, count=1, at_once=False):
    """The answers to `count` equal requests, one after the other or all at once; InferenceServerException where one fails."""
    inputs = inputs_of(client, model, tensors, droppable=LATER)
    if not at_once:
        return [client.infer(model, inputs) for _ in range(count)]
    answers, handles = Answers(), []
    for _ in range(count):
        if hasattr(client, "start_stream"):  # gRPC
            client.async_infer(model, inputs, callback=answers.callback)
        else:
            handles.append(client.async_infer(model, inputs))
    results = [handle.get_result() for handle in handles] or [answers.next() for _ in range(count)]
    for result in results:
        if isinstance(result, InferenceServerException):
            raise result
    return results
