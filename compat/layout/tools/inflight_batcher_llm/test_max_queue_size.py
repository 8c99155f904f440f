#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends requests to tensorrt_llm all at once, and expects that the queue refuses at least one of them."""

import argparse
import pathlib
import sys

import numpy as np
from tritonclient.utils import InferenceServerException

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from triton_requests import Answers, connect_by, given, inputs_of, tensor

REFUSALS = ("Maximum queue size of", "Exceeds maximum queue size")


def parse_arguments():
    parser = argparse.ArgumentParser(description="Fills the queue of tensorrt_llm.")
    parser.add_argument("-v", "--verbose", action="store_true", help="print each request and answer")
    parser.add_argument("-u", "--url", help="address; localhost:8000 of HTTP or localhost:8001 of gRPC")
    parser.add_argument("-p", "--protocol", default="http", choices=["http", "grpc"], help="protocol")
    parser.add_argument("--num-requests", type=int, required=True, help="requests at once")
    parser.add_argument("--request-output-len", type=int, default=16, help="new tokens of each")
    parser.add_argument("--end-id", type=int, default=50256, help="end id")
    parser.add_argument("--pad-id", type=int, default=50256, help="pad id")
    parser.add_argument("--model-name", "--tensorrt-llm-model-name", default="tensorrt_llm", help="the model")
    parser.add_argument("-t", "--stream-timeout", type=float, help="seconds that a request over gRPC may last")
    arguments = parser.parse_args()
    if arguments.num_requests < 1:
        parser.error(f"--num-requests: got {arguments.num_requests}, must be at least 1")
    return arguments


def send_all(client, arguments):
    """The answers and errors."""
    ids = np.array([[3, 5, 7, 11]], np.int32)
    inputs = [tensor("input_ids", ids), *given([
        ("input_lengths", ids.size, np.int32), ("request_output_len", arguments.request_output_len, np.int32),
        ("end_id", arguments.end_id, np.int32), ("pad_id", arguments.pad_id, np.int32)])]  # fmt: skip
    inputs = inputs_of(client, arguments.model_name, inputs)
    answers, handles = Answers(), []
    for number in range(arguments.num_requests):
        if arguments.protocol == "http":
            handles.append(client.async_infer(arguments.model_name, inputs, request_id=str(number)))
        else:
            client.async_infer(arguments.model_name, inputs, callback=answers.callback, request_id=str(number),
                               client_timeout=arguments.stream_timeout)  # fmt: skip
    for handle in handles:
        try:
            answers.callback(handle.get_result(), None)
        except InferenceServerException as error:
            answers.callback(None, error)
    return [answers.next() for _ in range(arguments.num_requests)]


def main():
    arguments = parse_arguments()
    client = connect_by(arguments.protocol, arguments.url, arguments.num_requests, arguments.verbose)
    results = send_all(client, arguments)
    errors = [result for result in results if isinstance(result, InferenceServerException)]
    others = [error for error in errors if not any(text in str(error) for text in REFUSALS)]
    if others:
        sys.exit(f"Received an error from server:\n{others[0]}")
    print(f"{len(errors)} of {len(results)} requests were refused by the queue")
    if not errors:
        sys.exit("the queue refused none: it is larger than max_queue_size, or too few requests were sent")


if __name__ == "__main__":
    main()
