#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the last record of an iteration in a server's log with the nv_trt_llm_* samples of its metrics page.

The files are those that test.sh leaves in this directory, for each number of ranks in NUM_GPUS (1).
"""

import datetime
import json
import os
import pathlib
import re
import unittest

KEYS = {  # label of a sample -> key of the record
    "request_type=context": "Context Requests", "request_type=scheduled": "Scheduled Requests",
    "request_type=max": "Max Request Count", "request_type=active": "Active Request Count",
    "memory_type=pinned": "Runtime Pinned Memory Usage", "memory_type=gpu": "Runtime GPU Memory Usage",
    "memory_type=cpu": "Runtime CPU Memory Usage", "kv_cache_block_type=tokens_per": "Tokens per KV cache block",
    "kv_cache_block_type=used": "Used KV cache blocks", "kv_cache_block_type=free": "Free KV cache blocks",
    "kv_cache_block_type=max": "Max KV cache blocks",
    "inflight_batcher_specific_metric=total_context_tokens": "Total Context Tokens",
    "inflight_batcher_specific_metric=micro_batch_id": "MicroBatch ID",
    "inflight_batcher_specific_metric=generation_requests": "Generation Requests",
    "inflight_batcher_specific_metric=paused_requests": "Paused Requests",
    "v1_specific_metric=total_context_tokens": "Total Context Tokens",
    "v1_specific_metric=total_generation_tokens": "Total Generation Tokens",
    "v1_specific_metric=empty_generation_slots": "Empty Generation Slots",
    "general_type=iteration_counter": "Iteration Counter", "general_type=timestamp": "Timestamp",
    "request_type=waiting": "Waiting Requests", "kv_cache_block_type=fraction": "Fraction used KV cache blocks",
}  # fmt: skip
SAMPLE = re.compile(r"^nv_trt_llm\w*\{([^}]*)\} (\S+)$", re.MULTILINE)


def last_record(path):
    line = next(line for line in reversed(path.read_text().splitlines()) if "Active Request Count" in line)
    return json.loads(line[line.index("{") : line.rindex("}") + 1].replace('\\"', '"'))


def samples(path):
    """{label: value}, without those of model and version."""
    found = {}
    for labels, value in SAMPLE.findall(path.read_text()):
        others = [label for label in labels.replace('"', "").split(",") if not label.startswith(("model=", "version="))]
        assert len(others) == 1, labels
        found[others[0]] = value
    return found


def seconds_of(timestamp):
    """Of the gauge, which has seconds up to 0.11 and microseconds from 0.12 on."""
    value = float(timestamp)
    return value / 1e6 if value > 1e12 else value


class CustomMetrics(unittest.TestCase):
    def compare(self, log, page, absent):
        record, found = last_record(pathlib.Path(log)), samples(pathlib.Path(page))
        found = {label: value for label, value in found.items() if label in KEYS}
        self.assertFalse([label for label in found if label.startswith(absent)])
        self.assertEqual(sorted(KEYS[label] for label in found), sorted(record))
        for label, value in found.items():
            if KEYS[label] != "Timestamp":
                self.assertEqual(float(record[KEYS[label]]), float(value), label)
        logged = datetime.datetime.strptime(record["Timestamp"].split(".")[0], "%m-%d-%Y %H:%M:%S")
        logged = logged.replace(tzinfo=datetime.UTC).timestamp()
        self.assertGreaterEqual(seconds_of(found["general_type=timestamp"]), logged - 1)

    def test_log_and_page_agree(self):
        for ranks in os.environ.get("NUM_GPUS", "1").split():
            for kind, absent in (("v1_no_stream", "inflight_batcher"), ("IFB_no_stream", "v1_"), ("IFB_stream", "v1_")):
                with self.subTest(ranks=ranks, kind=kind):
                    self.compare(f"{ranks}gpu_{kind}ing_server.log", f"{ranks}gpu_{kind}_metrics.out", absent)


if __name__ == "__main__":
    unittest.main()
