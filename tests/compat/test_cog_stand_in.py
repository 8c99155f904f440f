# SPDX-License-Identifier: Apache-2.0
"""compat/cog: a project of cog-triton started by `python -m cog.server.http`, and its configurations."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import threading

import pytest
import requests

ROOT = pathlib.Path(__file__).resolve().parents[2]
COG = ROOT / "compat/cog"
INFLIGHT = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
PROJECT = 'build:\n  gpu: false\npredict: "predict.py:Predictor"\nconcurrency:\n  max: 3\n'


def environment(**more):
    return {**os.environ, "PYTHONPATH": str(COG), "INFLIGHT": str(INFLIGHT), "PORT": "0", **more}


class Container:
    """The stand-in, whose output is read as it comes."""

    def __init__(self, folder, *flags, **variables):
        command = [sys.executable, "-m", "cog.server.http", "--host", "127.0.0.1", *flags]
        command += [
            "--http-port=0",
            "--grpc-port=0",
            "--metrics-port=0",
            f"--port-file={folder / 'ports'}",
            "--max-kv-tokens=4096",
        ]
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment(**variables), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines = []
        self.changed = threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()
        self.wait_for("Started cog HTTPService")
        self.url = f"http://127.0.0.1:{self.port(folder)}"

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line)
                self.changed.notify_all()

    def wait_for(self, text):
        with self.changed:
            assert self.changed.wait_for(lambda: any(text in line for line in self.lines), 60), "".join(self.lines)

    def port(self, folder):
        path = folder / "ports"
        while not path.exists() or not path.read_text().endswith("\n"):
            assert self.process.poll() is None, "".join(self.lines)
        return json.loads(path.read_text())["cog"]


def run(folder, *command, **variables):
    return subprocess.run(
        [sys.executable, *map(str, command)], cwd=folder, env=environment(**variables), capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip


def test_the_image_s_project_answers(tmp_path):
    """The target cog of deploy/container/Dockerfile: its command, its variables and its cog.yaml."""
    recipe = (ROOT / "deploy/container/Dockerfile").read_text().split(" AS cog\n")[1]
    assert 'CMD ["python", "-m", "cog.server.http"]' in recipe and "ENTRYPOINT []" in recipe
    assert "ENV PYTHONPATH=/usr/share/inflight/compat/cog ENGINE_DIR=/usr/share/inflight/demo\n" in recipe
    assert "RUN /usr/share/inflight/deploy/container/prepare_cog.sh\n" in recipe and "WORKDIR /src\n" in recipe
    shutil.copy(ROOT / "deploy/container/cog.yaml", tmp_path)
    container = Container(tmp_path, "--threads=1", ENGINE_DIR=str(ROOT / "models/demo"))
    body = {"input": {"prompt": "What is 27 + 54?", "max_tokens": 20, "temperature": 0}}
    prediction = requests.post(f"{container.url}/predictions", json=body, timeout=60).json()
    assert prediction["status"] == "succeeded", prediction["error"]
    assert "27 + 54 = 81" in "".join(prediction["output"])
    container.process.send_signal(signal.SIGTERM)
    assert container.process.wait(60) == 0, "".join(container.lines)


def test_a_container_answers_the_guide_s_curl_and_ends_when_it_is_told(tmp_path):
    (tmp_path / "cog.yaml").write_text(PROJECT)
    container = Container(tmp_path, "--await-explicit-shutdown=true", "--threads=1", ENGINE_DIR=str(ROOT / "models/demo"))
    body = {"input": {"prompt": "What is machine learning?", "max_tokens": 8}}
    prediction = requests.post(f"{container.url}/predictions", json=body, timeout=60).json()
    assert prediction["status"] == "succeeded", prediction["error"]
    assert isinstance("".join(prediction["output"]), str) and prediction["output"]
    container.process.send_signal(signal.SIGTERM)
    container.wait_for("Got a signal to exit, ignoring it...")
    assert requests.get(f"{container.url}/health-check", timeout=30).json()["status"] == "READY"
    assert requests.post(f"{container.url}/shutdown", timeout=30).status_code == 200
    assert container.process.wait(60) == 0


def test_a_signal_ends_a_container_otherwise(tmp_path):
    (tmp_path / "cog.yaml").write_text(PROJECT)
    container = Container(tmp_path, ENGINE_DIR=str(ROOT / "models/demo"), COG_LOG_LEVEL="debug")
    container.process.send_signal(signal.SIGTERM)
    assert container.process.wait(60) == 0


@pytest.mark.parametrize("project, variables, flags, message", [
    (None, {}, [], "cog.yaml: it is not in this folder"),
    ("build: {}", {}, [], "cog.yaml: `predict` is missing"),
    ("predict: p\nconcurrency: {max: 0}", {}, [], "cog.yaml: concurrency.max: got 0"),
    (PROJECT, {}, [], "there is neither triton_model_repo/ensemble/config.pbtxt nor an engine in"),
    (PROJECT, {"WORLD_SIZE": "2"}, [], "WORLD_SIZE: got 2, one rank serves"),
    (PROJECT, {"COG_LOG_LEVEL": "loud"}, [], "COG_LOG_LEVEL: got loud"),
    (PROJECT, {"COG_WEIGHTS": "file:///nowhere.tar"}, [], "COG_WEIGHTS: file:///nowhere.tar cannot be unpacked"),
    (PROJECT, {}, ["--x-mode=train"], "--x-mode: got train"),
])  # fmt: skip
def test_what_is_wrong_is_said(tmp_path, project, variables, flags, message):
    if project:
        (tmp_path / "cog.yaml").write_text(project)
    done = run(tmp_path, "-m", "cog.server.http", *flags, **variables)
    assert done.returncode == 1
    assert message in done.stderr


def test_a_setup_that_fails_has_cog_s_status(tmp_path):
    (tmp_path / "cog.yaml").write_text(PROJECT)
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine/config.json").write_text("{")
    assert run(tmp_path, "-m", "cog.server.http", ENGINE_DIR=str(tmp_path / "engine")).returncode == 255


def test_a_setup_that_fails_stays_where_its_end_is_asked_for(tmp_path):
    (tmp_path / "cog.yaml").write_text(PROJECT)
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine/config.json").write_text("{")
    container = Container(tmp_path, "--await-explicit-shutdown=true", ENGINE_DIR=str(tmp_path / "engine"))
    told = requests.get(f"{container.url}/health-check", timeout=30).json()
    assert (told["status"], told["setup"]["status"]) == ("SETUP_FAILED", "failed") and "config.json" in told["setup"]["logs"]
    assert requests.post(f"{container.url}/shutdown", timeout=30).status_code == 200
    assert container.process.wait(60) == 0


def test_a_configuration_fills_templates(tmp_path):
    template = tmp_path / "triton_templates/tensorrt_llm/config.pbtxt"
    template.parent.mkdir(parents=True)
    template.write_text('max_batch_size: ${triton_max_batch_size}\ndecoupled: ${decoupled_mode}\n"${engine_dir}" $$')
    args = "args: {triton_max_batch_size: 64, decoupled_mode: True}"
    (tmp_path / "config.yaml").write_text(f"instantiate:\n  server:\n    tensorrt_llm:\n      {args}\n")
    done = run(tmp_path, COG / "triton_config_generator.py", "config.yaml")
    assert done.returncode == 0, done.stderr
    filled = (tmp_path / "triton_model_repo/tensorrt_llm/config.pbtxt").read_text()
    assert filled == 'max_batch_size: 64\ndecoupled: True\n"${engine_dir}" $'
    (tmp_path / "config.yaml").write_text("tensorrt_llm: {arg: {}}")
    assert "tensorrt_llm: unknown keys arg" in run(tmp_path, COG / "triton_config_generator.py", "config.yaml").stderr


SCRIPT = """
import pathlib, sys
out = pathlib.Path(sys.argv[sys.argv.index("--output_dir") + 1])
out.mkdir(parents=True)
(out / "config.json").write_text(" ".join(sys.argv[1:]))
"""


def test_the_builder_runs_the_steps_of_its_configuration(tmp_path):
    (tmp_path / "tensorrt_llm/examples/gpt").mkdir(parents=True)
    (tmp_path / "tensorrt_llm/examples/gpt/build.py").write_text(SCRIPT)
    (tmp_path / "model").mkdir()
    (tmp_path / "model/tokenizer.json").write_text("{}")
    steps = "".join(
        f"{step}:\n  executable: python\n  script: build.py\n  output_dir: ./{folder}\n"
        f"  args: {{output_dir: ./{folder}, dtype: float16, paged_kv_cache: }}\n"
        for step, folder in (("build", "engine"), ("convert_to_ft", "c-model"))
    )
    (tmp_path / "config.yaml").write_text("model_id: gpt2\nexample_name: gpt\n" + steps)
    done = run(tmp_path, COG / "trt_llm_builder.py", "config.yaml", "--model-dir", "model")
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("convert_to_ft: ") < done.stdout.index("build: ")
    with tarfile.open(tmp_path / "engine.tar") as archive:
        assert sorted(archive.getnames()) == ["cog-trt-llm-config.yaml", "config.json", "tokenizer.json"]
        written = archive.extractfile("config.json").read().decode()
    assert written == "--output_dir ./engine --dtype float16 --paged_kv_cache"


@pytest.mark.parametrize("config, message", [
    ("[]", "a mapping of keys is needed"),
    ("model_id: a", "`example_name` is missing"),
    ("model_id: a\nexample_name: gpt", "it has no step"),
    ("model_id: a\nexample_name: gpt\nbuild: {}", "example_name: tensorrt_llm/examples/gpt is not there"),
    ("model_id: a\nexample_name: gpt\nbuild: {}\nmodel_tar_url: http://x/y.zip", "it must end with .tar"),
])  # fmt: skip
def test_a_builder_s_configuration_that_is_wrong_is_named(tmp_path, config, message):
    (tmp_path / "config.yaml").write_text(config)
    done = run(tmp_path, COG / "trt_llm_builder.py", "config.yaml")
    assert done.returncode == 1
    assert message in done.stderr
