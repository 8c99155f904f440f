#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fills the `${name}` places of a template, by default of a config.pbtxt: fill_template.py FILE "name:value,name:value" [-i].

A place whose name is not given stays as it is. In names and values a backslash keeps the `,` or `:` after it from
separating; each of the two separations takes a backslash away, so that a `:` inside a value is written as two backslashes
and it.
This file needs no other: it may be copied.
"""

import argparse
import pathlib
import string
import sys


def split(text, separator):
    """The parts between separators that no backslash precedes; backslashes themselves go."""
    parts, escaped = [""], False
    for character in text:
        if escaped:
            parts[-1] += character
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == separator:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def parse(substitutions):
    """{name: value}; exits where a part is not `name:value`."""
    values = {}
    for part in split(substitutions, ","):
        pair = split(part, ":")
        if len(pair) != 2:
            sys.exit(
                f"fill_template.py: got {part!r} in the substitutions, which must be name:value,name:value,...; write a colon "
                "inside a value as \\\\: and a comma as \\,"
            )
        values[pair[0]] = pair[1]
    return values


def fill(text, given):
    """The filled text, and the given names that stand nowhere in it."""
    values = dict(given)
    if "${max_queue_size}" in text:  # templates from 0.12 on; both have a number's place, which no text may take
        values = {"max_queue_size": "0", "max_queue_delay_microseconds": "0", **values}
    return string.Template(text).safe_substitute(values), [name for name in given if name not in text]


def main():
    parser = argparse.ArgumentParser(description="Fills the places ${name} of a template.")
    parser.add_argument("file_path", help="the template")
    parser.add_argument("substitutions", nargs="?", default="", help="name:value,name:value,...")
    parser.add_argument("--in_place", "-i", action="store_true", help="write the result to the template's own file")
    parser.add_argument("--participant_ids", default="", help="value of participant_ids; it may have commas")
    arguments = parser.parse_args()
    path = pathlib.Path(arguments.file_path)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"fill_template.py: cannot read {path}: {error}")
    given = parse(arguments.substitutions) if arguments.substitutions else {}
    if arguments.participant_ids:
        given["participant_ids"] = arguments.participant_ids
    filled, unknown = fill(text, given)
    for name in unknown:
        print(f"fill_template.py: warning: {name} stands nowhere in {path}; it is left out", file=sys.stderr)
    if not arguments.in_place:
        print(filled)
        return
    try:
        path.write_text(filled)
    except OSError as error:
        sys.exit(f"fill_template.py: cannot write {path}: {error}")


if __name__ == "__main__":
    main()
