# SPDX-License-Identifier: Apache-2.0
"""--device and --target from outside, on a machine without a GPU or with its GPUs hidden."""

import functools
import os
import subprocess

import command
import pytest
from command import DEMO, NO_GPU

run = functools.partial(command.run, env=NO_GPU)
error = functools.partial(command.error, env=NO_GPU)


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    """The demo model built for each kind of device."""
    work = tmp_path_factory.mktemp("engines")
    for target in ("cpu", "cuda"):
        run("build", "--checkpoint-dir", DEMO, "--output-dir", work / target, "--max-seq-len", 256, "--target", target)
    return work


COMMANDS = {
    "run": ["run", DEMO, "--prompt", "hi"],
    "chat": ["chat", DEMO],
    "serve": ["serve", DEMO],
    "bench": ["bench", DEMO],
    "bench --shape": ["bench", "--shape", "llama-3.2-1b"],
    "inspect": ["inspect", DEMO],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_gpu_that_is_not_there_is_one_clear_line(command):
    line = error(*COMMANDS[command], "--device", "cuda")
    assert line.startswith("inflight: device: got cuda, this ")
    assert "no usable NVIDIA GPU" in line or "built without CUDA" in line
    assert "--device cpu" in line or "use cpu" in line


def test_a_driver_that_is_too_old_is_one_clear_line(tmp_path):
    """A library of the driver's name that says 12.0 stands in for it, so no GPU is needed, but a build with CUDA is.

    CI's release build has none; scripts/compile_cuda.sh runs this with the build that has, where nvcc is.
    """
    if "built without CUDA" in error(*COMMANDS["run"], "--device", "cuda"):
        pytest.skip("a build without CUDA asks no driver; CI runs this in scripts/compile_cuda.sh")
    source = command.ROOT / "tests/cuda/old_driver.cc"
    subprocess.run(["c++", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", source], check=True)
    line = command.error(*COMMANDS["run"], "--device", "cuda", env=dict(os.environ, LD_LIBRARY_PATH=str(tmp_path)))
    assert "the NVIDIA driver supports CUDA 12.0 and this program needs " in line
    assert line.endswith("; update the driver, or use --device cpu")


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_device_lists_the_known_ones(command):
    assert error(*COMMANDS[command], "--device", "tpu") == "inflight: device: got 'tpu', must be auto, cpu, cuda or cuda:N"


def test_auto_is_the_cpu_without_a_gpu(engines):
    for directory in (DEMO, engines / "cpu"):
        for device in ("auto", "cpu"):
            assert run("run", directory, "--prompt", "What is 2+2", "--max-tokens", 5, "--device", device).stdout
    assert "Memory plan on cpu" in run("inspect", engines / "cpu").stdout


def test_an_engine_for_cuda_does_not_open_on_the_cpu(engines):
    line = error("run", engines / "cuda", "--prompt", "hi", "--device", "cpu")
    assert "built for target 'cuda', the device is 'cpu'" in line
    assert "inflight build --target cpu" in line
    assert "built for target 'cuda': device: got cuda" in error("run", engines / "cuda", "--prompt", "hi")
    assert "built for target 'cuda'" in error("serve", engines / "cuda")


def test_an_engine_for_cuda_can_be_inspected_anywhere(engines):
    text = run("inspect", engines / "cuda").stdout
    assert "engine, built for cuda" in text
    assert "no memory plan: " in text
    text = run("inspect", engines / "cuda", "--device", "cpu").stdout
    assert "built for target 'cuda', the device is 'cpu'" in text


def test_float32_is_built_for_cuda_where_it_is_named(tmp_path, engines):
    build = ["build", "--checkpoint-dir", DEMO, "--output-dir", tmp_path / "e", "--target", "cuda", "--dtype", "float32"]
    for option, words in (
        (["--use-weight-only"], "quant_algo: got W8A16 beside dtype float32 for target cuda"),
        (["--kv-cache-dtype", "fp8"], "kv_cache_quant_algo: got FP8 beside dtype float32 for target cuda"),
    ):
        assert words in error(*build, *option)
        assert not (tmp_path / "e").exists()
    run(*build)
    assert "float32" in run("inspect", tmp_path / "e").stdout
    assert "bfloat16" in run("inspect", engines / "cuda").stdout
