# SPDX-License-Identifier: Apache-2.0
"""--deterministic from outside: a row answers alone what it answers in a batch that is short of memory."""

import numpy as np
import requests
from live_server import DEMO, start_server

ROWS = 6
COLUMNS = {
    "text_input": ("BYTES", [f"Question: {i} + {i * 7 % 5} = ? Answer:" for i in range(ROWS)]),
    "max_tokens": ("INT32", [60, 50, 40, 60, 50, 40]),
    "end_id": ("INT32", [-1] * ROWS),
    "temperature": ("FP32", [1.0, 0.7, 1.5, 1.0, 1.0, 0.9]),
    "top_k": ("INT32", [1, 5, 50, 1, 0, 20]),
    "top_p": ("FP32", [0.0, 0.0, 0.9, 0.0, 0.8, 0.0]),
    "random_seed": ("UINT64", [0, 1, 2, 3, 4, 5]),
    "frequency_penalty": ("FP32", [0.0, 0.0, 0.4, 0.3, 0.0, 0.0]),
    "return_log_probs": ("BOOL", [True] * ROWS),
}


def infer(server, rows):
    """The outputs by name, as arrays, of these rows in one request."""
    inputs = [
        {"name": name, "datatype": datatype, "shape": [len(rows), 1], "data": [[values[r]] for r in rows]}
        for name, (datatype, values) in COLUMNS.items()
    ]
    answer = requests.post(f"http://{server.http}/v2/models/ensemble/infer", json={"inputs": inputs}, timeout=120)
    assert answer.status_code == 200, answer.text
    return {o["name"]: np.array(o["data"]).reshape(o["shape"]) for o in answer.json()["outputs"]}


def test_a_row_answers_alone_what_it_answers_among_others(tmp_path):
    options = ("--deterministic", "--kv-block-size", 16, "--max-num-tokens", 64, "--scheduler-policy", "max_utilization")
    server = start_server(tmp_path, DEMO, *options, max_kv_tokens=256)  # of about 400 that all need
    try:
        alone = [infer(server, [r]) for r in range(ROWS)]
        for _ in range(2):  # what comes again may reuse blocks
            together = infer(server, range(ROWS))
            for r in range(ROWS):
                assert together["text_output"][r] == alone[r]["text_output"][0]
                num_tokens = COLUMNS["max_tokens"][1][r]  # a shorter row is filled up
                assert alone[r]["output_log_probs"].shape[-1] == num_tokens
                assert np.array_equal(together["output_log_probs"][r, ..., :num_tokens], alone[r]["output_log_probs"][0])
                assert together["cum_log_probs"][r].tolist() == alone[r]["cum_log_probs"][0].tolist()
        log = server.log.read_text()
        assert "kernels chosen" in log and "choice=fixed" in log
    finally:
        assert server.stop() == 0
