# SPDX-License-Identifier: Apache-2.0
"""Well-formed requests, one each 100 ms whether the last was answered or not, from a process of their own: what the attackers'
process does with its interpreter is no time of the server's.
"""

import concurrent.futures
import dataclasses
import http.client
import json
import multiprocessing
import threading
import time

PERIOD_S = 0.1
PATIENCE_S = 60
MAX_AT_ONCE = 64
ECHO = {"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "BYTES", "data": ["echo"]}]}
PROMPT = {"text_input": "2 + 3 =", "max_tokens": 4}


@dataclasses.dataclass
class Beats:
    """What became of the requests between a start and a stop."""

    seconds: list
    problems: list


def echo_over_http(address):
    """On a new connection and on a kept one by turns."""
    return _post(address, "/v2/models/identity/infer", ECHO, lambda answer: answer["outputs"][0]["data"] == ["echo"])


def prompt_over_http(address):
    return _post(address, "/v2/models/ensemble/generate", PROMPT, lambda answer: "text_output" in answer)


def _post(address, path, body, is_right):
    kept, body, number = threading.local(), json.dumps(body), iter(range(1 << 40))

    def beat():
        is_kept = next(number) % 2 == 0
        connection = getattr(kept, "connection", None) if is_kept else None
        if connection is None:
            connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            read = answer.read()
        except (http.client.HTTPException, OSError):
            connection.close()
            kept.connection = None
            raise
        assert answer.status == 200 and is_right(json.loads(read)), read[:200]
        if is_kept:
            kept.connection = connection
        else:
            connection.close()

    return beat


def echo_over_grpc(address):
    import numpy as np
    import tritonclient.grpc as triton

    client = triton.InferenceServerClient(address)
    text = triton.InferInput("INPUT0", [1], "BYTES")
    text.set_data_from_numpy(np.array([b"echo"], dtype=object))

    def beat():
        result = client.infer("identity", [text], client_timeout=PATIENCE_S)
        assert result.as_numpy("OUTPUT0")[0] == b"echo"

    return beat


def prompt_over_grpc(address):
    import numpy as np
    import tritonclient.grpc as triton

    client = triton.InferenceServerClient(address)
    text = triton.InferInput("text_input", [1, 1], "BYTES")
    text.set_data_from_numpy(np.array([[PROMPT["text_input"].encode()]], dtype=object))
    tokens = triton.InferInput("max_tokens", [1, 1], "INT32")
    tokens.set_data_from_numpy(np.array([[PROMPT["max_tokens"]]], dtype=np.int32))

    def beat():
        result = client.infer("ensemble", [text, tokens], client_timeout=PATIENCE_S)
        assert result.as_numpy("text_output").size == 1

    return beat


def _serve(make_beat, address, pipe):
    """Beats between the words "start" and "stop"; anything else ends it."""
    beat = make_beat(address)
    beat()  # imports, connections
    pipe.send("ready")
    while pipe.recv() == "start":
        seconds, problems = [], []

        def timed(beat=beat, seconds=seconds, problems=problems):
            started = time.monotonic()
            try:
                beat()
            except Exception as failure:
                problems.append(repr(failure))
            seconds.append(time.monotonic() - started)

        with concurrent.futures.ThreadPoolExecutor(MAX_AT_ONCE) as pool:
            started, count = time.monotonic(), 0
            while not pipe.poll(max(0.0, started + count * PERIOD_S - time.monotonic())):
                pool.submit(timed)
                count += 1
            pipe.recv()
        pipe.send(Beats(seconds, problems))


class Pulse:
    """One of the functions above, in a process that lives until `close`."""

    def __init__(self, make_beat, address):
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(make_beat, address, theirs), daemon=True)
        self._process.start()
        assert self._pipe.recv() == "ready"

    def start(self):
        self._pipe.send("start")

    def stop(self):
        self._pipe.send("stop")
        return self._pipe.recv()

    def close(self):
        self._pipe.send("end")
        self._process.join()
