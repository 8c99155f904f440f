# SPDX-License-Identifier: Apache-2.0
"""`preprocessing` for Triton's Python backend: text to token ids, beside our plug-in as `tensorrt_llm`.

Inputs and outputs are those that the model's config.pbtxt declares, of any release. Our own server has this model built
in and does not run this file.
"""

import json
import pathlib

import numpy as np
import tokenizers
import triton_python_backend_utils as pb_utils


def parameter(config, key, default=""):
    value = config.get("parameters", {}).get(key, {}).get("string_value", "").strip()
    return default if not value or value.startswith("${") else value


def special_token(directory, name):
    """The text of `eos_token` or `pad_token`, as the tokenizer's files have it; none without."""
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        path = pathlib.Path(directory) / file
        token = json.loads(path.read_text()).get(name) if path.exists() else None
        if token is not None:
            return token["content"] if isinstance(token, dict) else token
    return None


def model_vocab_size(folder):
    """What config.json of an engine or a Hugging Face model says, often more than the tokenizer has; 0 without one."""
    path = pathlib.Path(folder) / "config.json"
    config = json.loads(path.read_text()) if folder and path.exists() else {}
    config = config.get("pretrained_config") or config.get("text_config") or config
    return config.get("vocab_size") or 0


def word_list(rows, encode):
    """Ids of each row's words one after another, and where each word ends; [rows, 2, longest]."""
    ids, ends = [], []
    for words in rows:
        encoded = [found for word in words if (found := encode(word))]
        ids.append([token for word in encoded for token in word])
        ends.append(list(np.cumsum([len(word) for word in encoded], dtype=int)))
    width = max(1, *(len(row) for row in ids))
    out = np.zeros((len(rows), 2, width), np.int32)
    out[:, 1] = -1
    for row, (tokens, offsets) in enumerate(zip(ids, ends, strict=True)):
        out[row, 0, : len(tokens)], out[row, 1, : len(offsets)] = tokens, offsets
    return out


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        directory = parameter(config, "tokenizer_dir")
        if not (pathlib.Path(directory) / "tokenizer.json").exists():
            raise pb_utils.TritonModelException(f"tokenizer_dir: {directory!r} has no tokenizer.json")
        self.tokenizer = tokenizers.Tokenizer.from_file(f"{directory}/tokenizer.json")
        is_before_11 = all(each["name"] != "DECODER_QUERY" for each in config.get("input", []))
        left_open = "false" if is_before_11 else "true"
        self.adds_special = parameter(config, "add_special_tokens", left_open).lower() in ("true", "1", "t", "y", "yes")
        eos = special_token(directory, "eos_token")
        self.end_id = self.tokenizer.token_to_id(eos) if eos else -1
        pad = special_token(directory, "pad_token") or eos
        self.pad_id = self.tokenizer.token_to_id(pad) if pad else self.end_id
        folders = (parameter(config, "gpt_model_path"), directory)
        self.vocab_size = next(filter(None, map(model_vocab_size, folders)), self.tokenizer.get_vocab_size())
        self.types = {each["name"]: pb_utils.triton_string_to_numpy(each["data_type"]) for each in config["output"]}

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        try:
            outputs = self.outputs_of(request)
        except (UnicodeDecodeError, ValueError) as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG))
        known = {name: value for name, value in outputs.items() if name in self.types}
        return pb_utils.InferenceResponse(
            output_tensors=[pb_utils.Tensor(name, value.astype(self.types[name])) for name, value in known.items()]
        )

    def words(self, word):
        return self.tokenizer.encode(word, add_special_tokens=False).ids

    def outputs_of(self, request):
        given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        texts = [row[0].decode() for row in given["QUERY"]]
        encoded = [self.tokenizer.encode(text, add_special_tokens=self.adds_special).ids for text in texts]
        lengths = np.array([[len(ids)] for ids in encoded])
        ids = np.full((len(texts), max(map(len, encoded))), self.pad_id)
        for row, tokens in enumerate(encoded):
            ids[row, : len(tokens)] = tokens
        empty_words = np.zeros((len(texts), 2, 0), np.int32)
        lists = {}
        for name, output in (("BAD_WORDS_DICT", "BAD_WORDS_IDS"), ("STOP_WORDS_DICT", "STOP_WORDS_IDS")):
            rows = given.get(name)
            lists[output] = (
                empty_words if rows is None else word_list([[word.decode() for word in row] for row in rows], self.words)
            )
        one = np.ones((len(texts), 1), np.int32)
        return lists | {
            "INPUT_ID": ids,
            "REQUEST_INPUT_LEN": lengths,
            "DECODER_INPUT_ID": one,
            "REQUEST_DECODER_INPUT_LEN": one,
            "EMBEDDING_BIAS": self.bias(given, len(texts)),
            "REQUEST_OUTPUT_LEN": given["REQUEST_OUTPUT_LEN"],
            "OUT_END_ID": given.get("END_ID", one * self.end_id),
            "OUT_PAD_ID": given.get("PAD_ID", one * self.pad_id),
        }

    def bias(self, given, num_rows):
        words, weights = given.get("EMBEDDING_BIAS_WORDS"), given.get("EMBEDDING_BIAS_WEIGHTS")
        if words is None or weights is None:
            return np.zeros((num_rows, 0), np.float32)
        if words.shape != weights.shape:
            raise ValueError(f"EMBEDDING_BIAS_WEIGHTS: shape {weights.shape}, must be that of the words, {words.shape}")
        bias = np.zeros((num_rows, self.vocab_size), np.float32)
        for row in range(num_rows):
            for word, weight in zip(words[row], weights[row], strict=True):
                for token in self.words(word.decode()):
                    if token >= self.vocab_size:
                        raise ValueError(f"EMBEDDING_BIAS_WORDS: token {token} is outside of the model's {self.vocab_size}")
                    bias[row, token] += weight
        return bias
