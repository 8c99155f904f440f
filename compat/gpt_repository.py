# SPDX-License-Identifier: Apache-2.0
"""all_models/gpt: the older repository, whose LLM was a Python model of the runtime session; launch_triton_server.py serves it
where no other is named.

The tables say what all_models/gpt/*/config.pbtxt of triton-inference-server/tensorrtllm_backend declares at the tags v0.5.0
to v0.19.0.
"""

import pathlib

from release_repositories import ALWAYS, fill_template, io_text, of_release, parameters_text, step_text

FIRST = 5


def rows(*table):
    """Rows of release_repositories' tables: of every release, or those of COUNT of each release in its type."""
    found = []
    for name, datatype, dims, flags in table:
        if datatype == "COUNT":
            found += [(name, "UINT32", dims, FIRST, 6, flags), (name, "INT32", dims, 7, ALWAYS, flags)]
        else:
            found.append((name, datatype, dims, 8 if name == "frequency_penalty" else FIRST, ALWAYS, flags))
    return found


SAMPLING = [  # of the LLM, with the ensemble's names where they differ
    ("beam_width", "COUNT", None), ("temperature", "FP32", None), ("runtime_top_k", "COUNT", "top_k"),
    ("runtime_top_p", "FP32", "top_p"), ("len_penalty", "FP32", "length_penalty"), ("repetition_penalty", "FP32", None),
    ("min_length", "COUNT", None), ("presence_penalty", "FP32", None), ("frequency_penalty", "FP32", None),
    ("random_seed", "UINT64", None), ("output_log_probs", "BOOL", None),
]  # fmt: skip
PREPROCESSING = (
    rows(("QUERY", "STRING", "-1", "r"), ("BAD_WORDS_DICT", "STRING", "-1", "r"), ("STOP_WORDS_DICT", "STRING", "-1", "r"),
         ("REQUEST_OUTPUT_LEN", "COUNT", "-1", "r")),
    rows(("INPUT_ID", "INT32", "-1", ""), ("REQUEST_INPUT_LEN", "INT32", "1", ""), ("BAD_WORDS_IDS", "INT32", "2, -1", ""),
         ("STOP_WORDS_IDS", "INT32", "2, -1", ""), ("REQUEST_OUTPUT_LEN", "COUNT", "-1", ""),
         ("PROMPT_LEARNING_TASK_NAME_IDS", "COUNT", "1", "")),
)  # fmt: skip
LLM = (
    rows(("input_ids", "INT32", "-1", "r"), ("input_lengths", "INT32", "1", "rs"), ("request_output_len", "COUNT", "-1", "r"),
         ("end_id", "COUNT", "1", "rs"), ("pad_id", "COUNT", "1", "rs"),
         *((name, datatype, "1", "s") for name, datatype, _ in SAMPLING)),
    rows(("output_ids", "INT32", "-1, -1", ""), ("log_probs", "FP32", "-1, -1", "")),
)  # fmt: skip
POSTPROCESSING = (rows(("TOKENS_BATCH", "INT32", "-1, -1", "r")), rows(("OUTPUT", "STRING", "-1, -1", "")))
ENSEMBLE = (
    rows(("text_input", "STRING", "-1", "r"), ("max_tokens", "COUNT", "-1", "r"), ("bad_words", "STRING", "-1", "r"),
         ("stop_words", "STRING", "-1", "r"), ("end_id", "COUNT", "1", ""), ("pad_id", "COUNT", "1", ""),
         *((text or name, datatype, "1", "") for name, datatype, text in SAMPLING)),
    rows(("text_output", "STRING", "-1, -1", "")),
)  # fmt: skip
TOKENIZER = [("tokenizer_dir", "${tokenizer_dir}", FIRST, ALWAYS), ("tokenizer_type", "${tokenizer_type}", FIRST, 8)]
MODELS = {
    "preprocessing": (PREPROCESSING, TOKENIZER),
    "tensorrt_llm": (LLM, [("engine_dir", "${engine_dir}", FIRST, ALWAYS),
                           ("FORCE_CPU_ONLY_INPUT_TENSORS", "no", FIRST, ALWAYS)]),
    "postprocessing": (POSTPROCESSING, TOKENIZER),
}  # fmt: skip


def steps(release):
    has = {name for name, *_ in of_release(LLM[0], release)}
    return [
        step_text("preprocessing",
                  [("QUERY", "text_input"), ("REQUEST_OUTPUT_LEN", "max_tokens"), ("BAD_WORDS_DICT", "bad_words"),
                   ("STOP_WORDS_DICT", "stop_words")],
                  [(name, f"_{name}") for name in ("REQUEST_INPUT_LEN", "INPUT_ID", "REQUEST_OUTPUT_LEN")]),
        step_text("tensorrt_llm",
                  [("input_ids", "_INPUT_ID"), ("input_lengths", "_REQUEST_INPUT_LEN"),
                   ("request_output_len", "_REQUEST_OUTPUT_LEN"), ("end_id", "end_id"), ("pad_id", "pad_id"),
                   *((name, text or name) for name, _, text in SAMPLING if name in has)],
                  [("output_ids", "_TOKENS_BATCH")]),
        step_text("postprocessing", [("TOKENS_BATCH", "_TOKENS_BATCH")], [("OUTPUT", "text_output")]),
    ]  # fmt: skip


def config_texts(release):
    """config.pbtxt of each model, as a template."""
    texts = {}
    for name, ((inputs, outputs), parameters) in MODELS.items():
        texts[name] = (
            f'name: "{name}"\nbackend: "python"\nmax_batch_size: 1024\n'
            + io_text("input", inputs, release)
            + io_text("output", outputs, release)
            + parameters_text(parameters, release)
            + "instance_group [ { count: 1, kind: KIND_CPU } ]\n"
        )
    texts["ensemble"] = (
        'name: "ensemble"\nplatform: "ensemble"\nmax_batch_size: 1024\n'
        + io_text("input", ENSEMBLE[0], release)
        + io_text("output", ENSEMBLE[1], release)
        + "ensemble_scheduling {\n  step [\n" + ",\n".join(steps(release)) + "\n  ]\n}\n"
    )  # fmt: skip
    return texts


def write_gpt_repository(root, release, **fill):
    """The four models under `root`, each with an empty version directory 1."""
    for model, text in config_texts(release).items():
        (pathlib.Path(root) / model / "1").mkdir(parents=True)
        (pathlib.Path(root) / model / "config.pbtxt").write_text(fill_template(text, **fill))
    return pathlib.Path(root)
