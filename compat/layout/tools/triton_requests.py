# SPDX-License-Identifier: Apache-2.0
"""What the clients of this folder share over tritonclient: tensors, connections, the answers of a stream in their order."""

import functools
import queue
import sys

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException, np_to_triton_dtype, triton_to_np_dtype


def tensor(name, values):
    """A tensor of a request: its name and its array."""
    return name, values


def texts(name, values, rows=1):
    """One of shape [rows, n], with the same n texts in each row."""
    return name, np.array([[value.encode() for value in values]] * rows, dtype=object)


def given(table, rows=1):
    """Those of shape [rows, 1] for rows (name, value, dtype) of a table, but for those whose value is None."""
    return [(name, np.full((rows, 1), value, dtype)) for name, value, dtype in table if value is not None]


def inputs_of(client, model, tensors, droppable=()):
    """The inputs of a request to the model, in the types that its release declares; without those of `droppable` that it has not.

    Of others that it does not declare the server says so.
    """
    module, types = module_of(client), declared(client, model)[0]
    made = []
    for name, values in tensors:
        if name not in types and name in droppable:
            continue
        datatype = types.get(name) or np_to_triton_dtype(values.dtype)
        one = module.InferInput(name, values.shape, datatype)
        dtype = triton_to_np_dtype(datatype)
        one.set_data_from_numpy(values if dtype is None or values.dtype == object else values.astype(dtype))
        made.append(one)
    return made


def add_sampling(parser):
    """The flags that all clients have for beams and sampling."""
    parser.add_argument("-b", "--beam-width", type=int, default=1, help="beams of the request")
    parser.add_argument("--temperature", type=float, default=1.0, help="temperature")
    for name in ("repetition", "presence", "frequency"):
        parser.add_argument(f"--{name}-penalty", type=float, help=f"{name} penalty; not sent unless it is given")


def sampling(arguments, rows=1):
    """The tensors of add_sampling's flags, whose names are those of every model."""
    return given([
        ("beam_width", arguments.beam_width, np.int32),
        ("temperature", arguments.temperature, np.float32),
        ("repetition_penalty", arguments.repetition_penalty, np.float32),
        ("presence_penalty", arguments.presence_penalty, np.float32),
        ("frequency_penalty", arguments.frequency_penalty, np.float32),
    ], rows)  # fmt: skip


class Answers:
    """Answers and errors as they come; its `callback` is what tritonclient calls."""

    def __init__(self):
        self._queue = queue.Queue()
        self._last = None

    def callback(self, result, error):
        self._last = result if error is None else error
        self._queue.put(self._last)

    def has_ended(self):
        """Whether the last answer of a request is here: an error, one without a stream, or one that says so."""
        if self._last is None or isinstance(self._last, InferenceServerException):
            return self._last is not None
        final = self._last.get_response().parameters.get("triton_final_response")
        return final is None or final.bool_param

    def next(self, timeout=None):
        return self._queue.get(timeout=timeout)

    def rest(self):
        """All that are there."""
        while not self._queue.empty():
            yield self._queue.get()


def connect(url, verbose=False, **options):
    """A client of gRPC; exits with the reason where options or address are wrong."""
    try:
        return grpcclient.InferenceServerClient(url=url, verbose=verbose, **options)
    except (InferenceServerException, OSError, ValueError) as error:
        sys.exit(f"channel creation failed: {error}")


def module_of(client):
    """tritonclient's module that the client is of."""
    return grpcclient if isinstance(client, grpcclient.InferenceServerClient) else httpclient


def add_protocol(parser):
    """The flags by which the test tools reach a server."""
    parser.add_argument("-v", "--verbose", action="store_true", help="print each request and answer")
    parser.add_argument("-u", "--url", help="address; localhost:8000 of HTTP or localhost:8001 of gRPC")
    parser.add_argument("-i", "--protocol", default="http", choices=["http", "grpc"], help="protocol")
    parser.add_argument("-c", "--concurrency", type=int, default=128, help="connections over HTTP")


def connect_by(protocol, url, concurrency=128, verbose=False):
    """A client of that protocol; exits where the address is wrong."""
    url = url or {"http": "localhost:8000", "grpc": "localhost:8001"}[protocol]
    try:
        if protocol == "grpc":
            return grpcclient.InferenceServerClient(url=url, verbose=verbose)
        return httpclient.InferenceServerClient(url=url, verbose=verbose, concurrency=concurrency)
    except (InferenceServerException, OSError, ValueError) as error:
        sys.exit(f"channel creation failed: {error}")


@functools.cache
def declared(client, model):
    """{name: datatype} of a model's inputs and of its outputs."""
    is_grpc = module_of(client) is grpcclient
    metadata = client.get_model_metadata(model, as_json=True) if is_grpc else client.get_model_metadata(model)
    return [{t["name"]: t["datatype"] for t in metadata[kind]} for kind in ("inputs", "outputs")]


def response_of(result):
    """The answer without its arrays, as a dictionary: "id", "outputs" with their shapes."""
    response = result.get_response()
    if isinstance(response, dict):
        return response
    return {"id": response.id, "outputs": [{"name": o.name, "shape": list(o.shape)} for o in response.outputs]}
