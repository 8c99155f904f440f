# SPDX-License-Identifier: Apache-2.0
"""The dashboard and the rules in deploy/ name only what a server exports, and are well formed."""

import functools
import json
import re

import pytest
import requests
import yaml
from live_server import DEMO, ROOT, start_server

DASHBOARD = ROOT / "deploy/grafana/inflight.json"
RULES = ROOT / "deploy/prometheus/rules.yaml"
OF_GPUS = re.compile(r"nv_gpu_\w+|nv_energy_consumption|nv_pinned_memory_pool_\w+")
TOKEN = re.compile(
    r"""(?P<blank>\s+)|(?P<text>"[^"\n]*")|(?P<range>\[(?:\d+[smhd]|\$__rate_interval)\])|(?P<number>\d+(?:\.\d+)?)
    |(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)|(?P<operator>=~|!=|!~|==|>=|<=|[-+*/><=,])|(?P<open>[({])|(?P<close>[)}])""",
    re.VERBOSE,
)
FUNCTIONS = {"rate", "histogram_quantile"}
AGGREGATIONS = {"sum", "max"}


@pytest.fixture(scope="module")
def families(tmp_path_factory):
    """Families and labels of a server's page: {name: {label, ...}}."""
    server = start_server(tmp_path_factory.mktemp("deploy"), DEMO)
    body = {"text_input": "The fox", "max_tokens": 3}
    assert requests.post(f"http://{server.http}/v2/models/ensemble/generate", json=body, timeout=60).ok
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
    assert server.stop() == 0
    found = {}
    for line in page.splitlines():
        if line.startswith("#"):
            continue
        name, labels = re.match(r"(\w+)(?:\{(.*)\})? ", line).groups()
        found.setdefault(name, set()).update(re.findall(r"(\w+)=", labels or ""))
    return found


@functools.cache
def rules():
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels():
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def expressions():
    found = [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]
    return found + [(rule.get("record") or rule["alert"], rule["expr"]) for rule in rules()]


def tokens(expression):
    place, found = 0, []
    while place < len(expression):
        token = TOKEN.match(expression, place)
        assert token, f"{expression}: what is {expression[place:]!r}?"
        place = token.end()
        if token.lastgroup != "blank":
            found.append((token.lastgroup, token[0]))
    return found


def named(expression):
    """Metrics and labels that an expression names: [(metric, {label of its matchers, ...})], {label of an aggregation, ...}."""
    found, groups, brackets = [], set(), []
    row = tokens(expression)
    for i, (kind, word) in enumerate(row):
        following = row[i + 1][1] if i + 1 < len(row) else ""
        if kind == "open":
            brackets.append((word, row[i - 1][1] if i else ""))
        elif kind == "close":
            assert brackets and brackets.pop()[0] == {")": "(", "}": "{"}[word], expression
        elif kind == "name" and brackets and brackets[-1][0] == "{":
            assert following in ("=", "!=", "=~", "!~") and row[i + 2][0] == "text", expression
            found[-1][1].add(word)
        elif kind == "name" and brackets and brackets[-1] == ("(", "by"):
            groups.add(word)
        elif kind == "name" and word in FUNCTIONS:
            assert following == "(", expression
        elif kind == "name" and word in AGGREGATIONS:
            assert following == "by", expression
        elif kind == "name" and word != "by":
            found.append((word, set()))
    assert not brackets, expression
    return found, groups


@pytest.mark.parametrize(("where", "expression"), expressions())
def test_what_is_asked_for_is_exported(families, where, expression):
    recorded = {rule["record"] for rule in rules() if "record" in rule} | {"up"}
    metrics, groups = named(expression)
    assert metrics, where
    for metric, labels in metrics:
        if metric in recorded or OF_GPUS.fullmatch(metric):
            continue
        assert metric in families, f"{where}: no server exports {metric}"
        assert labels | groups <= families[metric] | {"instance", "job"}, f"{where}: labels of {metric}"


def test_families_of_gpus_are_documented():
    page = (ROOT / "docs/metrics.md").read_text()
    asked = {metric for _, expression in expressions() for metric, _ in named(expression)[0] if OF_GPUS.fullmatch(metric)}
    assert asked
    for metric in asked:
        family = re.sub(r"_(total|used)_bytes$", "", metric)
        assert f"`{metric}`" in page or f"`{family}_{{" in page or f"`{family}_total_bytes`" in page, metric


def test_rules_are_rules():
    names = [rule.get("record") or rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    known = set()
    for rule in rules():
        if "record" in rule:
            assert set(rule) == {"record", "expr"} and re.fullmatch(r"\w+(:\w+){2}", rule["record"])
            known.add(rule["record"])
        else:
            assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
            assert re.fullmatch(r"\d+[smh]", rule["for"])
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert set(rule["annotations"]) == {"summary", "description"}
            _, groups = named(rule["expr"])
            for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
                by_record = any(metric in known for metric, _ in named(rule["expr"])[0])
                assert label in groups | {"instance", "gpu_uuid"} or by_record, rule["alert"]
        # A rule reads what stands before it.
        for metric, _ in named(rule["expr"])[0]:
            assert ":" not in metric or metric in known, metric


def test_the_dashboard_is_one_that_grafana_imports():
    dashboard = json.loads(DASHBOARD.read_text())
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= set(dashboard)
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]}
    assert len(places) == len(ids)
    for panel in panels():
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        for target in panel["targets"]:
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
            assert used <= variables, panel["title"]
            _, groups = named(target["expr"])
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= groups | {"instance", "gpu_uuid"}, panel["title"]
