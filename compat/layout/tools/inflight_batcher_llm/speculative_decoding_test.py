#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the texts of the ensemble with those of speculative decoding, by BLS or by a loop of the client."""

import argparse
import pathlib
import sys

import numpy as np
from tritonclient.utils import InferenceServerException

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "inflight_batcher_llm/client"))

from e2e_grpc_speculative_decoding_client import add_speculative, speculate
from end_to_end_grpc_client import ask
from prompts import read_dataset
from triton_requests import connect, given, sampling, texts


def text_request(arguments, prompt):
    inputs = [texts("text_input", [prompt]), *sampling(arguments), *given([
        ("max_tokens", arguments.output_len, np.int32), ("stream", False, bool), ("end_id", arguments.end_id, np.int32),
        ("pad_id", arguments.pad_id, np.int32), ("return_context_logits", arguments.return_context_logits or None, bool),
        ("return_generation_logits", arguments.return_generation_logits or None, bool)])]  # fmt: skip
    for name in ("stop_words", "bad_words"):
        if getattr(arguments, name):
            inputs.append(texts(name, getattr(arguments, name)))
    return inputs


def text_of(results):
    """The text of a stream's only answer."""
    [result] = results
    if isinstance(result, InferenceServerException):
        raise result
    return result.as_numpy("text_output").flat[0].decode()


def by_bls(client, arguments, prompt):
    inputs = text_request(arguments, prompt) + given([
        ("num_draft_tokens", arguments.num_draft_tokens, np.int32),
        ("use_draft_logits", arguments.use_draft_logits or None, bool)])  # fmt: skip
    return text_of(ask(client, arguments.bls_speculative_tensorrt_llm_model_name, inputs))


def parse_arguments():
    parser = argparse.ArgumentParser(description="Compares speculative decoding with the ensemble.")
    add_speculative(parser)
    parser.add_argument("--url-control", help="address of the ensemble that is compared with; the target's by default")
    parser.add_argument("--dataset", required=True, help="file of prompts")
    parser.add_argument("--max-input-len", type=int, required=True, help="longer prompts are left out")
    parser.add_argument("--execute-bls-speculative-decoding", action="store_true", help="by BLS in place of the client's loop")
    parser.add_argument("--bls-speculative-tensorrt-llm-model-name", default="tensorrt_llm_bls", help="the BLS model")
    parser.add_argument("--use-draft-logits", action="store_true", help="BLS accepts by the draft's logits")
    parser.add_argument("--return-context-logits", action="store_true", help="ask for the prompt's logits")
    parser.add_argument("--return-generation-logits", action="store_true", help="ask for the answer's logits")
    parser.add_argument("--disable-output-comparison", action="store_true", help="only run, do not compare")
    arguments = parser.parse_args()
    if arguments.url_draft is None and not arguments.execute_bls_speculative_decoding:
        parser.error("--url-draft is needed, unless --execute-bls-speculative-decoding")
    return arguments


def main():
    arguments = parse_arguments()
    pairs = read_dataset(arguments.dataset, arguments.max_input_len)
    failed = 0
    try:
        with (
            connect(arguments.url_target, arguments.verbose) as target,
            connect(arguments.url_draft or arguments.url_target, arguments.verbose) as draft,
            connect(arguments.url_control or arguments.url_target, arguments.verbose) as control,
        ):
            for number, (prompt, _) in enumerate(pairs):
                expected = text_of(ask(control, "ensemble", text_request(arguments, prompt)))
                if arguments.execute_bls_speculative_decoding:
                    got = by_bls(target, arguments, prompt)
                else:
                    got = speculate(target, draft, arguments, prompt)
                if got == expected or arguments.disable_output_comparison:
                    print(f"{number}: Outputs match" if got == expected else f"{number}: Outputs not compared")
                    continue
                failed += 1
                print(f"{number}: Outputs don't match\nPrompt:\n{prompt}\nOutput of the ensemble:\n{expected}")
                print(f"Output of speculative decoding:\n{got}")
    except InferenceServerException as error:
        sys.exit(f"Received an error from server:\n{error}")
    print(f"failed/total: {failed}/{len(pairs)}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
