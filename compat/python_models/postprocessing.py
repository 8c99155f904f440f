# SPDX-License-Identifier: Apache-2.0
"""`postprocessing` for Triton's Python backend: token ids to text, beside our plug-in as `tensorrt_llm`.

Each call is decoded by itself. A stream's pieces are whole texts only where `tensorrt_llm_bls` puts them together (its
`accumulate_tokens`). Our own server has this model built in and does not run this file.
"""

import json
import pathlib

import numpy as np
import tokenizers
import triton_python_backend_utils as pb_utils


def parameter(config, key, default=""):
    value = config.get("parameters", {}).get(key, {}).get("string_value", "").strip()
    return default if not value or value.startswith("${") else value


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        directory = parameter(config, "tokenizer_dir")
        if not (pathlib.Path(directory) / "tokenizer.json").exists():
            raise pb_utils.TritonModelException(f"tokenizer_dir: {directory!r} has no tokenizer.json")
        self.tokenizer = tokenizers.Tokenizer.from_file(f"{directory}/tokenizer.json")
        self.skips_special = parameter(config, "skip_special_tokens", "true").lower() in ("true", "1", "t", "y", "yes")
        self.outputs = [each["name"] for each in config["output"]]

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        batch, texts = given["TOKENS_BATCH"], []
        whole = np.full(batch.shape[:2], batch.shape[2])  # 0.5 has no lengths
        for row, lengths in zip(batch, given.get("SEQUENCE_LENGTH", whole), strict=True):
            for tokens, length in zip(row, lengths, strict=True):
                texts.append(self.tokenizer.decode(tokens[:length], skip_special_tokens=self.skips_special).encode())
        tensors = [pb_utils.Tensor("OUTPUT", np.array(texts, object))]
        for name in self.outputs:  # OUT_CUM_LOG_PROBS and its like go through as they came
            if name.startswith("OUT_") and name[4:] in given:
                tensors.append(pb_utils.Tensor(name, given[name[4:]]))
        return pb_utils.InferenceResponse(output_tensors=tensors)
