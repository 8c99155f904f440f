# SPDX-License-Identifier: Apache-2.0
"""One request, written once, over each road to a model; answers as rows.

A request is a list of rows, dicts in the words of the ensemble, with `text` for its prompt. Lists are vectors of that row.
"""

import dataclasses
import json

import numpy as np
import requests
import tritonclient.grpc as triton
import tritonclient.http
from live_server import DEMO
from llm_client import Stream, is_final
from release_repositories import ALWAYS, RENAMED, TEXT_INPUTS
from tokenizers import Tokenizer
from tritonclient.utils import InferenceServerException

MODELS = ("ensemble", "tensorrt_llm_bls", "tensorrt_llm")
TOKENIZER = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
DATATYPES = {"stop": "BOOL"} | {
    name: {"STRING": "BYTES"}.get(datatype, datatype) for name, datatype, _, _, last, _ in TEXT_INPUTS if last == ALWAYS
}
NUMPY = {"BYTES": object, "INT32": np.int32, "BOOL": bool, "FP32": np.float32, "UINT64": np.uint64}
CORE_NAMES = {**{text: core for core, text in RENAMED.items()}, "max_tokens": "request_output_len"}
VECTORS = {"stop_words", "bad_words", "embedding_bias_words", "embedding_bias_weights"}
VOCAB_SIZE = json.loads((DEMO / "config.json").read_text())["vocab_size"]
REQUEST_PARAMETERS = {"include_stop_str_in_output"}  # no tensors; they are of all rows
TIMEOUT_S = 120


# The published clients, and what lets them wait.
CLIENTS = {"http": tritonclient.http, "grpc": triton}
TIMEOUTS = {"http": {"network_timeout": TIMEOUT_S, "connection_timeout": TIMEOUT_S}, "grpc": {}}


def ids_of(text):
    return TOKENIZER.encode(text).ids


def text_of_token(token_id):
    """Its text, if that is a word which encodes to this token alone; else None."""
    text = TOKENIZER.decode([token_id])
    return text if TOKENIZER.encode(text, add_special_tokens=False).ids == [token_id] else None


@dataclasses.dataclass(frozen=True)
class Road:
    transport: str
    model: str
    stream: bool
    num_rows: int

    def __str__(self):
        return f"{self.transport}-{self.model}-{'stream' if self.stream else 'whole'}-{self.num_rows}"

    def can_send(self, parameters):
        """Whether the form of the road has a place for them: generate_stream makes one row of a vector, ids are no text."""
        if self.model == "tensorrt_llm" and REQUEST_PARAMETERS & set(parameters):
            return False
        if self.transport == "grpc" or not self.stream or self.num_rows == 1:
            return True
        return self.model != "tensorrt_llm" and not VECTORS & set(parameters)


@dataclasses.dataclass
class Answer:
    """What one row got: its responses, each a dict of flat arrays."""

    is_streamed: bool
    responses: list

    def floats(self, name):
        return np.concatenate([r[name] for r in self.responses if name in r]).astype(np.float32)

    def last(self, name):
        return self.responses[-1][name].reshape(-1)[0]

    def strings(self, name):
        return [t.decode() if isinstance(t, bytes) else t for r in self.responses for t in r.get(name, [])]

    @property
    def ids(self):
        """The generated ids, which only the core answers with."""
        return np.concatenate([r["output_ids"] for r in self.responses]).astype(np.int64).tolist()  # [] of JSON has no type

    @property
    def beams(self):
        """The texts of a beam search, the best first: the last response has them all."""
        last = self.responses[-1]
        if "output_ids" in last:
            lengths = last["sequence_length"].tolist()
            rows = last["output_ids"].reshape(len(lengths), -1)
            return [TOKENIZER.decode(ids[:n].tolist()) for ids, n in zip(rows, lengths, strict=True)]
        return [t.decode() if isinstance(t, bytes) else t for t in last["text_output"]]

    @property
    def text(self):
        if "output_ids" in self.responses[0]:
            return TOKENIZER.decode(self.ids)
        texts = [r["text_output"][0] for r in self.responses]
        return "".join(t.decode() if isinstance(t, bytes) else t for t in texts)


def ask(server, road, rows):
    """The answers of the rows, in their order. An error raises."""
    columns = to_columns(road, rows)
    parameters = {name: rows[0][name] for name in REQUEST_PARAMETERS & set(rows[0])}
    if road.transport == "http":
        call = generate_stream if road.stream else infer_http
        responses = call(server, road, columns, parameters)
    else:
        with triton.InferenceServerClient(server.grpc) as client:
            inputs = [grpc_input(name, array) for name, array in columns.items()]
            if road.stream:
                responses = list(infer_stream(client, road, inputs, parameters))
            else:
                result = client.infer(road.model, inputs, parameters=parameters or None)
                responses = split_rows(outputs_of(result), road.num_rows)
    answers = [Answer(road.stream, []) for _ in rows]
    for row, response in responses:
        answers[row].responses.append(response)
    return answers


# --- requests ---


