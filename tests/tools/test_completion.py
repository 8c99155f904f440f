# SPDX-License-Identifier: Apache-2.0
"""The completion script, sourced in bash and asked as bash would ask it."""

import subprocess

import pytest
from command import INFLIGHT, documented_flags


@pytest.fixture(scope="module")
def script():
    return subprocess.run([INFLIGHT, "completion", "bash"], capture_output=True, text=True, timeout=60, check=True).stdout


def complete(script, *words):
    """What bash offers for the last word."""
    ask = f"""{script}
COMP_WORDS=({" ".join(f"'{word}'" for word in words)})
COMP_CWORD={len(words) - 1}
_inflight
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "--norc", "-c", ask], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_commands(script):
    assert set(complete(script, "inflight", "")) >= {"serve", "run", "chat", "build", "bench", "completion", "--help"}
    assert complete(script, "inflight", "tok") == ["tokenize"]
    assert complete(script, "inflight", "completion", "") == ["bash", "zsh", "fish"]
    assert complete(script, "inflight", "man", "tok") == ["tokenize"]


def test_flags_of_the_command(script):
    flags = complete(script, "inflight", "run", "DIR", "--")
    assert {"--prompt", "--max-tokens", "--config", "--help"} <= set(flags)
    assert "--http-port" not in flags
    assert complete(script, "inflight", "serve", "--http-po") == ["--http-port"]


def test_refused_flags_are_not_offered(script):
    assert "--host-policy" not in complete(script, "inflight", "serve", "--host")


def test_values_that_are_known(script):
    assert complete(script, "inflight", "run", "DIR", "--dtype", "") == ["auto", "float32", "bfloat16", "float16"]
    assert complete(script, "inflight", "run", "DIR", "--dtype", "bf") == ["bfloat16"]
    assert complete(script, "inflight", "serve", "--allow-http", "") == ["true", "false"]


def test_other_values_are_left_to_bash(script):
    assert complete(script, "inflight", "run", "DIR", "--input", "") == []


def test_bench_load_is_a_command_of_its_own(script):
    assert "load" in complete(script, "inflight", "bench", "lo")
    flags = complete(script, "inflight", "bench", "load", "--")
    assert "--request-rate" in flags and "--repeats" not in flags
    assert "--repeats" in complete(script, "inflight", "bench", "--")
    assert "throughput" in complete(script, "inflight", "bench", "thr")
    assert "--scenarios" in complete(script, "inflight", "bench", "throughput", "--sc")


def test_every_documented_flag_is_offered_but_those_refused_or_without_effect(script):
    for name, flags in documented_flags().items():
        assert flags | {"--config", "--help"} == set(complete(script, "inflight", *name.split(), "--"))


def test_another_shell_is_refused():
    done = subprocess.run([INFLIGHT, "completion", "tcsh"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "shell: got 'tcsh', must be bash, zsh or fish" in done.stderr
