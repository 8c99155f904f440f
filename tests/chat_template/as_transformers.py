# SPDX-License-Identifier: Apache-2.0
"""Chat templates rendered by jinja2, set up as transformers' apply_chat_template sets it up, and by the driver."""

import contextlib
import datetime
import functools
import json
import os
import pathlib
import subprocess

import jinja2
import jinja2.ext
import jinja2.sandbox

DRIVER = pathlib.Path(os.environ.get("INFLIGHT_BIN_DIR", "build/release/bin")) / "chat_template_driver"
NOW_S = 1_781_503_200
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "tools": None, "documents": None}


class Generation(jinja2.ext.Extension):
    """Knows {% generation %}; its body is rendered in a scope of its own, as transformers' tracker does."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    @staticmethod
    def _body(caller):
        return caller()


class DictMaker:
    """What `dict` is: no class, which would have subscripts and attributes."""

    def __call__(self, *args, **named):
        return dict(*args, **named)

    def fromkeys(self, *args):
        return dict.fromkeys(*args)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["dict"] = DictMaker()
    env.globals["strftime_now"] = lambda form: datetime.datetime.fromtimestamp(NOW_S).strftime(form)
    return env


@functools.lru_cache(maxsize=8)
def compiled(template):
    return environment().from_string(template)


@contextlib.contextmanager
def driver(program=None):
    """render(template, variables), which is {"text": …} or {"error": …}; the driver ends well or the caller fails."""
    process = subprocess.Popen([program or DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(template, variables):
        request = {"template": template, "variables": variables, "now_s": NOW_S}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, f"chat_template_driver ended with {process.wait()} on {template[:200]!r}"
        return json.loads(line)

    yield render
    process.stdin.close()
    assert process.wait(timeout=30) == 0


def difference(ours, template, variables):
    """("text" or "error", how the driver's answer differs from jinja2's): the texts are equal, or both are errors, and
    where the template raises, of the same words. The second is None where nothing differs."""
    try:
        expected = compiled(template).render(**variables)
    except jinja2.exceptions.TemplateError as error:
        if "error" not in ours:
            return "error", f"jinja2 raises {error!r}, rendered {ours['text']!r}"
        is_own = type(error) is jinja2.exceptions.TemplateError
        return "error", f"raised {ours['error']!r}, not {str(error)!r}" if is_own and ours["error"] != str(error) else None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        return "error", None if "error" in ours else f"jinja2 raises {error!r}, rendered {ours['text']!r}"
    if "error" in ours:
        return "text", f"refused: {ours['error']}"
    if ours["text"] == expected:
        return "text", None
    at = len(os.path.commonprefix([ours["text"], expected]))
    near = slice(max(at - 40, 0), at + 40)
    return "text", f"at character {at}: {ours['text'][near]!r}, not {expected[near]!r}"
