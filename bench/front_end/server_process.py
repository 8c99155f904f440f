# SPDX-License-Identifier: Apache-2.0
"""A server that a bench of this folder measures: it starts, answers, and its CPU time is read."""

import os
import pathlib
import subprocess
import sys
import time
import urllib.request

START_TIMEOUT_S = 60


def start(command, environment, log, url):
    """The process, once `url` answers; its output goes to `log`. Ends the program where it does not start."""
    process = subprocess.Popen(
        [str(c) for c in command], env=os.environ | environment, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
    )  # fmt: skip
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return process
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                sys.exit(f"{command[0]} did not start; see {log.name}")
            time.sleep(0.1)


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
