# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501
"""A template in the shape of Gemma 4's, in words of our own: dicts by their sorted keys, macros that call one that
follows, thoughts that are cut from earlier answers, results that belong to the call before them."""

GEMMA_4 = """\
{%- macro written(value, quoted=True) -%}
    {%- if value is string -%}
        {{- '<|"|>' + value + '<|"|>' -}}
    {%- elif value is boolean -%}
        {{- 'true' if value else 'false' -}}
    {%- elif value is mapping -%}
        {{- members(value, quoted) -}}
    {%- elif value is sequence -%}
        {{- '[' -}}
        {%- for one in value -%}
            {{- written(one, quoted) -}}
            {%- if not loop.last %},{% endif -%}
        {%- endfor -%}
        {{- ']' -}}
    {%- else -%}
        {{- value -}}
    {%- endif -%}
{%- endmacro -%}
{%- macro members(dict, quoted) -%}
    {{- '{' -}}
    {%- set seen = namespace(one=false) -%}
    {%- for key, value in dict | dictsort -%}
        {%- if value is not none -%}
            {%- if seen.one %},{% endif -%}
            {%- set seen.one = true -%}
            {{ '<|"|>' + key + '<|"|>' if quoted else key }}:{{ written(value, quoted) }}
        {%- endif -%}
    {%- endfor -%}
    {{- '}' -}}
{%- endmacro -%}
{%- macro parameters(properties) -%}
    {%- set seen = namespace(one=false) -%}
    {%- for name, schema in properties | dictsort(reverse=true) -%}
        {%- set comma = false -%}
        {%- if schema is mapping -%}
            {%- if seen.one %},{% endif -%}
            {%- set seen.one = true -%}
            {{ name }}:{
            {%- if schema['description'] -%}
                description:<|"|>{{ schema['description'] }}<|"|>
                {%- set comma = true -%}
            {%- endif -%}
            {%- if schema['enum'] -%}
                {%- if comma %},{%- else -%} {%- set comma = true -%} {% endif -%}
                enum:{{ written(schema['enum'] | sort) }}
            {%- endif -%}
            {%- if schema['properties'] is mapping -%}
                {%- if comma %},{%- else -%} {%- set comma = true -%} {% endif -%}
                properties:{ {{- parameters(schema['properties']) -}} }
            {%- endif -%}
            {%- if comma %},{% endif -%}
            type:<|"|>{{ schema['type'] | default('any', true) | upper if schema['type'] is not sequence or schema['type'] is string else schema['type'] | map('upper') | list }}<|"|>}
        {%- endif -%}
    {%- endfor -%}
{%- endmacro -%}
{%- macro without_thoughts(text) -%}
    {%- set kept = namespace(text='') -%}
    {%- for part in text.split('<channel|>') -%}
        {%- set kept.text = kept.text + (part.split('<|channel>')[0] if '<|channel>' in part else part) -%}
    {%- endfor -%}
    {{- kept.text | trim -}}
{%- endmacro -%}
{%- set loop_messages = messages -%}
{{ bos_token }}
{%- if tools or messages[0]['role'] in ['system', 'developer'] or (enable_thinking is defined and enable_thinking) -%}
    {{- '<|turn>system\\n' -}}
    {%- if enable_thinking is defined and enable_thinking -%}
        {{- '<|think|>' -}}
    {%- endif -%}
    {%- if messages[0]['role'] in ['system', 'developer'] -%}
        {{- messages[0]['content'] | trim -}}
        {%- set loop_messages = messages[1:] -%}
    {%- endif -%}
    {%- for tool in tools or [] -%}
        {{- '<|tool>declaration:' + tool['function']['name'] -}}{description:<|"|>{{- tool['function']['description'] -}}<|"|>
        {%- if tool['function']['parameters']['properties'] -%}
            ,parameters:{ {{- parameters(tool['function']['parameters']['properties']) -}} }
        {%- endif -%}
        {{- '}<tool|>' -}}
    {%- endfor -%}
    {{- '<turn|>\\n' -}}
{%- endif -%}
{%- set last = namespace(kind='') -%}
{%- for message in loop_messages -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {%- if message['role'] == 'tool' -%}
        {{- '<|tool_response>response:' + (message['name'] | default('unknown')) -}}{value:{{ written(message['content'], False) }}}{{- '<tool_response|>' -}}
    {%- else -%}
        {%- if last.kind != role -%}{{- '<|turn>' + role + '\\n' -}}{%- endif -%}
        {%- for call in message['tool_calls'] or [] -%}
            {%- set arguments = call['function']['arguments'] -%}
            {{- '<|tool_call>call:' + call['function']['name'] -}}
            {{- members(arguments, False) if arguments is mapping else '{' + arguments + '}' -}}
            {{- '<tool_call|>' -}}
        {%- endfor -%}
        {%- if message['content'] is string -%}
            {{- without_thoughts(message['content']) if role == 'model' else message['content'] | trim -}}
        {%- elif message['content'] is sequence -%}
            {%- for part in message['content'] | sort(attribute='type') -%}
                {{- part['text'] | trim if part['type'] == 'text' else '<|' ~ part['type'] ~ '|>' -}}
            {%- endfor -%}
        {%- endif -%}
        {%- if not message['tool_calls'] -%}{{- '<turn|>\\n' -}}{%- endif -%}
    {%- endif -%}
    {%- set last.kind = 'model' if message['tool_calls'] or message['role'] == 'tool' else '' -%}
{%- endfor -%}
{%- if add_generation_prompt and last.kind != 'model' -%}
    {{- '<|turn>model\\n' -}}
{%- endif -%}
"""

ALL = {"gemma_4": GEMMA_4}
