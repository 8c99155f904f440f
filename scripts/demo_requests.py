#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends the requests of the README to a server of the demo model and checks the answers, by curl and by tritonclient.

Prints each command with its answer. Exit status 1 at the first answer that is missing or senseless; what sensible means stands
in models/demo/demo_requests.json (exact answers, or a pattern for stories), or in the file of --requests for another model.
"""

import argparse
import json
import pathlib
import queue
import re
import subprocess
import sys

try:
    import numpy as np
    import tritonclient.grpc as grpcclient
    import tritonclient.http as httpclient
except ImportError:  # as where nothing but the program was installed: curl is enough
    np = None

ROOT = pathlib.Path(__file__).resolve().parent.parent
REQUESTS = ROOT / "models/demo/demo_requests.json"


def fail(message: str) -> None:
    sys.exit(f"demo_requests.py: {message}")


def check(request: dict, text: str) -> None:
    """The request's `expected` text (blanks at the ends aside) or its `pattern` must hold."""
    if "expected" in request:
        if text.strip() != request["expected"].strip():
            fail(f"{request['text_input']!r}: expected {request['expected']!r}, got {text!r}")
    elif not re.search(request["pattern"], text):
        fail(f"{request['text_input']!r}: {text!r} does not match {request['pattern']!r}")


def curl(url: str, body: dict | None = None) -> str:
    """Runs and shows a curl command."""
    command = ["curl", "-sS", "-X", "POST", url, "-d", json.dumps(body)] if body is not None else ["curl", "-sS", url]
    shown = " ".join(f"'{word}'" if re.search(r"[ {]", word) else word for word in command)
    print(f"\n$ {shown}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        fail(f"curl: {done.stderr}")
    return done.stdout


def body_of(request: dict, **more) -> dict:
    return {"text_input": request["text_input"], "max_tokens": request["max_tokens"], "bad_words": "", "stop_words": "", **more}


def generate(host: str, request: dict) -> str:
    answer = curl(f"http://{host}/v2/models/ensemble/generate", body_of(request))
    print(answer)
    text = json.loads(answer).get("text_output")
    if text is None:
        fail("generate: no text_output")
    check(request, text)
    return text


def generate_stream(host: str, request: dict, whole: str) -> None:
    answer = curl(f"http://{host}/v2/models/ensemble/generate_stream", body_of(request, stream=True))
    events = [line for line in answer.splitlines() if line]
    print("\n\n".join([*events[:2], f"... {len(events) - 3} more ...", events[-1]]))
    chunks = [json.loads(line[len("data:"):])["text_output"] for line in answer.splitlines() if line.startswith("data:")]
    if "".join(chunks) != whole:
        fail(f"generate_stream: the chunks make {''.join(chunks)!r}, generate gave {whole!r}")
    print(f"-> {len(chunks)} chunks, together the same text")


def inputs_of(client_module, request: dict, stream: bool) -> list:
    values = [("text_input", np.array([[request["text_input"].encode()]], dtype=object), "BYTES"),
              ("max_tokens", np.array([[request["max_tokens"]]], dtype=np.int32), "INT32"),
              ("stream", np.array([[stream]], dtype=bool), "BOOL")]
    inputs = []
    for name, value, datatype in values:
        tensor = client_module.InferInput(name, value.shape, datatype)
        tensor.set_data_from_numpy(value)
        inputs.append(tensor)
    return inputs


def infer_http(host: str, request: dict) -> None:
    print("\n$ python: tritonclient.http.InferenceServerClient.infer('ensemble', [text_input, max_tokens])")
    with httpclient.InferenceServerClient(host) as client:
        result = client.infer("ensemble", inputs_of(httpclient, request, stream=False)[:2])
    text = result.as_numpy("text_output").reshape(-1)[0].decode()
    print(text)
    check(request, text)


def stream_grpc(host: str, request: dict) -> None:
    print("\n$ python: tritonclient.grpc.InferenceServerClient.async_stream_infer('ensemble', [text_input, max_tokens, stream])")
    answers: queue.Queue = queue.Queue()
    client = grpcclient.InferenceServerClient(host)
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    client.async_stream_infer("ensemble", inputs_of(grpcclient, request, stream=True), enable_empty_final_response=True)
    text = ""
    while True:
        result, error = answers.get(timeout=60)
        if error is not None:
            fail(f"gRPC stream: {error}")
        output = result.as_numpy("text_output")
        if output is not None:
            chunk = output.reshape(-1)[0].decode()
            text += chunk
            print(chunk, end="", flush=True)
        if result.get_response().parameters["triton_final_response"].bool_param:
            break
    client.stop_stream()
    client.close()
    print()
    check(request, text)


def metrics(host: str) -> None:
    page = curl(f"http://{host}/metrics")
    lines = [line for line in page.splitlines() if line.startswith("nv_inference")]
    print("\n".join(line for line in lines if 'model="ensemble"' in line))
    success = [line for line in lines if line.startswith('nv_inference_request_success{model="ensemble"')]
    if not success or float(success[0].split()[-1]) < 1:
        fail("metrics: nv_inference_request_success of ensemble is not counted")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="localhost:8000")
    parser.add_argument("--grpc", default="localhost:8001")
    parser.add_argument("--metrics", default="localhost:8002")
    parser.add_argument("--requests", type=pathlib.Path, default=REQUESTS)
    args = parser.parse_args()
    requests = json.loads(args.requests.read_text())
    for request in requests:
        generate(args.http, request)
    story = next((request for request in requests if "pattern" in request), requests[0])
    generate_stream(args.http, story, generate(args.http, story))
    if np is None:
        print("\n(no requests of tritonclient: pip install 'tritonclient[grpc,http]' for these)")
    else:
        infer_http(args.http, requests[0])
        stream_grpc(args.grpc, story)
    metrics(args.metrics)
    print("\nall answers are as expected")


if __name__ == "__main__":
    main()
