# SPDX-License-Identifier: Apache-2.0
"""scripts/check_layers.py finds includes without an arrow, arrows without an include, and circles."""

import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import check_layers


@pytest.fixture
def problems_of(tmp_path, monkeypatch):
    """What is wrong in a checkout that has this one file."""

    def get(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
        subprocess.run(["git", "init", "-q", tmp_path], check=True)
        monkeypatch.setattr(check_layers, "ROOT", tmp_path)
        return check_layers.forbidden_includes()[0]

    return get


@pytest.mark.parametrize(
    ("name", "include", "what"),
    [
        ("src/kv_cache/a.cc", "tensor/buffer.h", "src/kv_cache/a.cc:2: kv_cache may not include tensor (tensor/buffer.h)"),
        ("src/serving/core/a.h", "serving/llm/b.h", "serving/core may not include serving/llm"),
        ("src/serving/core/a_test.cc", "serving/llm/b.h", "serving/core may not include serving/llm"),
        ("src/serving/core/a.cc", "serving/configuration/b.h", "serving/core may not include serving/configuration"),
        ("src/json/a.cc", "model_config.pb.h", "json may not include proto"),
        ("src/ops/reference/a.cc", "ops/cpu/kernels.h", "the oracle may not include ops/cpu/kernels.h"),
        ("src/nowhere/a.cc", "base/check.h", "src/nowhere/a.cc: lies in no declared layer"),
    ],
)
def test_what_has_no_arrow_is_found(problems_of, name, include, what):
    problems = problems_of(name, f'// A comment.\n#include "{include}"\n')
    assert problems and what in problems[0]


@pytest.mark.parametrize(
    ("name", "include"),
    [
        ("src/scheduler/a.cc", "kv_cache/kv_cache.h"),
        ("src/kv_cache/a.cc", "base/check.h"),
        ("src/kv_cache/a.cc", "inflight/executor.h"),
        ("src/serving/core/a_test.cc", "serving/configuration/b.h"),
        ("src/ops/backend.cc", "ops/cpu/tables.h"),
    ],
)
def test_what_has_one_passes(problems_of, name, include):
    assert problems_of(name, f'#include "{include}"\n') == []


def test_arrows_form_no_circle_and_are_used(monkeypatch):
    monkeypatch.setattr(check_layers, "ARROWS", {"a": ["b"], "b": ["a"]})
    monkeypatch.setattr(check_layers, "TEST_ARROWS", {})
    problems = check_layers.wrong_arrows({("a", "b")})
    assert problems[0].startswith("arrows form a circle: ")
    assert problems[1:] == ["check_layers.py: b -> a is used by no file"]
