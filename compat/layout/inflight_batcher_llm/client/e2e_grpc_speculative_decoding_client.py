#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speculative decoding by the client: a draft model proposes tokens, a target model takes those that it would have chosen.

Both models are non-decoupled and answer with the prompt before the new tokens; each round sends the whole sequence.
"""

import argparse
import pathlib
import sys

import numpy as np
from tritonclient.utils import InferenceServerException

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

from triton_requests import add_sampling, connect, given, inputs_of, sampling, tensor, texts


def add_speculative(parser):
    """The flags that the test of speculative decoding has too."""
    parser.add_argument("-v", "--verbose", action="store_true", help="print each request and answer")
    parser.add_argument("--url-target", required=True, help="address of gRPC of the target model")
    parser.add_argument("--url-draft", help="that of the draft model; the target's where it is not given")
    parser.add_argument("--preprocessor-model-name", default="preprocessing", help="model that makes ids, at the target")
    parser.add_argument("--postprocessor-model-name", default="postprocessing", help="model that makes text, at the target")
    parser.add_argument("--draft-tensorrt-llm-model-name", default="tensorrt_llm", help="the draft model")
    parser.add_argument("--target-tensorrt-llm-model-name", default="tensorrt_llm", help="the target model")
    add_sampling(parser)
    parser.add_argument("-o", "--output-len", type=int, default=100, help="new tokens at most")
    parser.add_argument("--num-draft-tokens", type=int, default=5, help="proposed tokens of a round")
    parser.add_argument("--stop-words", nargs="+", default=[], help="words that end the text")
    parser.add_argument("--bad-words", nargs="+", default=[], help="words that do not come")
    parser.add_argument("--end-id", type=int, help="end id; else the tokenizer's")
    parser.add_argument("--pad-id", type=int, help="pad id; else the tokenizer's")


def preprocess(client, arguments, prompt):
    """The answer of preprocessing for one text."""
    inputs = [texts("QUERY", [prompt]), *given([
        ("REQUEST_OUTPUT_LEN", arguments.output_len, np.int32),
        ("END_ID", arguments.end_id, np.int32),
        ("PAD_ID", arguments.pad_id, np.int32),
    ])]  # fmt: skip
    for name, words in (("BAD_WORDS_DICT", arguments.bad_words), ("STOP_WORDS_DICT", arguments.stop_words)):
        inputs.append(texts(name, words or [""]))
    return client.infer(arguments.preprocessor_model_name, inputs_of(client, arguments.preprocessor_model_name, inputs))


def postprocess(client, arguments, ids):
    inputs = [tensor("TOKENS_BATCH", np.array([[ids]], np.int32)),
              *given([("SEQUENCE_LENGTH", len(ids), np.int32)])]  # fmt: skip
    return (
        client.infer(arguments.postprocessor_model_name, inputs_of(client, arguments.postprocessor_model_name, inputs))
        .as_numpy("OUTPUT")
        .flat[0]
        .decode()
    )


def words_of(array):
    """The words of a list of ids and their end offsets, [1, 2, n]."""
    ids, ends = (row.tolist() for row in array[0])
    ends = [end for end in ends if end >= 0]
    return [ids[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


class Round:
    """Requests to draft and target with what preprocessing said of the text."""

    def __init__(self, arguments, prepared, request_id):
        self.arguments, self.request_id = arguments, request_id
        get = prepared.as_numpy
        self.prompt = get("INPUT_ID")[0][: int(get("REQUEST_INPUT_LEN").flat[0])].tolist()
        self.stop_words = words_of(get("STOP_WORDS_IDS"))
        self.kept = [tensor("bad_words_list", get("BAD_WORDS_IDS")),
                     tensor("stop_words_list", get("STOP_WORDS_IDS"))]  # fmt: skip
        for name, output in (("end_id", "OUT_END_ID"), ("pad_id", "OUT_PAD_ID")):
            if get(output) is not None:
                self.kept.append(tensor(name, get(output)))

    def ask(self, client, model, ids, length, draft=(), draft_logits=None, wants_logits=False):
        """The sequence that the model makes of `ids`, the prompt in front, and the logits of its new tokens if wanted."""
        inputs = [tensor("input_ids", np.array([ids], np.int32)), *given([
            ("input_lengths", len(ids), np.int32), ("request_output_len", length, np.int32),
        ]), *self.kept, *sampling(self.arguments)]  # fmt: skip
        if draft:
            inputs.append(tensor("draft_input_ids", np.array([draft], np.int32)))
        if draft_logits is not None:
            inputs.append(tensor("draft_logits", draft_logits[np.newaxis]))
        inputs.extend(given([("return_generation_logits", wants_logits or None, bool)]))
        answer = client.infer(model, inputs_of(client, model, inputs), request_id=self.request_id)
        made = answer.as_numpy("output_ids")[0][0][: int(answer.as_numpy("sequence_length").flat[0])].tolist()
        return made, answer.as_numpy("generation_logits")[0][0] if wants_logits else None


def speculate(target, draft, arguments, prompt, request_id="1"):
    """The text of prompt and answer."""
    steps = Round(arguments, preprocess(target, arguments, prompt), request_id)
    by_logits = getattr(arguments, "return_draft_model_draft_logits", False)
    shows_logits = getattr(arguments, "return_target_model_accepted_token_logits", False)
    ids, most = steps.prompt, len(steps.prompt) + arguments.output_len
    while True:
        count = min(arguments.num_draft_tokens, most - len(ids) - 1)
        proposed, whole_draft, logits = [], None, None
        if count > 0:
            whole_draft, logits = steps.ask(
                draft, arguments.draft_tensorrt_llm_model_name, ids, count, wants_logits=by_logits
            )
            proposed = whole_draft[len(ids) :]
        if logits is not None:
            logits = logits[: len(proposed)] if proposed else None  # an end id has a row too
        before = ids
        ids, accepted_logits = steps.ask(
            target, arguments.target_tensorrt_llm_model_name, ids, len(proposed) + 1, proposed, logits, shows_logits
        )
        if shows_logits:
            print(f"Logits of accepted tokens: {accepted_logits.shape}")
        ends_in_word = any(word and ids[-len(word) :] == word for word in steps.stop_words)
        if len(ids) >= most or ids in (before, whole_draft) or ends_in_word:
            return postprocess(target, arguments, ids)


def main():
    parser = argparse.ArgumentParser(description="Speculative decoding by the client.")
    add_speculative(parser)
    parser.add_argument("-p", "--prompt", required=True, help="the text")
    parser.add_argument("--request-id", default="1", help="id of each request, one after the other")
    parser.add_argument("--return-draft-model-draft-logits", action="store_true", help="accept by the draft's logits")
    parser.add_argument("--return-target-model-accepted-token-logits", action="store_true", help="ask for the target's logits")
    arguments = parser.parse_args()
    if arguments.return_draft_model_draft_logits and arguments.return_target_model_accepted_token_logits:
        parser.error("--return-draft-model-draft-logits and --return-target-model-accepted-token-logits: give one of them")
    with (
        connect(arguments.url_target, arguments.verbose) as target,
        connect(arguments.url_draft or arguments.url_target, arguments.verbose) as draft,
    ):
        try:
            print(speculate(target, draft, arguments, arguments.prompt, arguments.request_id))
        except InferenceServerException as error:
            sys.exit(f"Received an error from server:\n{error}")


if __name__ == "__main__":
    main()
