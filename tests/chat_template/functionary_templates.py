# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501
"""Templates in the shapes of functionary's, in words of our own: who speaks and who is spoken to in every turn, calls as
tags with JSON, and functions in the notation of TypeScript, which macros write that call each other and themselves."""

# A turn says from whom it is and to whom; what follows the last one begins with who speaks.
FUNCTIONARY_2 = """\
{% for turn in messages %}
{% if turn['role'] == 'user' or turn['role'] == 'system' %}
{{ '<|from|>' + turn['role'] + '\\n<|recipient|>all\\n<|content|>' + turn['content'] + '\\n' }}{% elif turn['role'] == 'tool' %}
{{ '<|from|>' + (turn['name'] if 'name' in turn else 'tool') + '\\n<|recipient|>all\\n<|content|>' + turn['content'] + '\\n' }}{% else %}
{% set said = 'content' in turn and turn['content'] is not none and turn['content'] | length > 0 %}
{% if said %}
{{ '<|from|>assistant\\n<|recipient|>all\\n<|content|>' + turn['content'] }}{% endif %}
{% for call in turn['tool_calls'] or [] %}
{{ ('' if loop.first and not said else '\\n') + '<|from|>assistant\\n<|recipient|>' + call['function']['name'] + '\\n<|content|>' }}
{{- call['function']['arguments'] if call['function']['arguments'] is string else call['function']['arguments'] | tojson }}{% endfor %}
{{ '<|stop|>\\n' }}{% endif %}
{% endfor %}
{% if add_generation_prompt %}{{ '<|from|>assistant\\n<|recipient|>' }}{% endif %}"""

# Calls are tags whose names are the functions'.
FUNCTIONARY_3_1 = """\
{{- bos_token }}
{%- set builtin = (builtin_tools | default([])) -%}
{%- if tools or builtin %}
    {{- '<|start_header_id|>system<|end_header_id|>\\n\\nFunctions:\\n' }}
    {%- for name in builtin | sort %}{{ name ~ (', ' if not loop.last else '\\n') }}{% endfor %}
    {%- for tool in tools or [] %}
        {%- if 'type' in tool and tool['type'] in ('function', 'code_interpreter') %}
            {%- set it = tool['function'] | default({}) %}
            {{- "\\nUse '" ~ it['name'] ~ "' to '" ~ it['description'] ~ "'\\n" ~ (it | tojson) ~ '\\n' }}
        {%- endif %}
    {%- endfor %}
    {{- 'A call is <function=NAME>{"a": 1}</function>' ~ '<|eot_id|>' }}
{%- endif %}
{%- for turn in messages %}
    {{- '<|start_header_id|>' ~ ('ipython' if turn['role'] == 'tool' else turn['role']) ~ '<|end_header_id|>\\n\\n' }}
    {{- turn['content'] if turn['content'] }}
    {%- if 'tool_calls' in turn and turn['tool_calls'] %}
        {%- for call in turn['tool_calls'] %}
            {%- if call['function']['name'] == 'python' %}
                {{- '<|python_tag|>' + call['function']['arguments'] }}
            {%- else %}
                {{- '<function=' + call['function']['name'] + '>' ~ call['function']['arguments'] ~ '</function>' }}
            {%- endif %}
        {%- endfor %}
        {{- '<|eom_id|>' }}
    {%- else %}
        {{- '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""

# Parts of an answer begin with whom they are for.
FUNCTIONARY_3_2 = """\
{%- macro type_of(spec) -%}
    {%- if 'enum' in spec -%}
        {%- for one in spec.enum -%}{{ one | tojson }}{% if not loop.last %} | {% endif %}{%- endfor -%}
    {%- elif 'anyOf' in spec or 'oneOf' in spec -%}
        {%- for one in (spec.anyOf if spec.anyOf is defined else spec.oneOf) -%}
            {{ type_of(one) }}{% if not loop.last %} | {% endif %}
        {%- endfor -%}
    {%- elif spec.type is not defined -%}any
    {%- elif spec.type is not string and spec.type is iterable -%}{{ spec.type | join(' | ') }}
    {%- elif spec.type == 'array' -%}{{ type_of(spec['items']) if 'items' in spec else 'any' }}[]
    {%- elif spec.type == 'object' and spec.properties is mapping -%}{{ '{' ~ members(spec, 1) ~ '\\n}' }}
    {%- elif spec.type in ['integer', 'float'] -%}number
    {%- else -%}{{ spec.type }}
    {%- endif -%}
{%- endmacro -%}
{%- macro note(spec, depth) -%}
    {%- if spec.description -%}{{ '\\n' ~ '  ' * depth ~ '// ' ~ spec.description | replace('\\n', ' ') }}{%- endif -%}
    {%- if 'default' in spec -%}{{ '\\n' ~ '  ' * depth ~ '// from: ' ~ (spec.default if spec.default is not string else '"' ~ spec.default ~ '"') }}{%- endif -%}
{%- endmacro -%}
{%- macro members(spec, depth) -%}
    {%- for name, one in spec.properties.items() -%}
        {{ note(one, depth) }}{{ '\\n' ~ '  ' * depth ~ name }}{{ '' if name in (spec.required or []) else '?' }}: {{ type_of(one) }},
    {%- endfor -%}
{%- endmacro -%}
{%- macro declared(all) -%}
namespace functions {
    {%- for tool in all -%}
        {%- set it = tool.function if tool.function is defined else tool %}

{{ '// ' ~ it.description ~ '\\n' if it.description }}type {{ it.name }} = (
        {%- if it.parameters is mapping and it.parameters.properties -%}
            {{ '_: {' ~ members(it.parameters, 0) ~ '\\n}' }}
        {%- endif -%}
) => any;
    {%- endfor %}

} // namespace functions
{%- endmacro -%}
{{ '<|start_header_id|>system<|end_header_id|>\\n\\n' ~ (declared(tools) if tools) ~ '<|eot_id|>' }}
{%- for turn in messages -%}
    {%- set is_answer = turn.role == 'assistant' -%}
    {{ '<|start_header_id|>' ~ turn.role ~ '<|end_header_id|>\\n\\n' }}
    {%- if turn.content is not none and turn.content is defined and (turn.content or not is_answer) -%}
        {{ ('>>>all\\n' if is_answer) ~ turn.content }}
    {%- endif -%}
    {%- for call in (turn.tool_calls or []) if is_answer -%}
        {{ '>>>' + call.function.name + '\\n' + (call.function.arguments if call.function.arguments is string else call.function.arguments | tojson) }}
    {%- endfor -%}
    {{ '<|eot_id|>' }}
{%- endfor -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n>>>' if add_generation_prompt }}"""

ALL = {name.lower(): value for name, value in list(globals().items()) if name.isupper() and isinstance(value, str)}
