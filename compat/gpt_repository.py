# SPDX-License-Identifier: Apache-2.0
"""all_models/gpt: the older repository, whose LLM was a Python model of the runtime session; launch_triton_server.py serves it
where no other is named.

The tables say what all_models/gpt/*/config.pbtxt of triton-inference-server/tensorrtllm_backend declares at v0.10.0.
"""

import pathlib

from release_repositories import ALWAYS, io_text, parameters_text, step_text

FIRST = 5


def rows(*table):
    """Rows of release_repositories' tables, of every release."""
    return [(name, datatype, dims, FIRST, ALWAYS, flags) for name, datatype, dims, flags in table]


SAMPLING = [  # of the LLM, with the ensemble's names where they differ
    ("beam_width", "INT32", None), ("temperature", "FP32", None), ("runtime_top_k", "INT32", "top_k"),
    ("runtime_top_p", "FP32", "top_p"), ("len_penalty", "FP32", "length_penalty"), ("repetition_penalty", "FP32", None),
    ("min_length", "INT32", None), ("presence_penalty", "FP32", None), ("frequency_penalty", "FP32", None),
    ("random_seed", "UINT64", None), ("output_log_probs", "BOOL", None),
]  # fmt: skip
PREPROCESSING = (
    rows(("QUERY", "STRING", "-1", "r"), ("BAD_WORDS_DICT", "STRING", "-1", "r"), ("STOP_WORDS_DICT", "STRING", "-1", "r"),
         ("REQUEST_OUTPUT_LEN", "INT32", "-1", "r")),
    rows(("INPUT_ID", "INT32", "-1", ""), ("REQUEST_INPUT_LEN", "INT32", "1", ""), ("BAD_WORDS_IDS", "INT32", "2, -1", ""),
         ("STOP_WORDS_IDS", "INT32", "2, -1", ""), ("REQUEST_OUTPUT_LEN", "INT32", "-1", ""),
         ("PROMPT_LEARNING_TASK_NAME_IDS", "INT32", "1", "")),
)  # fmt: skip
LLM = (
    rows(("input_ids", "INT32", "-1", "r"), ("input_lengths", "INT32", "1", "rs"), ("request_output_len", "INT32", "-1", "r"),
         ("end_id", "INT32", "1", "rs"), ("pad_id", "INT32", "1", "rs"),
         *((name, datatype, "1", "s") for name, datatype, _ in SAMPLING)),
    rows(("output_ids", "INT32", "-1, -1", ""), ("log_probs", "FP32", "-1, -1", "")),
)  # fmt: skip
POSTPROCESSING = (rows(("TOKENS_BATCH", "INT32", "-1, -1", "r")), rows(("OUTPUT", "STRING", "-1, -1", "")))
ENSEMBLE = (
    rows(("text_input", "STRING", "-1", "r"), ("max_tokens", "INT32", "-1", "r"), ("bad_words", "STRING", "-1", "r"),
         ("stop_words", "STRING", "-1", "r"), ("end_id", "INT32", "1", ""), ("pad_id", "INT32", "1", ""),
         *((text or name, datatype, "1", "") for name, datatype, text in SAMPLING)),
    rows(("text_output", "STRING", "-1, -1", "")),
)  # fmt: skip
STEPS = [
    step_text("preprocessing",
              [("QUERY", "text_input"), ("REQUEST_OUTPUT_LEN", "max_tokens"), ("BAD_WORDS_DICT", "bad_words"),
               ("STOP_WORDS_DICT", "stop_words")],
              [(name, f"_{name}") for name in ("REQUEST_INPUT_LEN", "INPUT_ID", "REQUEST_OUTPUT_LEN")]),
    step_text("tensorrt_llm",
              [("input_ids", "_INPUT_ID"), ("input_lengths", "_REQUEST_INPUT_LEN"),
               ("request_output_len", "_REQUEST_OUTPUT_LEN"), ("end_id", "end_id"), ("pad_id", "pad_id"),
               *((name, text or name) for name, _, text in SAMPLING)],
              [("output_ids", "_TOKENS_BATCH")]),
    step_text("postprocessing", [("TOKENS_BATCH", "_TOKENS_BATCH")], [("OUTPUT", "text_output")]),
]  # fmt: skip
MODELS = {
    "preprocessing": (PREPROCESSING, [("tokenizer_dir", "${tokenizer_dir}")]),
    "tensorrt_llm": (LLM, [("engine_dir", "${engine_dir}"), ("FORCE_CPU_ONLY_INPUT_TENSORS", "no")]),
    "postprocessing": (POSTPROCESSING, [("tokenizer_dir", "${tokenizer_dir}")]),
}


def config_texts():
    """config.pbtxt of each model, as a template."""
    texts = {}
    for name, ((inputs, outputs), parameters) in MODELS.items():
        texts[name] = (
            f'name: "{name}"\nbackend: "python"\nmax_batch_size: 1024\n'
            + io_text("input", inputs, FIRST)
            + io_text("output", outputs, FIRST)
            + parameters_text([(key, value, FIRST, ALWAYS) for key, value in parameters], FIRST)
            + "instance_group [ { count: 1, kind: KIND_CPU } ]\n"
        )
    texts["ensemble"] = (
        'name: "ensemble"\nplatform: "ensemble"\nmax_batch_size: 1024\n'
        + io_text("input", ENSEMBLE[0], FIRST)
        + io_text("output", ENSEMBLE[1], FIRST)
        + "ensemble_scheduling {\n  step [\n" + ",\n".join(STEPS) + "\n  ]\n}\n"
    )  # fmt: skip
    return texts


def write_gpt_repository(root):
    """The four models under `root`, each with an empty version directory 1."""
    for model, text in config_texts().items():
        (pathlib.Path(root) / model / "1").mkdir(parents=True)
        (pathlib.Path(root) / model / "config.pbtxt").write_text(text)
