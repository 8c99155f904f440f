# SPDX-License-Identifier: Apache-2.0
"""Compares what was observed with what was recorded (README.md says what is compared, and how)."""

import base64
import contextlib
import difflib
import json
import re

HEADERS = [
    "content-type", "inference-header-content-length", "content-encoding", "accept-encoding", "transfer-encoding",
    "endpoint-load-metrics",
]  # fmt: skip
NOT_RECORDED = ("inflight_", "nv_model_load_duration_secs")  # families that are ours, or of later releases
PLACEHOLDERS = {
    "{{int}}": r"-?\d+",
    "{{num}}": r"[-+0-9.eE]+|NaN|nan|[+-]?Inf",
    "{{str}}": r'[^"]*',
    "{{any}}": r"[\s\S]*",
}


def text_matches(want, got):
    if want == got or "{{" not in want:
        return want == got
    parts = re.split(r"(\{\{\w+\}\})", want)
    pattern = "".join(f"(?:{PLACEHOLDERS[p]})" if p in PLACEHOLDERS else re.escape(p) for p in parts)
    return re.fullmatch(pattern, got) is not None


def loose_json(text):
    """JSON in which placeholders may stand where values would."""
    return json.loads(re.sub(r'(?<!")(\{\{\w+\}\})(?!")', r'"\1"', text))


def json_matches(want, got):
    if isinstance(want, str):
        if want in ("{{int}}", "{{num}}"):
            is_text = isinstance(got, str) and re.fullmatch(PLACEHOLDERS[want], got) is not None
            return is_text or isinstance(got, int | float)
        return want == "{{any}}" or (isinstance(got, str) and text_matches(want, got))
    if isinstance(want, bool) or isinstance(got, bool) or want is None:
        return want is got
    if isinstance(want, int | float):
        is_number = isinstance(got, int | float)
        return is_number and (want == got or (want != want and got != got) or abs(want - got) <= 1e-6 * abs(want))
    if isinstance(want, list):
        return isinstance(got, list) and len(want) == len(got) and all(map(json_matches, want, got))
    return isinstance(got, dict) and want.keys() == got.keys() and all(json_matches(want[k], got[k]) for k in want)


def unordered(value):
    """Without the order that is hash order in the original: outputs by name, lists of names in texts of errors."""
    if isinstance(value, str):
        names = r"\[('[^']*'(?:,'[^']*')+)\]"
        return re.sub(names, lambda m: "[" + ",".join(sorted(m[1].split(","))) + "]", value)
    if isinstance(value, list):
        return [unordered(v) for v in value]
    if not isinstance(value, dict):
        return value
    value = {k: unordered(v) for k, v in value.items()}
    outputs = value.get("outputs")
    if not (isinstance(outputs, list) and all(isinstance(o, dict) and "name" in o for o in outputs)):
        return value
    order = sorted(range(len(outputs)), key=lambda i: outputs[i]["name"])
    raw = value.get("raw_output_contents")
    if raw and len(raw) == len(outputs):
        value["raw_output_contents"] = [raw[i] for i in order]
    if raw or not any("binary_data_size" in o.get("parameters", {}) for o in outputs):
        value["outputs"] = [outputs[i] for i in order]
    return value


def without_times(value):
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in ("ns", "last_inference")}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def select_metrics(body, pattern, with_values):
    lines = []
    for line in body.splitlines():
        name = re.match(r"(?:# \w+ )?(\w+)", line)
        is_left_out = line.startswith("# HELP") or (name and name[1].startswith(NOT_RECORDED))
        if is_left_out or not re.search(pattern, line):
            continue
        is_sample = not line.startswith("#")
        lines.append(re.sub(r"\s\S+$", " {{num}}", line) if is_sample and not with_values else line)
    return "\n".join(sorted(lines))


