# SPDX-License-Identifier: Apache-2.0
"""`inflight shadow` (docs/shadow.md) of NVIDIA's Triton server with our plug-in and our own server: the same answers."""

import json
import os
import pathlib
import subprocess

INFLIGHT = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
STORY = {"text_input": "Once upon a time", "max_tokens": 24}
REQUESTS = [
    {"path": "/v2/health/ready"},
    {"path": "/v2/models/ensemble/ready"},
    {"path": "/v2/models/tensorrt_llm"},
    {"path": "/v2/models/ensemble/generate", "body": STORY},
    {"path": "/v2/models/ensemble/generate", "body": STORY | {"stop_words": ["."], "return_log_probs": True}},
    {"path": "/v2/models/ensemble/generate_stream", "body": STORY | {"stream": True}},
    {"path": "/v2/models/tensorrt_llm_bls/generate_stream", "body": STORY | {"stream": True, "max_tokens": 8}},
    {"path": "/v2/models/nobody/generate", "body": STORY},
    {"path": "/v2/models/ensemble/generate", "body": {"text_input": 5}},
]


def shadow(old, new, requests, *options):
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    command = [INFLIGHT, "shadow", f"--old=http://{old.http}", f"--new=http://{new.http}", "--requests=-", *options]
    return subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=False)


def test_both_servers_give_the_same_answers(triton, ours):
    done = shadow(triton, ours, REQUESTS, "--ignore=sequence_id", "--ignore=sequence_start", "--ignore=sequence_end")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{len(REQUESTS)} requests: {len(REQUESTS)} equal")
