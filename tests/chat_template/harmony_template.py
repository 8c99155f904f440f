# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501
"""A template in the shape of gpt-oss's, in words of our own: macros that call themselves and read what the request
gives, functions as types, channels, reasoning of earlier answers that counts or not."""

GPT_OSS = """\
{#-
  Variables of the request: builtin_tools, model_identity, reasoning_effort.
 #}

{#- Types =================== #}
{%- macro type_of(schema, required, or_null=false) -%}
    {%- if schema.type == "array" -%}
        {%- if schema['items'] -%}
            {%- if schema['items']['type'] in ("string", "boolean") -%}
                {{- schema['items']['type'] + "[]" }}
            {%- elif schema['items']['type'] == "number" or schema['items']['type'] == "integer" -%}
                {{- "number[]" }}
            {%- else -%}
                {%- set inner = type_of(schema['items'], required) -%}
                {%- if inner == "object | object" or inner|length > 60 -%}
                    {{- "any[]" }}
                {%- else -%}
                    {{- inner + "[]" }}
                {%- endif -%}
            {%- endif -%}
        {%- else -%}
            {{- "any[]" }}
        {%- endif -%}
        {%- if schema.nullable -%}
            {{- " | null" }}
        {%- endif -%}
    {%- elif schema.type is defined and schema.type is iterable and schema.type is not string and schema.type is not mapping and schema.type[0] is defined -%}
        {{- schema.type | join(" | ") if schema.type | length > 1 else schema.type[0] }}
    {%- elif schema.oneOf -%}
        {%- set objects = false -%}
        {%- for one in schema.oneOf -%}
            {%- if one.type == "object" -%}
                {%- set objects = true -%}
            {%- endif -%}
        {%- endfor -%}
        {%- if objects and schema.oneOf|length > 1 -%}
            {{- "any" }}
        {%- else -%}
            {%- for one in schema.oneOf -%}
                {{- type_of(one, required) -}}
                {%- if one.description %}
                    {{- "// " + one.description }}
                {%- endif -%}
                {%- if one.default is defined %}
                    {{ "// is " + one.default|tojson }}
                {%- endif -%}
                {%- if not loop.last %}
                    {{- " | " }}
                {% endif -%}
            {%- endfor -%}
        {%- endif -%}
    {%- elif schema.type == "string" -%}
        {%- if schema.enum -%}
            {{- '"' + schema.enum|join('" | "') + '"' -}}
        {%- else -%}
            {{- "string" }}
            {%- if schema.nullable or or_null %}
                {{- " | null" }}
            {%- endif -%}
        {%- endif -%}
    {%- elif schema.type in ["number", "integer"] -%}
        {{- "number" }}
    {%- elif schema.type == "boolean" -%}
        {{- "boolean" }}

    {%- elif schema.type == "object" -%}
        {%- if schema.properties -%}
            {{- "{\\n" }}
            {%- for name, inner in schema.properties.items() -%}
                {{- name -}}
                {%- if name not in (schema.required or []) -%}
                    {{- "?" }}
                {%- endif -%}
                {{- ": " }}
                {{ type_of(inner, schema.required or []) }}
                {%- if not loop.last -%}
                    {{-", " }}
                {%- endif -%}
            {%- endfor -%}
            {{- "}" }}
        {%- else -%}
            {{- "object" }}
        {%- endif -%}
    {%- else -%}
        {{- "any" }}
    {%- endif -%}
{%- endmacro -%}

{%- macro functions_of(space, tools) -%}
    {{- "## " + space + "\\n\\nnamespace " + space + " {\\n\\n" }}
    {%- for tool in tools %}
        {%- set tool = tool.function %}
        {{- "// " + tool.description + "\\n" }}
        {{- "type "+ tool.name + " = " }}
        {%- if tool.parameters and tool.parameters.properties %}
            {{- "(_: {\\n" }}
            {%- for name, schema in tool.parameters.properties.items() %}
                {%- if schema.description %}
                    {{- "// " + schema.description + "\\n" }}
                {%- endif %}
                {{- name }}
                {%- if name not in (tool.parameters.required or []) -%}
                    {{- "?" }}
                {%- endif -%}
                {{- ": " }}
                {{- type_of(schema, tool.parameters.required or []) }}
                {%- if schema.default is defined -%}
                    {%- if schema.enum %}
                        {{- ", // is " + schema.default }}
                    {%- else %}
                        {{- ", // is " + schema.default|tojson }}
                    {%- endif -%}
                {%- endif -%}
                {{- ",\\n" }}
            {%- endfor %}
            {{- "}) => any;\\n\\n" }}
        {%- else -%}
            {{- "() => any;\\n\\n" }}
        {%- endif -%}
    {%- endfor %}
    {{- "} // namespace " + space }}
{%- endmacro -%}

{#- What the model is ======= #}
{%- macro system_turn() -%}
    {%- if model_identity is not defined %}
        {%- set model_identity = "A model that answers." %}
    {%- endif %}
    {{- model_identity + "\\n" }}
    {{- "Today: " + strftime_now("%Y-%m-%d") + "\\n\\n" }}
    {%- if reasoning_effort is not defined %}
        {%- set reasoning_effort = "medium" %}
    {%- endif %}
    {{- "Reasoning: " + reasoning_effort + "\\n\\n" }}
    {%- if builtin_tools %}
        {{- "# Tools\\n\\n" }}
        {%- set has = namespace(browser=false, python=false) %}
        {%- for tool in builtin_tools %}
            {%- if tool == "browser" %}
                {%- set has.browser = true %}
            {%- elif tool == "python" %}
                {%- set has.python = true %}
            {%- endif %}
        {%- endfor %}
        {{- "## browser: `[{cursor}]`, `【6†L9-L11】`\\n\\n" if has.browser }}
        {{- "## python\\n\\n" if has.python }}
    {%- endif -%}
    {{- "# Channels: analysis, commentary, final." }}
    {%- if tools -%}
        {{- "\\nCalls are commentary: 'functions'." }}
    {%- endif -%}
{%- endmacro -%}

{{- "<|start|>system<|message|>" }}
{{- system_turn() }}
{{- "<|end|>" }}

{%- if messages[0].role == "developer" or messages[0].role == "system" %}
    {%- set instructions = messages[0].content %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set instructions = "" %}
    {%- set turns = messages %}
{%- endif %}

{%- if instructions or tools %}
    {{- "<|start|>developer<|message|>" }}
    {%- if instructions %}
        {{- "# Instructions\\n\\n" }}
        {{- instructions }}
        {{- "\\n\\n" }}
    {%- endif %}
    {%- if tools -%}
        {{- "# Tools\\n\\n" }}
        {{- functions_of("functions", tools) }}
    {%- endif -%}
    {{- "<|end|>" }}
{%- endif %}

{%- set called = namespace(name=none) %}
{%- for turn in turns -%}
    {%- if turn.role == 'assistant' -%}
        {%- for member in ("content", "thinking") if member in turn %}
            {%- if "<|channel|>analysis<|message|>" in turn[member] or "<|channel|>final<|message|>" in turn[member] %}
                {{- raise_exception("The " ~ member ~ " of a turn has markers of channels") }}
            {%- endif %}
        {%- endfor %}
        {%- if "tool_calls" in turn %}
            {%- set later = namespace(answer=false) %}
            {%- for other in turns[loop.index:] %}
                {%- if other.role == 'assistant' and "tool_calls" not in other %}
                    {%- set later.answer = true %}
                {%- endif %}
            {%- endfor %}
            {%- set call = turn.tool_calls[0] %}
            {%- if call.function %}
                {%- set call = call.function %}
            {%- endif %}
            {%- if turn.content and turn.thinking %}
                {{- raise_exception("Give content or thinking beside calls, not both") }}
            {%- elif (turn.content or turn.thinking) and not later.answer %}
                {{- "<|start|>assistant<|channel|>analysis<|message|>" + (turn.content or turn.thinking) + "<|end|>" }}
            {%- endif %}
            {{- "<|start|>assistant to=functions." + call.name + "<|channel|>commentary " }}
            {{- (call.content_type if call.content_type is defined else "json") + "<|message|>" }}
            {{- call.arguments|tojson }}
            {{- "<|call|>" }}
            {%- set called.name = call.name %}
        {%- elif loop.last and not add_generation_prompt %}
            {%- if "thinking" in turn %}
                {{- "<|start|>assistant<|channel|>analysis<|message|>" + turn.thinking + "<|end|>" }}
            {%- endif %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + turn.content + "<|return|>" }}
        {%- else %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + turn.content + "<|end|>" }}
            {%- set called.name = none %}
        {%- endif %}
    {%- elif turn.role == 'tool' -%}
        {%- if called.name is none %}
            {{- raise_exception("A result without a call before it") }}
        {%- endif %}
        {{- "<|start|>functions." + called.name }}
        {{- " to=assistant<|channel|>commentary<|message|>" + turn.content|tojson + "<|end|>" }}
    {%- elif turn.role == 'user' -%}
        {{- "<|start|>user<|message|>" + turn.content + "<|end|>" }}
    {%- endif -%}
{%- endfor -%}

{%- if add_generation_prompt -%}
<|start|>assistant
{%- endif -%}
"""

ALL = {"gpt_oss": GPT_OSS}
