#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders conversations by the chat templates of a folder, as models are published with them, and tells where the texts
differ from those of jinja2 as transformers sets it up.

Templates are files of the name *.jinja, and `chat_template` of tokenizer_config.json and chat_template.json, wherever they
stand below the folder; those of one name in several have their model's special tokens. Conversations that a template
refuses are compared, too: both refuse them, in the template's own words where it has some.

usage: INFLIGHT_BIN_DIR=build/release/bin .venv/bin/python tests/chat_template/compare_published.py FOLDER…

Prints each difference and a line of totals; exits 1 where there is a difference or no template.
"""

import argparse
import collections
import json
import pathlib
import sys

from as_transformers import SPECIAL, difference, driver
from conversations import CONVERSATIONS

CONFIGURATIONS = ("tokenizer_config.json", "chat_template.json")


def text_of(token):
    """Of a token that is a text, or an object with one."""
    return token.get("content") if isinstance(token, dict) else token


def special_tokens(folder):
    """Those of tokenizer_config.json, as transformers gives them to templates."""
    path = (folder.parent if folder.name == "additional_chat_templates" else folder) / "tokenizer_config.json"
    config = json.loads(path.read_text()) if path.exists() else {}
    found = {name: text_of(token) for name, token in config.items() if name.endswith("_token")}
    return SPECIAL | {name: token for name, token in found.items() if isinstance(token, str)}


def templates_in(path):
    """{name: template} of a file."""
    if path.name not in CONFIGURATIONS:
        return {"": path.read_text()}
    found = json.loads(path.read_text()).get("chat_template")
    if isinstance(found, list):  # several, by name
        return {one["name"]: one["template"] for one in found}
    return found if isinstance(found, dict) else {"": found} if found else {}


def published(folders):
    """{(template, special tokens as JSON): where it stands first}, and how many files have templates."""
    found, num_files = {}, 0
    for folder in folders:
        paths = sorted(path for name in ("*.jinja", *CONFIGURATIONS) for path in folder.rglob(name))
        for path in paths:
            templates = templates_in(path)
            num_files += bool(templates)
            for name, template in templates.items():
                tokens = json.dumps(special_tokens(path.parent))
                found.setdefault((template, tokens), f"{path}{f' [{name}]' if name else ''}")
    return found, num_files


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--driver", help="of the build in INFLIGHT_BIN_DIR by default")
    asked = parser.parse_args(arguments)
    found, num_files = published(asked.folders)
    if not found:
        print(f"no *.jinja and no chat_template of {' and '.join(CONFIGURATIONS)} in {' '.join(map(str, asked.folders))}")
        return 1
    outcomes, differing = collections.Counter(), set()
    with driver(asked.driver) as render:
        for (template, tokens), place in found.items():
            for name, conversation in CONVERSATIONS.items():
                for is_prompt in (True, False):
                    variables = {**json.loads(tokens), **conversation, "add_generation_prompt": is_prompt}
                    kind, differs = difference(render(template, variables), template, variables)
                    outcomes["differ" if differs else kind] += 1
                    if differs:
                        differing.add(place)
                        print(f"{place}: {name}{', generation prompt' if is_prompt else ''}: {differs}")
    print(
        f"{num_files} files, {len(found)} different templates, {outcomes.total()} texts: {outcomes['text']} equal,"
        f" {outcomes['error']} refused by both, {outcomes['differ']} differ, of {len(differing)} templates"
    )
    return 1 if outcomes["differ"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
