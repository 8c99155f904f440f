#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends the prompts of simple_data.json to the ensemble at once, and checks that its models counted the same requests.

The server is at HTTP_PORT and METRICS_PORT of this machine (8000, 8002).
"""

import collections
import os
import pathlib
import re
import sys
import unittest
import urllib.request

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

from prompts import read_dataset
from triton_requests import connect_by, given, inputs_of, texts

PROMPTS = pathlib.Path(__file__).resolve().parent / "simple_data.json"
HTTP = f"localhost:{os.environ.get('HTTP_PORT', '8000')}"
METRICS = f"http://localhost:{os.environ.get('METRICS_PORT', '8002')}/metrics"
MODELS = {"ensemble", "preprocessing", "tensorrt_llm", "postprocessing"}
COUNTS = ("request_success", "request_failure", "count", "exec_count", "pending_request_count")
DURATIONS = ("request_duration_us", "compute_input_duration_us", "compute_infer_duration_us", "compute_output_duration_us")
SAMPLE = re.compile(r'^nv_inference_(\w+)\{model="([^"]*)"[^}]*\} (\S+)$', re.MULTILINE)


class BaseMetrics(unittest.TestCase):
    def test_members_of_the_ensemble_count_what_it_counts(self):
        client = connect_by("http", HTTP)
        handles = []
        for number, (prompt, length) in enumerate(read_dataset(PROMPTS, 500)):
            inputs = [texts("text_input", [prompt]), texts("bad_words", [""]),
                      texts("stop_words", [""]), *given([("max_tokens", length, np.int32)])]  # fmt: skip
            handles.append(client.async_infer("ensemble", inputs_of(client, "ensemble", inputs), request_id=str(number)))
        for handle in handles:
            handle.get_result()
        with urllib.request.urlopen(METRICS) as answer:
            page = answer.read().decode()
        pathlib.Path("base_metrics.out").write_text(page)
        values = collections.defaultdict(dict)
        for name, model, value in SAMPLE.findall(page):
            values[model][name] = values[model].get(name, 0) + int(float(value))
        self.assertEqual(set(values), MODELS)
        self.assertEqual(len({len(of_model) for of_model in values.values()}), 1, "models have other metrics")
        for name in COUNTS:
            self.assertEqual(len({of_model[name] for of_model in values.values()}), 1, name)
        self.assertEqual(values["ensemble"]["request_success"], len(handles))
        for name in DURATIONS:
            members = sum(of_model[name] for model, of_model in values.items() if model != "ensemble")
            self.assertGreater(members, 0, name)
            self.assertGreaterEqual(values["ensemble"][name], members, name)


if __name__ == "__main__":
    unittest.main()
