# SPDX-License-Identifier: Apache-2.0
"""--download: models that are named ORG/NAME come from a hub on this machine where its cache lacks them, also those that the
files of a repository name; HF_HUB_OFFLINE forbids it."""

import pathlib
import signal
import subprocess
import time

import pytest
from command import DEMO, INFLIGHT, error, run
from hub_stand_in import COMMIT, Hub, without_hub
from release_repositories import write_repository

REPO = "org/tiny"
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
START_TIMEOUT_S = 60
ASK = ("--prompt", "Once upon a time", "--max-tokens", 8)


@pytest.fixture
def hub():
    made = Hub(REPO, {name: (DEMO / name).read_bytes() for name in FILES}, large=["model.safetensors"])
    yield made
    made.close()


@pytest.fixture
def place(tmp_path, hub):
    """A user without models, and the address of the hub."""
    return dict(
        without_hub(), HF_HOME=str(tmp_path / "hf"), XDG_DATA_HOME=str(tmp_path / "data"), HOME=str(tmp_path),
        HF_ENDPOINT=hub.endpoint, CUDA_VISIBLE_DEVICES="",
    )  # fmt: skip


def snapshot(place):
    return pathlib.Path(place["HF_HOME"]) / "hub/models--org--tiny/snapshots" / COMMIT


def test_run_downloads_a_model_once(hub, place):
    expected = run("run", DEMO, *ASK).stdout
    assert run("run", REPO, "--download", *ASK, env=place).stdout == expected
    assert {path.name for path in snapshot(place).iterdir()} == set(FILES)
    before = len(hub.requests)
    assert run("run", REPO, "--download", *ASK, env=place).stdout == expected
    assert run("run", REPO, *ASK, env=place).stdout == expected
    assert len(hub.requests) == before, "what is in the cache is not asked for"


def test_convert_and_build_download_what_they_read(place, tmp_path):
    run("convert", "--model-dir", REPO, "--download", "--output-dir", tmp_path / "checkpoint", env=place)
    assert (tmp_path / "checkpoint/rank0.safetensors").exists() and snapshot(place).exists()
    for name in snapshot(place).iterdir():
        name.unlink()
    snapshot(place).rmdir()
    arguments = ("--tokenizer-dir", REPO, "--output-dir", tmp_path / "engine", "--download")
    run("build", "--checkpoint-dir", tmp_path / "checkpoint", *arguments, env=place)
    assert (tmp_path / "engine/tokenizer.json").read_bytes() == (DEMO / "tokenizer.json").read_bytes()
    assert snapshot(place).exists()


def serve(tmp_path, place, *arguments):
    """What became of a server: its log once it is ready, or has ended."""
    ports = [f"--{name}-port=0" for name in ("http", "grpc", "metrics")]
    command = [INFLIGHT, "serve", *arguments, *ports, "--device=cpu", "--max-kv-tokens=2048"]
    log = tmp_path / "log"
    with open(log, "w") as out:
        process = subprocess.Popen([*map(str, command)], env=place, stdout=out, stderr=out)
    deadline = time.monotonic() + START_TIMEOUT_S
    while "Started Metrics Service" not in log.read_text() and process.poll() is None:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    return process.wait(START_TIMEOUT_S), log.read_text()


def test_serve_downloads_a_model(place, tmp_path):
    status, log = serve(tmp_path, place, REPO, "--download")
    assert (status, "Started HTTPService" in log) == (0, True), log
    assert snapshot(place).exists()


def test_serve_downloads_the_tokenizer_that_a_repository_names(place, tmp_path):
    repository = write_repository(tmp_path / "models", 11, engine_dir=DEMO, tokenizer_dir=REPO, decoupled_mode="True")
    status, log = serve(tmp_path, place, "--model-repository", repository, "--exit-on-error=false")
    assert "tokenizer_dir: org/tiny: no such directory" in log and "--download" in log and not snapshot(place).exists()
    status, log = serve(tmp_path, place, "--model-repository", repository, "--download")
    assert status == 0 and "model=org/tiny" in log and snapshot(place).exists(), log


@pytest.mark.parametrize(
    ("arguments", "place_of"),
    [
        (["run", "org/other", "--prompt", "x"], "org/other: "),
        (["serve", "org/other"], "org/other: "),
        (["convert", "--model-dir", "org/other", "--output-dir", "out"], "--model-dir: org/other: "),
        (["build", "--checkpoint-dir", "org/other", "--output-dir", "out"], "--checkpoint-dir: org/other: "),
    ],
)
def test_what_neither_has_says_that_both_were_tried(arguments, place_of, place, tmp_path):
    cache = pathlib.Path(place["HF_HOME"]) / "hub"
    line = error(*arguments, env=place, cwd=tmp_path)
    assert f"{place_of}no such directory, and no such model in the Hugging Face cache" in line and "--download" in line
    line = error(*arguments, "--download", env=place, cwd=tmp_path)
    assert f"{place_of}no such directory, it is not in the Hugging Face cache ({cache}, by HF_HOME)" in line
    assert "gets it from no hub: " in line and "no such model, revision or file" in line


def test_offline_is_offline(hub, place, tmp_path):
    line = error("run", REPO, "--download", "--prompt", "x", env=dict(place, HF_HUB_OFFLINE="1"))
    assert "HF_HUB_OFFLINE is set" in line and "not in the Hugging Face cache" in line and hub.requests == []


def test_one_of_several_files_of_the_cache_is_not_downloaded_in_their_place(hub, place):
    hub.files = {"A-Q4_K_M.gguf": b"4" * 100, "A-Q8_0.gguf": b"8" * 100}
    hub.large = set(hub.files)
    for quant in ("Q4_K_M", "Q8_0"):
        run("pull", f"{REPO}:{quant}", env=place)
    before = len(hub.requests)
    assert "more than one of the GGUF files" in error("run", REPO, "--download", "--prompt", "x", env=place)
    assert len(hub.requests) == before
