#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The text client under the name and with the flags that it had at 0.5: end_to_end_grpc_client.py."""

import argparse
import os
import pathlib
import sys

NEW = pathlib.Path(__file__).resolve().parents[2] / "inflight_batcher_llm/client/end_to_end_grpc_client.py"


def main():
    parser = argparse.ArgumentParser(description="Sends one text to the ensemble over a gRPC stream.")
    parser.add_argument("-v", "--verbose", action="store_true", help="print each request and answer")
    parser.add_argument("-u", "--url", default="localhost:8001", help="address of gRPC")
    parser.add_argument("-p", "--prompt", required=True, help="the text")
    parser.add_argument("-S", "--streaming", action="store_true", help="an answer for each step")
    parser.add_argument("-i", "--protocol", default="grpc", choices=["grpc"], help="protocol")
    parser.add_argument("-o", "--output_len", default="100", help="new tokens at most")
    given = parser.parse_args()
    command = [sys.executable, str(NEW), "-u", given.url, "-p", given.prompt, "-o", given.output_len]
    command += ["-v"] if given.verbose else []
    command += ["-S"] if given.streaming else []
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