def select(step, seen):
    """Applies the filters of a case."""
    seen = json.loads(json.dumps(seen))
    wanted = step.get("select", {})

    def of_body(change):
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):  # else compared as it is
            seen["body"] = json.dumps(change(json.loads(seen["body"])), separators=(",", ":"))

    def in_index(models):
        return sorted((m for m in models if m["name"] in wanted["index"]), key=lambda m: (m["name"], m.get("version", "")))

    if "index" in wanted and "response" in seen:
        seen["response"]["models"] = in_index(seen["response"].get("models", []))
    elif "index" in wanted and "body" in seen:
        of_body(in_index)
    if "metrics" in wanted and "body" in seen:
        seen["body"] = select_metrics(seen["body"], wanted["metrics"], wanted.get("values"))
    if "keys" in wanted and "body" in seen:
        of_body(lambda members: {k: v for k, v in members.items() if k in wanted["keys"]})
    if "settings" in wanted and "response" in seen:
        settings = seen["response"].get("settings", {})
        seen["response"]["settings"] = {k: v for k, v in settings.items() if k in wanted["settings"]}
    if wanted.get("no_ns"):
        if "body" in seen:
            of_body(without_times)
        seen = without_times(seen)
    if wanted.get("by_id") and "responses" in seen:
        seen["responses"].sort(key=lambda r: r.get("infer_response", {}).get("id", ""))  # stable inside one id
    return seen


def body_of(seen):
    return base64.b64decode(seen["body_b64"]) if "body_b64" in seen else seen.get("body", "").encode()


def compare_headers(step, want, want_headers, got_headers):
    differences = []
    for name in HEADERS:
        a, b = want_headers.get(name), got_headers.get(name)
        if name in step.get("ignore_headers", []) or (name == "inference-header-content-length" and a and b):
            continue
        if name == "content-type":
            has_body = want.get("body") or want.get("body_b64")
            is_error = want["status"] >= 400 and {a, b} <= {"application/json", "text/plain"}
            if not has_body or is_error:
                continue
        if a != b and not (a and b and text_matches(a, b)):
            differences.append(f"header {name}: want {a!r}, got {b!r}")
    return differences


def compare_binary(want, got, want_length, got_length):
    """Bodies with a JSON part of these lengths in front; 0 where there is none."""
    a, b = body_of(want), body_of(got)
    if not (want_length and got_length):
        return [] if a == b else [f"body: want {a[:2000]!r}\n      got {b[:2000]!r}"]
    try:
        is_same = json_matches(loose_json(a[:want_length].decode()), json.loads(b[:got_length].decode()))
    except ValueError:
        is_same = False
    differences = [] if is_same else [f"JSON part: want {a[:want_length]!r}\n           got {b[:got_length]!r}"]
    if a[want_length:] != b[got_length:]:
        differences.append(f"binary part: want {a[want_length:][:500]!r}, got {b[got_length:][:500]!r}")
    return differences


def events_of(text):
    return [event[len("data: ") :] for event in text.split("\n\n") if event.startswith("data: ")]


def same_text(step, want, got):
    if text_matches(want, got):
        return True
    if "metrics" in step.get("select", {}):
        wanted, seen = want.split("\n"), got.split("\n")
        return len(wanted) == len(seen) and all(any(text_matches(x, y) for y in seen) for x in wanted)
    try:
        return json_matches(unordered(loose_json(want)), unordered(json.loads(got)))
    except ValueError:
        pass
    try:
        a, b = events_of(want), events_of(got)
        return bool(a) and len(a) == len(b) and all(json_matches(loose_json(x), json.loads(y)) for x, y in zip(a, b, strict=True))
    except ValueError:
        return False


def compare_http(step, want, got):
    differences = []
    if want["status"] != got.get("status"):
        differences.append(f"status: want {want['status']}, got {got.get('status', got)}")
    headers = [{name.lower(): value for name, value in seen.get("headers", [])} for seen in (want, got)]
    differences += compare_headers(step, want, *headers)
    if "body_b64" in want or "body_b64" in got:
        lengths = (int(h.get("inference-header-content-length", 0)) for h in headers)
        return differences + compare_binary(want, got, *lengths)
    a, b = want.get("body", ""), got.get("body", "")
    if not same_text(step, a, b):
        differences.append("body:\n" + "\n".join(difflib.ndiff(a.splitlines() or [""], b.splitlines() or [""])))
    return differences


def compare(step, want, seen):
    """Texts of what differs; none when the observation is the recorded one."""
    got = select(step, seen)
    if "all" in want:
        pairs = zip(step["parallel"], want["all"], got["all"], strict=True)
        return [f"parallel {i}: {d}" for i, (s, w, g) in enumerate(pairs) for d in compare(s, w, g)]
    if want.get("closed") and got.get("status") == 400:
        return []  # refusing politely is as good as closing
    if isinstance(want.get("status"), int):
        return compare_http(step, want, got)
    if json_matches(unordered(want), unordered(got)):
        return []
    return [f"want {json.dumps(want, sort_keys=True)}\n     got  {json.dumps(got, sort_keys=True)}"]