def to_columns(road, rows):
    """Arrays [B, ...] by the names of the model."""
    columns = {"stream": np.array([[road.stream]] * len(rows))}
    for name in [name for name in rows[0] if name not in {"text", *REQUEST_PARAMETERS}]:
        values = [row[name] if isinstance(row[name], list) else [row[name]] for row in rows]
        columns[name] = np.array(values, dtype=NUMPY[DATATYPES[name]])
    texts = [row["text"] for row in rows]
    if road.model != "tensorrt_llm":
        return {"text_input": np.array([[t] for t in texts], dtype=object), **columns}
    for name in {"stop_words", "bad_words"} & set(columns):
        columns[f"{name}_list"] = word_lists([row[name] for row in rows])
        del columns[name]
    if "embedding_bias_words" in columns:
        columns["embedding_bias"] = dense_biases(rows)
        del columns["embedding_bias_words"], columns["embedding_bias_weights"]
    ids = [ids_of(t) for t in texts]
    padded = np.zeros((len(ids), max(map(len, ids))), np.int32)
    for row, of_row in enumerate(ids):
        padded[row, : len(of_row)] = of_row
    core = {CORE_NAMES.get(name, name): column for name, column in columns.items()}
    return {"input_ids": padded, "input_lengths": np.array([[len(i)] for i in ids], np.int32), **core}


def infer_rows(server, transport, model, rows, **options):
    """The published client's answer to one request with these rows, which does not stream."""
    columns = to_columns(Road(transport, model, stream=False, num_rows=len(rows)), rows)
    module = CLIENTS[transport]
    with module.InferenceServerClient(getattr(server, transport), **TIMEOUTS[transport]) as client:
        inputs = []
        for name, array in columns.items():
            inputs.append(module.InferInput(name, list(array.shape), datatype_of(array)))
            inputs[-1].set_data_from_numpy(array)
        return client.infer(model, inputs, **options)


def word_lists(rows):
    """[B, 2, n]: ids one word after the other padded with 0, ends of words padded with -1 (docs/reference/decoding.md)."""
    encoded = [[TOKENIZER.encode(w, add_special_tokens=False).ids for w in words] for words in rows]
    width = max(sum(map(len, words)) for words in encoded)
    lists = np.zeros((len(rows), 2, width), np.int32)
    lists[:, 1] = -1
    for row, words in enumerate(encoded):
        flat = [i for word in words for i in word]
        lists[row, 0, : len(flat)] = flat
        lists[row, 1, : len(words)] = np.cumsum([len(word) for word in words])
    return lists


def dense_biases(rows):
    """[B, vocabulary]: the weight of each word on its ids."""
    biases = np.zeros((len(rows), VOCAB_SIZE), np.float32)
    for bias, row in zip(biases, rows, strict=True):
        for word, weight in zip(row["embedding_bias_words"], row["embedding_bias_weights"], strict=True):
            bias[TOKENIZER.encode(word, add_special_tokens=False).ids] += weight
    return biases


def datatype_of(array):
    return next(name for name, dtype in NUMPY.items() if np.dtype(dtype) == array.dtype)


def plain_list(array):
    return array.reshape(-1).tolist()


def grpc_input(name, array):
    tensor = triton.InferInput(name, list(array.shape), datatype_of(array))
    if array.dtype == object:
        array = np.array([t.encode() for t in array.reshape(-1)], dtype=object).reshape(array.shape)
    tensor.set_data_from_numpy(array)
    return tensor


# --- the four ways to call; each gives (row, response) ---


def infer_http(server, road, columns, parameters):
    body = {
        "parameters": parameters,
        "inputs": [
            {"name": name, "shape": list(array.shape), "datatype": datatype_of(array), "data": plain_list(array)}
            for name, array in columns.items()
        ],
    }
    answer = requests.post(f"http://{server.http}/v2/models/{road.model}/infer", json=body, timeout=TIMEOUT_S)
    if answer.status_code != 200:
        raise InferenceServerException(answer.json()["error"])
    outputs = {o["name"]: np.array(o["data"]).reshape(o["shape"]) for o in answer.json()["outputs"]}
    return split_rows(outputs, road.num_rows)


def generate_stream(server, road, columns, parameters):
    body = {name: plain_list(array) for name, array in columns.items()}
    body = {name: values[0] if len(values) == 1 else values for name, values in body.items()}
    url = f"http://{server.http}/v2/models/{road.model}/generate_stream"
    answer = requests.post(url, json={**body, **parameters}, timeout=TIMEOUT_S)
    for line in answer.text.split("\n"):
        if not line.startswith("data: "):
            continue
        event = json.loads(line.removeprefix("data: "))
        if "error" in event:
            raise InferenceServerException(event["error"])
        outputs = {n: np.atleast_1d(v) for n, v in event.items() if n not in ("model_name", "model_version")}
        yield int(event.get("batch_index", 0)), outputs


def infer_stream(client, road, inputs, parameters):
    with Stream(client) as stream:
        stream.send("", inputs, model=road.model, enable_empty_final_response=True, parameters=parameters or None)
        while True:
            result, error = stream.receive()
            if error is not None:
                raise error
            outputs = outputs_of(result)
            if outputs:
                row = int(outputs["batch_index"].reshape(-1)[0]) if "batch_index" in outputs else 0
                yield row, {name: array.reshape(-1) for name, array in outputs.items()}
            if is_final(result):
                return


def outputs_of(result):
    return {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}


def split_rows(outputs, num_rows):
    """A joined answer as one response of each row, without its padding."""
    for row in range(num_rows):
        response = {}
        for name, array in outputs.items():
            per_row = array.shape[0] // num_rows  # more than one text where there are beams
            values = array[row * per_row : (row + 1) * per_row]
            if "sequence_length" in outputs and outputs["sequence_length"].shape[1] == 1:
                n = int(outputs["sequence_length"][row, 0])
                if name in ("output_ids", "output_log_probs", "generation_logits", "top_log_prob_ids", "top_log_probs"):
                    values = values[:, :, :n]
            response[name] = values.reshape(-1)
        yield row, response
