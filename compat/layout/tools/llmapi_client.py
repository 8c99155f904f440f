#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends one text to a model of the LLM API (all_models/llmapi) over gRPC, and prints the text of the answer."""

import argparse
import pathlib
import sys
import time

import numpy as np
from tritonclient.utils import InferenceServerException

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from triton_requests import Answers, connect, declared, inputs_of, tensor

# What a stop is answered by: the status of a call, or on a stream, which has none, the text.
CANCELLED = ("StatusCode.CANCELLED", "Request cancelled by client")


def parse_arguments():
    parser = argparse.ArgumentParser(description="Sends one text to a model of the LLM API.")
    parser.add_argument("-v", "--verbose", action="store_true", help="print each request and answer")
    parser.add_argument("-u", "--url", default="localhost:8001", help="address of gRPC")
    parser.add_argument("--model-name", default="tensorrt_llm", help="the model")
    parser.add_argument("--text", default="Born in north-east France, Soyer trained as a", help="the text that is gone on with")
    parser.add_argument("--request-output-len", type=int, default=16, help="new tokens at most")
    parser.add_argument("--request-id", default="1", help="id of the request")
    parser.add_argument("-S", "--streaming", action="store_true", help="an answer for each step; the model has to be decoupled")
    parser.add_argument("-t", "--stream-timeout", type=float, help="seconds that the answer may take")
    parser.add_argument("--stop-after-ms", type=int, default=0, help="end the request early, after so many milliseconds")
    parser.add_argument("--stop-via-request-cancel", action="store_true", help="by a cancel, not by a stop of its id")
    parser.add_argument("--return-perf-metrics", action="store_true", help="ask for times and counts; releases from 1.0")
    parser.add_argument("-C", "--grpc-compression-algorithm", choices=["deflate", "gzip"], help="compresses the request")
    parser.add_argument("-s", "--ssl", action="store_true", help="TLS")
    parser.add_argument("-r", "--root-certificates", help="PEM file of who signs the server's certificate")
    parser.add_argument("-p", "--private-key", help="PEM file of the client's key")
    parser.add_argument("-x", "--certificate-chain", help="PEM file of the client's certificate")
    arguments = parser.parse_args()
    if arguments.stop_via_request_cancel and arguments.stop_after_ms <= 0:
        parser.error("--stop-via-request-cancel: needs --stop-after-ms, which says when")
    return arguments


def request_tensors(arguments):
    tensors = [
        tensor("text_input", np.array([arguments.text.encode()], dtype=object)),
        tensor("sampling_param_max_tokens", np.array([arguments.request_output_len], np.int32)),
    ]
    if arguments.streaming:
        tensors.append(tensor("streaming", np.array([True])))
    if arguments.return_perf_metrics:
        tensors.append(tensor("sampling_param_return_perf_metrics", np.array([True])))
    return tensors


def send(client, arguments, answers):
    """Begins the request; returns what cancels it."""
    inputs = inputs_of(client, arguments.model_name, request_tensors(arguments))
    options = {"request_id": arguments.request_id}
    if arguments.streaming:
        client.start_stream(
            answers.callback, stream_timeout=arguments.stream_timeout,
            compression_algorithm=arguments.grpc_compression_algorithm,
        )  # fmt: skip
        client.async_stream_infer(arguments.model_name, inputs, enable_empty_final_response=True, **options)
        return lambda: client.stop_stream(cancel_requests=True)
    call = client.async_infer(
        arguments.model_name, inputs, answers.callback, client_timeout=arguments.stream_timeout,
        compression_algorithm=arguments.grpc_compression_algorithm, **options,
    )  # fmt: skip
    return call.cancel


def stop(client, arguments, answers):
    """Asks for the end of the request by its id. The answer that comes first, to this or to the request, is shown."""
    tensors = [tensor("text_input", np.array([b""], dtype=object)), tensor("stop", np.array([True]))]
    inputs = inputs_of(client, arguments.model_name, tensors)
    if arguments.streaming:
        client.async_stream_infer(arguments.model_name, inputs, request_id=arguments.request_id)
    else:
        client.async_infer(arguments.model_name, inputs, answers.callback, request_id=arguments.request_id)


def is_last(result):
    """Of its request: an error, the answer of a call, or what a stream ends with."""
    if isinstance(result, InferenceServerException):
        return True
    final = result.get_response().parameters.get("triton_final_response")
    return final is None or final.bool_param


def show(client, arguments, result):
    """Prints one answer; raises what is an error but for a cancel."""
    print("Got completed request", flush=True)
    if isinstance(result, InferenceServerException):
        if CANCELLED[0] == result.status() or CANCELLED[1] in result.message():
            return print("Request is cancelled")
        print("Received an error from server:")
        print(result)
        raise result
    text = result.as_numpy("text_output")
    if text is not None:
        print(f"Output text: {text.flat[0].decode()}")
    if arguments.return_perf_metrics:
        for name in declared(client, arguments.model_name)[1]:
            values = result.as_numpy(name) if name.endswith(("_time_ns", "_rate", "_tokens", "_block", "_blocks")) else None
            if values is not None:
                print(f"{name}: {values.flat[0]}")
    return None


def main():
    arguments = parse_arguments()
    tls = {name: getattr(arguments, name) for name in ("root_certificates", "private_key", "certificate_chain")}
    try:
        with connect(arguments.url, arguments.verbose, ssl=arguments.ssl, **tls) as client:
            answers = Answers()
            cancel = send(client, arguments, answers)
            if arguments.stop_after_ms > 0:
                time.sleep(arguments.stop_after_ms / 1000)
                cancel() if arguments.stop_via_request_cancel else stop(client, arguments, answers)
            while True:
                result = answers.next()
                if isinstance(result, InferenceServerException) or result.get_response().outputs:  # else the end of a stream
                    show(client, arguments, result)
                if is_last(result):
                    break
    except (InferenceServerException, OSError) as error:
        print(f"Encountered error: {error}")
        sys.exit(f"Encountered error: {error}")


if __name__ == "__main__":
    main()
