# SPDX-License-Identifier: Apache-2.0
"""A template in the shape of Seed-OSS's, in words of our own: a table by numbers that is sorted, functions as Python
writes them, calls as tags in tags, and a budget of thinking that is said, and begun where it is 0."""

SEED_OSS = """\
{%- set open, close = '<seed:bos>', '<seed:eos>' -%}
{%- set budget = thinking_budget if thinking_budget is defined else -1 -%}
{%- set pauses = {0: 0, 4096: 400, 512: 100, 1024: 200} -%}
{%- set chosen = namespace(pause=None) -%}
{%- for most, pause in pauses | dictsort if budget <= most -%}
  {%- if chosen.pause is none %}{% set chosen.pause = pause %}{% endif -%}
{%- endfor -%}
{%- if chosen.pause is none %}{% set chosen.pause = pauses[4096] %}{% endif -%}
{%- set functions = tools if tools is defined and tools is not none else [] -%}

{%- macro kind(name) -%}
  {%- if name == 'string' -%} str
  {%- elif name in ('number', 'integer') -%} int
  {%- elif name == 'array' -%} list
  {%- else -%} Any
  {%- endif -%}
{%- endmacro -%}

{%- macro thought(turn) -%}
  {%- if turn.reasoning_content is defined and turn.reasoning_content is string and turn.reasoning_content | trim | length > 0 -%}
    {{ '\\n<seed:think>' + turn.reasoning_content | trim + '</seed:think>' }}
  {%- endif -%}
{%- endmacro -%}

{%- set has_system = messages[0]['role'] == 'system' -%}
{%- if has_system or functions | length > 0 -%}
{{ open + 'system\\n' + (messages[0]['content'] if has_system else 'Functions may help.') }}
  {%- for one in functions if one.type == 'function' %}

def {{ one.function.name }}(
    {%- for name, spec in one.function.parameters.properties.items() -%}
      {{ name }}:{{ kind(spec.type) }}{% if not loop.last %}, {% endif %}
    {%- endfor %}):
    \"\"\"{{ one.function.description | trim }}
    {%- for name, spec in one.function.parameters.properties.items() %}

    - {{ name }} {{ '(always)' if name in one.function.parameters.required else '(may)' }}:
      {{- ' ' ~ (spec.description or '') }}
    {%- endfor %}

    \"\"\"
  {%- endfor %}
  {%- if functions is iterable and functions | length > 0 %}

{{ '<seed:tool_call>\\n<function=NAME>\\n<parameter=A>1</parameter>\\n</function>\\n</seed:tool_call>\\n' }}
  {%- endif -%}
{{ close }}
{%- endif -%}
{%- if budget == 0 -%}
{{ open + 'system\\nAnswer at once.' + close }}
{%- elif not budget == -1 -%}
{{ open + 'system\\nThink with ' }}{{ budget }}{{ ' tokens, and pause each ' }}{{ chosen.pause }}{{ '.' + close }}
{%- endif -%}

{%- for turn in (messages[1:] if has_system else messages) -%}
  {%- if turn.role != 'assistant' -%}
{{ open + turn.role + '\\n' + turn.content + close }}
    {%- continue -%}
  {%- endif -%}
{{ open + 'assistant' + thought(turn) }}
  {%- if turn.content is defined and turn.content is string and turn.content | trim | length > 0 -%}
{{ '\\n' + turn.content | trim }}
  {%- endif -%}
  {%- for call in turn.tool_calls or [] -%}
    {%- if call.function is defined %}{% set call = call.function %}{% endif -%}
{{ '\\n<seed:tool_call>\\n<function=' + call.name + '>\\n' }}
    {%- for name, value in call.arguments | items -%}
      {%- set value = value if value is string else value | string -%}
{{ '<parameter=' + name + '>' + value + '</parameter>\\n' }}
    {%- endfor -%}
{{ '</function>\\n</seed:tool_call>' }}
  {%- endfor -%}
{{ close }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ open + 'assistant\\n' }}{% if budget == 0 %}{{ '<seed:think>' + '<seed:cot_budget_reflect>' }}{% endif %}
{%- endif -%}
"""

ALL = {"seed_oss": SEED_OSS}
