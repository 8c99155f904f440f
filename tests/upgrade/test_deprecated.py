# SPDX-License-Identifier: Apache-2.0
"""An option that is deprecated goes on working, says once what takes its place, and does what that does
(docs/releasing.md)."""

import pathlib
import re
import sys

import pytest
import requests

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "protocol"))
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
from command import ROOT, error
from live_server import start_server

HERE = pathlib.Path(__file__).resolve().parent

# Each with a value, and what its warning says; {file} is one of the test.
CASES = {
    ("serve", "--strict-model-config"): ("true", "--disable-auto-complete-config"),
    ("serve", "--trace-file"): ("{file}", "--trace-config triton,file={file}"),
    ("serve", "--trace-level"): ("TIMESTAMPS", "--trace-config level=TIMESTAMPS"),
    ("serve", "--trace-rate"): ("7", "--trace-config rate=7"),
    ("serve", "--trace-count"): ("5", "--trace-config count=5"),
    ("serve", "--trace-log-frequency"): ("3", "--trace-config triton,log-frequency=3"),
    ("serve", "--response-cache-byte-size"): ("1048576", "--cache-config local,size=1048576"),
}
BACKEND_BY_NAME = """name: "named.conformance"
input [ { name: "IN", data_type: TYPE_INT32, dims: [ 1 ] } ]
output [ { name: "OUT", data_type: TYPE_INT32, dims: [ 1 ] } ]
"""


def deprecated():
    """{(command, flag): what its row says to say}, by the tables of docs/configuration.md."""
    found = {}
    for section in (ROOT / "docs/configuration.md").read_text().split("\n## inflight ")[1:]:
        command = section.split("\n", 1)[0]
        for flag, meaning in re.findall(r"^\| `(--[\w-]+)` .*\| (Deprecated: .*) \|$", section, re.MULTILINE):
            found[command, flag] = meaning
    return found


def test_each_deprecated_option_has_a_case_and_names_what_takes_its_place():
    rows = deprecated()
    assert set(rows) == set(CASES)
    for option, meaning in rows.items():
        replacement = CASES[option][1].split("=")[0].split()[0]
        assert replacement in meaning, option


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Their logs, settings and metrics, with the former options and with the present ones."""
    found = {}
    file = tmp_path_factory.mktemp("trace") / "trace.json"
    for name in ("former", "present"):
        words = []
        for (_, flag), (value, present) in CASES.items():
            if flag != "--strict-model-config":  # it is shown below
                words += [flag, value.format(file=file)] if name == "former" else present.format(file=file).split()
        work = tmp_path_factory.mktemp(name)
        server = start_server(work, HERE / "model", *words)
        setting = requests.get(f"http://{server.http}/v2/trace/setting", timeout=30).json()
        cached = re.search(r"\| cache_enabled +\| (\d) ", server.log.read_text()).group(1)
        assert server.stop() == 0
        found[name] = (server.log.read_text(), setting, cached)
    return file, found


def test_they_do_what_takes_their_place(servers):
    _, found = servers
    assert found["former"][1:] == found["present"][1:]
    assert found["present"][1]["trace_rate"] == "7" and found["present"][2] == "1"


@pytest.mark.parametrize("option", [option for option in CASES if option[1] != "--strict-model-config"], ids=lambda o: o[1])
def test_one_warning_says_what_to_say(servers, option):
    file, found = servers
    warning = f"{option[1]} is deprecated, say {CASES[option][1].format(file=file)}"
    assert found["former"][0].count(warning) == 1
    assert f"{option[1]} is deprecated" not in found["present"][0]


@pytest.mark.parametrize("flag", ["--strict-model-config=true", "--disable-auto-complete-config"])
def test_strict_model_config(tmp_path, flag):
    (tmp_path / "models/named.conformance/1").mkdir(parents=True)
    (tmp_path / "models/named.conformance/config.pbtxt").write_text(BACKEND_BY_NAME)
    work = tmp_path / "work"
    work.mkdir()
    options = ("--model-repository", tmp_path / "models", "--exit-on-error=false")
    server = start_server(work, None, *options, flag, max_kv_tokens=None)
    assert server.stop() == 0
    log = server.log.read_text()
    assert "Could not determine backend for model 'named.conformance'" in log
    warning = "--strict-model-config is deprecated, say --disable-auto-complete-config"
    assert log.count(warning) == (1 if flag.startswith("--strict") else 0)


def test_the_former_way_to_say_it_does_not_hide_a_fault():
    message = error("serve", HERE / "model", "--trace-rate", "x", "--trace-level", "TIMESTAMPS")
    assert "rate" in message and "x" in message
