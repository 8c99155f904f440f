# SPDX-License-Identifier: Apache-2.0
"""The recorder records again from NVIDIA's server what stands in the committed cases."""

import copy
import functools
import json
import tarfile

import pytest
import record
from compare import compare
from live_server import is_sanitized
from real_server import RealServers, why_not
from recorded_cases import read_cases

REASON = "a backend with sanitizers needs a server with them" if is_sanitized() else why_not()
needs_server = pytest.mark.skipif(bool(REASON), reason=REASON)
SAMPLE = (
    "http/infer_simple/", "http/generate_stream/", "http/parameters/", "http/repository_failures/", "http/restricted/",
    "http/statistics/", "grpc/infer_raw/", "grpc/stream/", "grpc/load_parameters/", "grpc/mode_none/",
)  # fmt: skip
# What happens within a time, or in one step of an ensemble before another, depends on the machine too.
VARIES = ('"timeout_s"', '"start_ms"', '"cancel_after_ms"', '"ens_stream"')


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    servers = RealServers(tmp_path_factory.mktemp("real"))
    yield servers
    servers.stop()


@functools.cache
def sample():
    cases = [case for protocol in ("http", "grpc") for case in read_cases(protocol) if case["id"].startswith(SAMPLE)]
    return [case for case in cases if not any(word in json.dumps(case) for word in VARIES)]


@needs_server
@pytest.mark.parametrize("group", SAMPLE)
def test_what_is_recorded_anew_is_what_is_committed(real, group):
    cases = [case for case in sample() if case["id"].startswith(group)]
    assert cases
    for case in cases:
        open_case = copy.deepcopy(case)
        for step in open_case["steps"]:
            if "expect" in step:
                step["expect"] = {}
        made, _ = record.record(open_case, real)
        for old, new in zip(case["steps"], made["steps"], strict=True):
            if "expect" in old:
                assert compare(old, old["expect"], new["expect"]) == [], case["id"]


@needs_server
def test_what_holds_stays_and_what_does_not_is_told_and_replaced(real):
    case = next(case for case in sample() if case["id"].startswith("http/infer_simple/"))
    unchanged, notes = record.record(copy.deepcopy(case), real)
    assert unchanged == case and notes == []
    wrong = copy.deepcopy(case)
    wrong["steps"][0]["expect"]["status"] = 418
    mended, notes = record.record(wrong, real)
    assert mended["steps"][0]["expect"]["status"] == case["steps"][0]["expect"]["status"]
    assert any("want 418" in note for note in notes)


def test_an_archive_has_the_added_cases_and_is_the_same_each_time(tmp_path, monkeypatch):
    new = {"id": "http/new/one", "protocol": "http", "profile": "explicit",
           "steps": [{"http": {"method": "GET", "path": "/v2/health/live"}, "expect": {"status": 200}}]}  # fmt: skip
    (tmp_path / "cases/http/new").mkdir(parents=True)
    path = tmp_path / "cases/http/new/one.case.json"
    path.write_text(json.dumps(new))
    committed = record.ARCHIVE
    monkeypatch.setattr(record, "PRESET", 0)  # 20 seconds less, and no more by chance the same
    contents = []
    for name in ("one.tar.xz", "two.tar.xz"):
        monkeypatch.setattr(record, "ARCHIVE", tmp_path / name)
        record.add(tmp_path / "cases")
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1]
    with tarfile.open(tmp_path / "one.tar.xz") as archive, tarfile.open(committed) as before:
        files = {member.name.removeprefix("./") for member in before if member.isfile()}
        assert {member.name for member in archive if member.isfile()} == files | {"http/new/one.case.json"}
    path.write_text(json.dumps(new | {"id": "http/new/other"}))
    with pytest.raises(SystemExit, match="its id is http/new/other"):
        record.add(tmp_path / "cases")
    new["steps"][0]["expect"] = {}
    path.write_text(json.dumps(new))
    with pytest.raises(SystemExit, match="is not recorded yet"):
        record.add(tmp_path / "cases")
