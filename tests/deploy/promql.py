# SPDX-License-Identifier: Apache-2.0
"""Reads what an expression of Prometheus' language asks for; an expression with anything else than these words fails."""

import re

TOKEN = re.compile(
    r"""(?P<blank>\s+)|(?P<text>"[^"\n]*")|(?P<range>\[(?:\d+[smhd]|\$__rate_interval)\])|(?P<number>\d+(?:\.\d+)?)
    |(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)|(?P<operator>=~|!=|!~|==|>=|<=|[-+*/><=,])|(?P<open>[({])|(?P<close>[)}])""",
    re.VERBOSE,
)
FUNCTIONS = {"rate", "histogram_quantile"}
AGGREGATIONS = {"sum", "max", "avg"}
WORDS = {"by", "and"}


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
        elif kind == "name" and word not in WORDS:
            found.append((word, set()))
    assert not brackets, expression
    return found, groups
