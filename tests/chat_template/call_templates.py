# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501
"""Templates in the shapes of MiniCPM3's and Jamba tiny's, in words of our own: macros that are called with a block,
which they put where they like, and macros of a list that are called with arguments of another."""

# Functions as stubs of Python. A macro writes the fields of an object behind what its block says, and before that the
# classes that those fields need, by calling itself with a block.
STUBS = """\
{%- macro kind(name, spec) -%}
  {%- set simple = {'string': 'str', 'number': 'float', 'integer': 'int', 'boolean': 'bool'} -%}
  {%- if spec.enum %}{{ name | title }}
  {%- elif spec.type is string and spec.type in simple %}{{ simple[spec.type] }}
  {%- elif spec.type == 'array' %}{{ 'list[' ~ (kind(name, spec['items']) if spec['items'] else 'Any') ~ ']' }}
  {%- elif spec.type == 'object' and spec.properties %}{{ name | title }}
  {%- else %}Any{% endif -%}
{%- endmacro -%}
{%- macro fields(spec, indent='  ') -%}
  {%- set head = caller() -%}
  {%- set lines = namespace(text=head) -%}
  {%- for name, field in (spec.properties or {}) | items -%}
    {%- set inner = field['items'] if field.type == 'array' and field['items'] else field -%}
    {%- if inner.type == 'object' and inner.properties -%}
      {%- call fields(inner) -%}
        {{- '\\nclass ' + name | title + ':  # ' + loop.index | string + ' of ' ~ loop.length ~ '\\n' -}}
      {%- endcall -%}
    {%- endif -%}
    {%- set lines.text = lines.text + indent + name + ': ' + kind(name, field) + (' = ' ~ field.default | tojson if field.default is defined else '') + '\\n' -%}
  {%- endfor -%}
  {{- lines.text -}}
{%- endmacro -%}
{%- macro stubs(tools) -%}
  {%- for tool in tools -%}
    {%- set said = tool.function -%}
    {%- call fields(said.parameters, indent='    ') -%}
      {{- '\\ndef ' + said.name + '(' -}}
      {%- for name in said.parameters.properties %}{{ ', ' if not loop.first }}{{ name }}{% endfor -%}
      {{- '): # ' + said.description + '\\n' -}}
    {%- endcall -%}
  {%- endfor -%}
{%- endmacro -%}
{{- '<|im_start|>system\\n' + stubs(tools) + '<|im_end|>\\n' if tools -}}
{%- for turn in messages -%}
  {{- '<|im_start|>' + turn.role + '\\n' ~ (turn.content or '') ~ '<|im_end|>\\n' -}}
{%- endfor -%}
{{- '<|im_start|>assistant\\n' if add_generation_prompt -}}
"""

# What stands before the last user's turn is a list of macros, each with a list of its arguments.
SECTIONS = """\
{%- macro shown_tools(tools, head='# Tools') -%}{{ head }}{% for tool in tools %}
{{ loop.index }}. {{ tool.function.name }}{% endfor %}
{% endmacro -%}
{%- macro effort(level, budget=none) -%}{{ 'Effort: ' ~ level ~ (', ' ~ budget ~ ' tokens' if budget is not none) }}
{% endmacro -%}
{%- set sections, arguments = [], [] -%}
{%- if tools %}{% set sections = sections + [shown_tools] %}{% set arguments = arguments + [[tools]] %}{% endif -%}
{%- if reasoning_effort is defined %}{% set sections = sections + [effort] %}{% set arguments = arguments + [(reasoning_effort,)] %}{% endif -%}
{%- if thinking_budget is defined %}{% set sections = sections + [effort] %}{% set arguments = arguments + [['some', thinking_budget]] %}{% endif -%}
{%- for turn in messages -%}
  {%- if loop.last -%}
    {%- for i in range(sections | length) %}{{ sections[i](*arguments[i]) }}{% endfor -%}
  {%- endif -%}
  {{- '<' ~ turn.role ~ '>' ~ (turn.content or '') ~ '\\n' -}}
{%- endfor -%}
{{- '<assistant>' if add_generation_prompt -}}
"""

ALL = {"stubs": STUBS, "sections": SECTIONS}
