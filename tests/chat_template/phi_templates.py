# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501
"""Templates in the shapes of Phi 3, 3.5, 4 and 4-mini, in words of our own."""

# The generation prompt is part of the loop, behind the last user turn.
PHI_3 = """\
{{ bos_token }}{% for turn in messages %}
{% if (turn['role'] == 'user') %}
{{ '<|user|>' + '\\n' + turn['content'] + '<|end|>' + '\\n' + '<|assistant|>' + '\\n' }}
{% elif (turn['role'] == 'assistant') %}
{{ turn['content'] + '<|end|>' + '\\n' }}
{% endif %}
{% endfor %}"""

# Line ends stand in the literals; without a generation prompt the text ends with the end of texts.
PHI_3_5 = """\
{% for turn in messages %}{% if turn['role'] == 'system' and turn['content'] %}{{ '<|system|>
' + turn['content'] + '<|end|>
' }}{% elif turn['role'] == 'user' %}{{ '<|user|>
' + turn['content'] + '<|end|>
' }}{% elif turn['role'] == 'assistant' %}{{ '<|assistant|>
' + turn['content'] + '<|end|>
' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>
' }}{% else %}{{ eos_token }}{% endif %}"""

PHI_4 = (
    "{% for turn in messages %}{% if (turn['role'] == 'system') %}{{ '<|im_start|>system<|im_sep|>' + turn['content'] + '<|im_end|>' }}"
    "{% elif (turn['role'] == 'user') %}{{ '<|im_start|>user<|im_sep|>' + turn['content'] + '<|im_end|>' }}"
    "{% elif (turn['role'] == 'assistant') %}{{ '<|im_start|>assistant<|im_sep|>' + turn['content'] + '<|im_end|>' }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}"
)

# Tools are a member of the system turn, as text.
PHI_4_MINI = (
    "{% for turn in messages %}{% if turn['role'] == 'system' and 'tools' in turn and turn['tools'] is not none %}"
    "{{ '<|' + turn['role'] + '|>' + turn['content'] + '<|tool|>' + turn['tools'] + '<|/tool|>' + '<|end|>' }}"
    "{% else %}{{ '<|' + turn['role'] + '|>' + turn['content'] + '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}"
)

# What servers give Phi 4-mini for tools: text between tags, which is trimmed by its signs alone.
PHI_4_MINI_TOOLS = """\
{%- if messages and messages[0]['role'] == 'system' %}
    {%- set instructions = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set instructions = "Be of use." %}
{%- endif %}

{%- if messages %}
<|system|>
{{ instructions }}
{%- if tools %}
Functions may be called:
  * a call begins with functools
  * all calls are one list, functools[{"name": [name], "arguments": [JSON]}, ...]


        {%- for one in tools %}
            {{- one | tojson(indent=4) }}
            {{- "\\n\\n" }}
        {%- endfor %}
{%- endif %}<|end|>

    {%- for turn in messages %}
        {%- if turn.role != "system" %}
<|{{ turn.role }}|>
            {%- if turn.content and turn.role == "tool" %}
{"result": {{ turn.content }}}
            {%- elif turn.content %}
{{ turn.content }}
            {%- elif turn.tool_calls %}
                {%- for call in turn.tool_calls %}
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments }}}
                    {%- if not loop.last %},{% endif %}
                {%- endfor %}
            {%- endif %}<|end|>
        {%- endif %}
    {%- endfor %}<|assistant|>

{%- else %}
    {%- if prompt %}
<|user|>

{{ prompt }}<|end|>
    {%- endif %}<|assistant|>

{%- endif %}
{{ response }}
{%- if response %}<|user|>{% endif %}
"""

ALL = {name.lower(): value for name, value in list(globals().items()) if name.isupper() and isinstance(value, str)}
