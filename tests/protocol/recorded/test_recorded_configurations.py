# SPDX-License-Identifier: Apache-2.0
"""Wrong configurations are refused in the words in which a real Triton server refuses them."""

import json
import pathlib
import re
import tomllib

import pytest
import requests
from live_server import start_server

HERE = pathlib.Path(__file__).parent
RECORDED = tomllib.loads((HERE / "configurations.toml").read_text())
POLLED = re.compile(r'\] ("model cannot be polled .*")$', re.MULTILINE)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    work = tmp_path_factory.mktemp("configurations")
    for model in RECORDED["configuration"] + RECORDED["step"]:
        folder = work / "models" / model["name"]
        (folder / "1").mkdir(parents=True)
        (folder / "config.pbtxt").write_text(model["config"])
    running = start_server(
        work, None, "--model-repository", work / "models", "--model-control-mode=explicit", "--disable-auto-complete-config"
    )
    yield running
    assert running.stop() == 0


@pytest.mark.parametrize("recorded", RECORDED["configuration"], ids=lambda recorded: recorded["name"])
def test_wrong_configuration(server, recorded):
    name = recorded["name"]
    before = server.log.stat().st_size
    answer = requests.post(f"http://{server.http}/v2/repository/models/{name}/load", timeout=30)
    error = answer.json()["error"]
    if "load" in recorded:
        assert (answer.status_code, error) == (400, recorded["load"])
        return
    assert (answer.status_code, error) == (500, f"failed to load '{name}', failed to poll from model repository")
    line = json.loads(POLLED.search(server.log.read_text()[before:])[1])
    reason = json.loads(line.split("reason=", 1)[1])
    assert reason.removeprefix(f"Poll failed for model directory '{name}': ") == recorded["poll"]
