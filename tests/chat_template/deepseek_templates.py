# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501
"""Templates in the shapes of DeepSeek V3, R1, its distilled models and V3.1, in words of our own."""

# What separates calls and results is what a namespace has seen. V3, R1 and the distilled models differ in their last
# line.
_V3 = """\
{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}
{%- set seen = namespace(call=false, result=false, first_result=true, instructions='') -%}
{%- for turn in messages -%}
  {%- if turn['role'] == 'system' -%}{% set seen.instructions = turn['content'] %}{%- endif -%}
{%- endfor -%}
{{ bos_token }}{{ seen.instructions }}
{%- for turn in messages -%}
  {%- if turn['role'] == 'user' -%}
    {%- set seen.result = false -%}{{ '<｜User｜>' + turn['content'] }}
  {%- endif -%}
  {%- if turn['role'] == 'assistant' and turn['tool_calls'] -%}
    {%- set seen.result = false -%}
    {%- for call in turn['tool_calls'] -%}
      {%- if not seen.call -%}
        {{ '<｜Assistant｜><｜tool▁calls▁begin｜>' }}
        {%- set seen.call = true -%}
      {%- else -%}
        {{ '\\n' }}
      {%- endif -%}
      {{ '<｜tool▁call▁begin｜>' + call['type'] + '<｜tool▁sep｜>' + call['function']['name'] + '\\n```json\\n' + call['function']['arguments'] + '\\n' + '```' + '<｜tool▁call▁end｜>' }}
    {%- endfor -%}
    {{ '<｜tool▁calls▁end｜>' + eos_token }}
  {%- endif -%}
  {%- if turn['role'] == 'assistant' and turn['content'] is not none -%}
    {%- if seen.result -%}
      {{ '<｜tool▁outputs▁end｜>' + turn['content'] + eos_token }}
      {%- set seen.result = false -%}
    {%- else -%}
      {%- set text = turn['content'] -%}
      {%- if '</think>' in text -%}{% set text = text.split('</think>')[-1] %}{%- endif -%}
      {{ '<｜Assistant｜>' + text + eos_token }}
    {%- endif -%}
  {%- endif -%}
  {%- if turn['role'] == 'tool' -%}
    {%- set seen.result = true -%}
    {{ ('<｜tool▁outputs▁begin｜>' if seen.first_result else '\\n') + '<｜tool▁output▁begin｜>' + turn['content'] + '<｜tool▁output▁end｜>' }}
    {%- set seen.first_result = false -%}
  {%- endif -%}
{%- endfor -%}
{%- if seen.result -%}{{ '<｜tool▁outputs▁end｜>' }}{%- endif -%}
"""
DEEPSEEK_V3 = _V3 + "{% if add_generation_prompt and not seen.result %}{{ '<｜Assistant｜>' }}{% endif %}"
DEEPSEEK_R1 = _V3 + "{% if add_generation_prompt and not seen.result %}{{ '<｜Assistant｜><think>\\n' }}{% endif %}"

# Thinking that the request turns on, several system turns, a prefix that the answer goes on from.
DEEPSEEK_V3_1 = """\
{% if not add_generation_prompt is defined %}
{% set add_generation_prompt = false %}
{% endif %}
{% if not thinking is defined %}{% set thinking = enable_thinking is defined and enable_thinking %}{% endif %}
{%- set seen = namespace(call=false, result=false, instructions='', user=false, parts=0) %}
{%- for turn in messages if turn['role'] == 'system' %}
  {%- set seen.instructions = seen.instructions + ('\\n\\n' if seen.parts else '') + turn['content'] %}
  {%- set seen.parts = seen.parts + 1 %}
{%- endfor %}
{{- bos_token }}{{ seen.instructions }}
{%- if tools %}
  {%- set listed = namespace(text='## Tools\\n') %}
  {%- for tool in tools %}
    {%- set listed.text = listed.text + '\\n### ' + tool.function.name + '\\n' + tool.function.description ~ '\\n' + (tool.function.parameters | tojson) %}
  {%- endfor %}
  {{- ('\\n\\n' if seen.instructions else '') ~ listed.text }}
{%- endif %}
{%- for turn in messages %}
  {%- if turn['role'] == 'user' %}
    {%- set seen.result = false -%}
    {%- set seen.call = false -%}
    {%- set seen.user = true -%}
    {{ '<｜User｜>' + turn['content'] }}
  {%- endif %}
  {%- if turn['role'] == 'assistant' and turn['tool_calls'] is defined and turn['tool_calls'] is not none %}
    {%- if seen.user %}{{ '<｜Assistant｜></think>' }}{% endif %}
    {%- set seen.user = false -%}
    {%- set seen.call = false -%}
    {%- for call in turn['tool_calls'] %}
      {%- set arguments = call['function']['arguments'] if call['function']['arguments'] is string else call['function']['arguments'] | tojson %}
      {%- if not seen.call %}
        {{- (turn['content'] or '') + '<｜tool▁calls▁begin｜>' }}
        {%- set seen.call = true %}
      {%- endif %}
      {{- '<｜tool▁call▁begin｜>' + call['function']['name'] + '<｜tool▁sep｜>' + arguments + '<｜tool▁call▁end｜>' }}
    {%- endfor %}
    {{- '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' }}
  {%- elif turn['role'] == 'assistant' %}
    {%- if seen.user %}
      {{- '<｜Assistant｜>' }}{{ '<think>' if turn['prefix'] is defined and turn['prefix'] and thinking else '</think>' }}
    {%- endif %}
    {%- set seen.user = false %}
    {%- if seen.result %}
      {{- turn['content'] + '<｜end▁of▁sentence｜>' }}
      {%- set seen.result = false %}
    {%- else %}
      {%- set text = turn['content'] %}
      {%- if '</think>' in text %}{% set text = text.split('</think>', 1)[1] %}{% endif %}
      {{- text + '<｜end▁of▁sentence｜>' }}
    {%- endif %}
  {%- elif turn['role'] == 'tool' %}
    {%- set seen.user = false %}
    {%- set seen.result = true %}
    {{- '<｜tool▁output▁begin｜>' + turn['content'] + '<｜tool▁output▁end｜>' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt and seen.user and not seen.result %}
  {{- '<｜Assistant｜>' }}
  {%- if not thinking %}{{ '</think>' }}{% else %}{{ '<think>' }}{% endif %}
{%- endif %}"""

ALL = {name.lower(): value for name, value in list(globals().items()) if name.isupper() and name[0] != "_"}
