# SPDX-License-Identifier: Apache-2.0
"""`tensorrt_llm_bls` for Triton's Python backend: preprocessing, our plug-in and postprocessing in one call.

A stream's texts are those of all ids so far: each response has what the one before lacked, or with `accumulate_tokens` the
whole. Where its client leaves, the call of `tensorrt_llm` is stopped. Speculative decoding is for our own server, which has
this model built in and does not run this file.
"""

import json
import uuid

import numpy as np
import triton_python_backend_utils as pb_utils

SAME_NAME = (
    "temperature", "repetition_penalty", "min_length", "presence_penalty", "frequency_penalty", "random_seed",
    "return_log_probs", "return_context_logits", "return_generation_logits", "beam_width", "num_return_sequences",
    "early_stopping", "beam_search_diversity_rate", "lora_task_id", "lora_weights", "lora_config",
    "prompt_embedding_table", "prompt_vocab_size", "exclude_input_in_output", "return_kv_cache_reuse_stats",
    "return_perf_metrics", "return_num_input_tokens", "return_num_output_tokens", "guided_decoding_guide_type",
    "guided_decoding_guide", "min_tokens", "seed",
)  # fmt: skip
RENAMED = {
    "top_k": "runtime_top_k", "top_p": "runtime_top_p", "length_penalty": "len_penalty", "stream": "streaming",
    "max_tokens": "request_output_len", "prompt_table_extra_id": "prompt_table_extra_ids",
}  # fmt: skip
PREPROCESSED = {
    "INPUT_ID": "input_ids", "REQUEST_INPUT_LEN": "input_lengths", "BAD_WORDS_IDS": "bad_words_list",
    "STOP_WORDS_IDS": "stop_words_list", "EMBEDDING_BIAS": "embedding_bias", "OUT_END_ID": "end_id", "OUT_PAD_ID": "pad_id",
}  # fmt: skip
TO_PREPROCESSING = {
    "text_input": "QUERY", "max_tokens": "REQUEST_OUTPUT_LEN", "bad_words": "BAD_WORDS_DICT", "stop_words": "STOP_WORDS_DICT",
    "embedding_bias_words": "EMBEDDING_BIAS_WORDS", "embedding_bias_weights": "EMBEDDING_BIAS_WEIGHTS", "end_id": "END_ID",
    "pad_id": "PAD_ID",
}  # fmt: skip
REFUSED = (
    "num_draft_tokens", "decoder_text_input", "image_input", "image_bytes_input", "image_url_input", "video_bytes_input",
)  # fmt: skip
REUSED = ("kv_cache_reused_blocks", "kv_cache_alloc_new_blocks", "kv_cache_alloc_total_blocks")
FACTS = {  # outputs that are there where an input asks for them
    "return_kv_cache_reuse_stats": REUSED,
    "return_perf_metrics": (
        *REUSED, "arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns", "acceptance_rate",
        "total_accepted_draft_tokens", "total_draft_tokens",
    ),
    "return_num_input_tokens": ("num_input_tokens",),
    "return_num_output_tokens": ("num_output_tokens",),
}  # fmt: skip


def parameter(config, key, default=""):
    value = config.get("parameters", {}).get(key, {}).get("string_value", "").strip()
    return default if not value or value.startswith("${") else value


def checked(response):
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}


def call(model, inputs, outputs):
    tensors = [pb_utils.Tensor(name, value) for name, value in inputs.items()]
    request = pb_utils.InferenceRequest(model_name=model, inputs=tensors, requested_output_names=list(outputs))
    return checked(request.exec())


