#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes the tests of supported keywords out of json-schema-org/JSON-Schema-Test-Suite.

usage: tests/grammar/take_suite.py CHECKOUT

Writes tests/grammar/data/suite.json, {file: groups of tests}, under the suite's own licence, which stands beside it.
"""

import json
import pathlib
import sys

DATA = pathlib.Path(__file__).resolve().parent / "data"
KEYWORDS = ["additionalProperties", "allOf", "anyOf", "boolean_schema", "const", "enum", "exclusiveMaximum",
            "exclusiveMinimum", "items", "maxItems", "maxLength", "maximum", "minItems", "minLength", "minimum", "multipleOf",
            "oneOf", "pattern", "patternProperties", "prefixItems", "properties", "propertyNames", "ref", "required", "type"]
FORMATS = ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"]


def main():
    folder = pathlib.Path(sys.argv[1]) / "tests/draft2020-12"
    files = [*KEYWORDS, *(f"optional/format/{name}" for name in FORMATS)]
    suite = {name: json.loads((folder / f"{name}.json").read_text()) for name in files}
    lines = [f"{json.dumps(name)}: {json.dumps(groups, separators=(',', ':'))}" for name, groups in suite.items()]
    (DATA / "suite.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    (DATA / "LICENSE").write_text((folder.parent.parent / "LICENSE").read_text())


if __name__ == "__main__":
    main()
