# SPDX-License-Identifier: Apache-2.0
"""Lines of a server's log (docs/operations.md, "The log")."""

import json
import re

PLACE = r'(\d+) \w+\.cc:\d+\] (".*")$'
DEFAULT = re.compile(r"^([IWEF])\d{4} \d\d:\d\d:\d\d\.\d{6} " + PLACE)
ISO8601 = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ([IWEF]) " + PLACE)


def records(text, form=None):
    """[severity, process, message] of the lines that are records, of one format or both; tables stand between them."""
    forms = [form] if form else [DEFAULT, ISO8601]
    found = [match for line in text.splitlines() for form in forms if (match := form.match(line))]
    return [(m[1], int(m[2]), json.loads(m[3])) for m in found]


def messages(text, form=None):
    return [message for _, _, message in records(text, form)]
