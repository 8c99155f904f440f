# SPDX-License-Identifier: Apache-2.0
"""The inflight binary under test, run to its end."""

import json
import os
import pathlib
import pty
import shutil
import struct
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INFLIGHT = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
BUILD = INFLIGHT.parent.parent
DEMO = ROOT / "models/demo"
NO_GPU = dict(os.environ, CUDA_VISIBLE_DEVICES="")  # GPUs of the machine are hidden


def has_terminals():
    """Whether a program can be given one. A chroot without /dev/pts, say, has none, and nothing in its place shows the same."""
    try:
        for end in pty.openpty():
            os.close(end)
    except OSError:
        return False
    return True


needs_terminal = pytest.mark.skipif(
    not has_terminals(), reason="this machine has no pseudo-terminals: /dev/pts is not mounted (a bare chroot, some containers)"
)


def demo_of_another_weight(folder):
    """A copy of the demo model in `folder`, with one element of its last norm changed; its directory."""
    model = folder / "model"
    shutil.copytree(DEMO, model)
    file = model / "model.safetensors"
    weights = bytearray(file.read_bytes())
    (size,) = struct.unpack_from("<Q", weights)
    norm = json.loads(weights[8 : 8 + size])["model.norm.weight"]
    weights[8 + size + norm["data_offsets"][0] + 1] ^= 1  # of a bfloat16 the third bit of its exponent
    file.write_bytes(weights)
    return model


def call(*command, **kwargs):
    """What another program printed; it succeeds."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, check=False, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run(*args, check=True, **kwargs):
    """Its outcome, with what it printed as text; `check` asks that it succeeds."""
    done = subprocess.run([INFLIGHT, *map(str, args)], capture_output=True, text=True, timeout=300, check=False, **kwargs)
    if check:
        assert done.returncode == 0, done.stderr
    return done


def error(*args, **kwargs):
    """The last line that it printed when it failed."""
    done = run(*args, check=False, **kwargs)
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


def documented_flags():
    """{command: flags that have an effect}, by the tables of docs/configuration.md."""
    found = {}
    for section in (ROOT / "docs/configuration.md").read_text().split("\n## inflight ")[1:]:
        rows = [line for line in section.splitlines() if line.startswith("| `--")]
        kept = {row.split("`")[1] for row in rows if "| Refused:" not in row and "| No effect:" not in row}
        found[section.split("\n", 1)[0]] = kept
    return found