class Texts:
    """The text of one request so far, by row of its output."""

    def __init__(self, accumulates, streams):
        self.accumulates, self.streams = accumulates, streams
        self.ids, self.sent = None, None

    def of(self, outputs):
        ids, lengths = outputs["output_ids"], outputs["sequence_length"]
        if self.streams:
            new = [list(ids[0, beam, :length]) for beam, length in enumerate(lengths[0])]
            self.ids = new if self.ids is None else [old + more for old, more in zip(self.ids, new, strict=True)]
            lengths = np.array([[len(row) for row in self.ids]], np.int32)
            ids = np.zeros((1, len(self.ids), max(1, lengths.max())), np.int32)
            for beam, row in enumerate(self.ids):
                ids[0, beam, : len(row)] = row
        whole = call("postprocessing", {"TOKENS_BATCH": ids, "SEQUENCE_LENGTH": lengths}, ["OUTPUT"])["OUTPUT"]
        if not self.streams or self.accumulates:
            return whole
        texts = [text.decode(errors="ignore").rstrip("\ufffd") for text in whole]
        before = self.sent or [""] * len(texts)
        # A tokenizer with byte fallback may have each byte of a run, also what was sent of it, as U+FFFD until all of
        # it is there.
        self.sent = [text if text.startswith(old) else old for text, old in zip(texts, before, strict=True)]
        return np.array([text[len(old) :].encode() for text, old in zip(self.sent, before, strict=True)], object)


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.decoupled = pb_utils.using_decoupled_model_transaction_policy(config)
        self.llm = parameter(config, "tensorrt_llm_model_name", "tensorrt_llm")
        self.accumulates = parameter(config, "accumulate_tokens", "false").lower() in ("true", "yes", "1", "t")
        self.outputs = {each["name"] for each in config["output"]}

    def execute(self, requests):
        answers = []
        for request in requests:
            sender = request.get_response_sender() if self.decoupled else None
            try:
                for response in self.responses(request):
                    answers.append(response) if sender is None else sender.send(response)
            except pb_utils.TritonModelException as error:
                response = pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
                answers.append(response) if sender is None else sender.send(response)
            if sender is not None:
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None if self.decoupled else answers

    def llm_inputs(self, given):
        prepared = call(
            "preprocessing", {to: given[name] for name, to in TO_PREPROCESSING.items() if name in given}, PREPROCESSED
        )
        inputs = {to: prepared[name] for name, to in PREPROCESSED.items()}
        inputs |= {to: given[name] for name, to in RENAMED.items() if name in given}
        inputs |= {name: given[name] for name in SAME_NAME if name in given}
        # Scalars lose their dimension beside the batch's on the way into this model; the LLM declares it.
        return {name: value.reshape(-1, 1) if value.ndim == 1 else value for name, value in inputs.items()}

    def call_llm(self, inputs, outputs, request_id):
        request = pb_utils.InferenceRequest(
            model_name=self.llm,
            request_id=request_id,  # of this call alone: `stop` ends all that have it
            inputs=[pb_utils.Tensor(name, value) for name, value in inputs.items()],
            requested_output_names=outputs,
        )
        return request.exec(decoupled=True) if self.decoupled else [request.exec()]

    def stop(self, inputs, request_id):
        for _ in self.call_llm(inputs | {"stop": np.array([[True]])}, ["output_ids", "sequence_length"], request_id):
            pass

    def responses(self, request):
        given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        for name in REFUSED:
            if name in given and given[name].any():
                raise pb_utils.TritonModelException(f"{name}: this model has no support for it")
        if len(given["text_input"]) != 1:
            raise pb_utils.TritonModelException(f"text_input: got {len(given['text_input'])} rows, must be 1")
        texts = Texts(self.accumulates, bool(given.get("stream", np.zeros(1)).any()))
        passed_on = self.outputs - {"text_output"}
        asked_for = {fact for name, facts in FACTS.items() if name in given and given[name].any() for fact in facts}
        wanted = [
            "output_ids",
            "sequence_length",
            *(passed_on & {"cum_log_probs", "output_log_probs", "context_logits", "generation_logits", *asked_for}),
        ]
        inputs, request_id = self.llm_inputs(given), str(uuid.uuid4())
        answers = self.call_llm(inputs, wanted, request_id)
        for answer in answers:
            if request.is_cancelled():
                self.stop(inputs, request_id)
                return
            if not answer.has_error() and not answer.output_tensors():
                continue  # the end of the stream, which says nothing
            outputs = checked(answer)
            tensors = [pb_utils.Tensor("text_output", texts.of(outputs))]
            tensors += [pb_utils.Tensor(name, value) for name, value in outputs.items() if name in passed_on]
            yield pb_utils.InferenceResponse(output_tensors=tensors)
