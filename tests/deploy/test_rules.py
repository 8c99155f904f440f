# SPDX-License-Identifier: Apache-2.0
"""Dashboards, rules and run-books of deploy/ name only what a server has, and are well formed."""

import functools
import json
import re
import subprocess
import sys

import pytest
import requests
import yaml
from live_server import ROOT
from manifests import flags
from promql import named

DASHBOARDS = sorted((ROOT / "deploy/grafana").glob("*.json"))
RULES = ROOT / "deploy/prometheus/rules.yaml"
RUNBOOKS = ROOT / "docs/runbooks"
HEADINGS = ["Symptom", "What it means", "What to look at", "What to do"]
OF_GPUS = re.compile(r"nv_gpu_\w+|nv_energy_consumption|nv_pinned_memory_pool_\w+")


@functools.cache
def rules():
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels(dashboard):
    return [panel for panel in json.loads(dashboard.read_text())["panels"] if panel["type"] != "row"]


def expressions():
    """[(where, expression)], each expression once."""
    found = {rule["expr"]: rule.get("record") or rule["alert"] for rule in rules()}
    for dashboard in DASHBOARDS:
        for panel in panels(dashboard):
            found |= {target["expr"]: f"{dashboard.stem}: {panel['title']}" for target in panel["targets"]}
    return [(where, expression) for expression, where in found.items()]


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
            assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
            _, groups = named(rule["expr"])
            for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
                by_record = any(metric in known for metric, _ in named(rule["expr"])[0])
                assert label in groups | {"instance", "gpu_uuid"} or by_record, rule["alert"]
        # A rule reads what stands before it.
        for metric, _ in named(rule["expr"])[0]:
            assert ":" not in metric or metric in known, metric


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_one_that_grafana_imports(path):
    dashboard = json.loads(path.read_text())
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= set(dashboard)
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]}
    assert len(places) == len(ids)
    for panel in panels(path):
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        for target in panel["targets"]:
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
            assert used <= variables, panel["title"]
            _, groups = named(target["expr"])
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= groups | {"instance", "gpu_uuid"}, panel["title"]


def test_dashboards_are_what_their_table_makes():
    uids = [json.loads(path.read_text())["uid"] for path in DASHBOARDS]
    assert len(set(uids)) == len(uids) >= 4
    subprocess.run([sys.executable, ROOT / "scripts/make_dashboards.py", "--check"], check=True, timeout=60)


def alerts():
    return [rule for rule in rules() if "alert" in rule]


def test_each_alert_has_a_run_book_and_each_run_book_an_alert():
    found = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in alerts()}
    assert found == {path.stem: f"docs/runbooks/{path.name}" for path in RUNBOOKS.glob("*.md") if path.stem != "README"}
    index = (RUNBOOKS / "README.md").read_text()
    for rule in alerts():
        severity = rule["labels"]["severity"]
        assert f"| [{rule['alert']}]({rule['alert']}.md) | {severity} |" in index


def sections(text):
    """{heading: text}."""
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("alert", [rule["alert"] for rule in alerts()])
def test_a_run_book_names_what_there_is(families, demo, alert):
    text = (RUNBOOKS / f"{alert}.md").read_text()
    assert text.startswith(f"# {alert}\n")
    assert list(sections(text)) == HEADINGS
    looked_at = sections(text)["What to look at"]
    commands = re.findall(r"^    (.+)$", looked_at, re.MULTILINE)
    assert commands and re.search(r"^- ", looked_at, re.MULTILINE), "commands, and how their output is read"
    assert re.search(r"^1\. ", sections(text)["What to do"], re.MULTILINE)
    metrics = set(re.findall(r"`((?:nv|inflight)_\w+)`", text))
    for metric in metrics:
        known = any(name == metric or name.startswith(f"{metric}_") for name in families)
        assert known or OF_GPUS.fullmatch(metric), f"{alert}: no server exports {metric}"
    for flag in re.findall(r"`(--[\w-]+)", text):
        assert flag in flags(), f"{alert}: {flag} is no flag of inflight serve"
    for path in re.findall(r"localhost:8000(/\S+)", text):
        method = "POST" if f"-X POST localhost:8000{path}" in text else "GET"
        body = re.search(rf"localhost:8000{re.escape(path)} -d '(.*)'", text)
        answer = requests.request(method, f"http://{demo.http}{path}", data=body and body[1], timeout=30)
        assert answer.ok, f"{alert}: {path}: {answer.status_code} {answer.text}"


def greps():
    found = []
    for rule in alerts():
        text = (RUNBOOKS / f"{rule['alert']}.md").read_text()
        found += [(rule["alert"], command) for command in re.findall(r"^    (curl .*/metrics \|\s+grep .*)$", text, re.MULTILINE)]
    return found


@pytest.mark.parametrize(("alert", "command"), greps())
def test_a_search_in_the_metrics_finds_each_of_its_names(families, alert, command):
    """As grep reads them: alternatives at the top and one level of groups."""
    pattern = re.search(r"grep (?:-E )?'?([^']+?)'?$", command)[1]
    pages = [name for name in families if re.search(pattern, name)]
    assert pages, command
    for word in re.split(r"\|(?![^(]*\))", pattern):
        assert any(re.search(word, name) for name in families) or OF_GPUS.match(f"{word}_used_bytes"), f"{alert}: {word}"
