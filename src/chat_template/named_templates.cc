// SPDX-License-Identifier: Apache-2.0
#include "chat_template/named_templates.h"

namespace inflight::chat_template {
namespace {

struct NamedSource {
  std::string_view name;
  std::string_view source;
};

// Where a family has no turn of the system, its text stands before that of the first user.
// clang-format off
constexpr NamedSource kNamedTemplates[] = {
{"alpaca", R"({% for m in messages %}
{% if m.role == 'system' %}{{ m.content + '\n\n' }}
{%- elif m.role == 'assistant' %}{{ '### Response:\n' + (m.content or '') + eos_token|default('') + '\n\n' }}
{%- else %}{{ '### Instruction:\n' + m.content + '\n\n' }}
{%- endif %}
{% endfor %}
{% if add_generation_prompt %}{{ '### Response:\n' }}{% endif %})"},

{"chatml", R"({% for m in messages %}
{{- '<|im_start|>' + m.role + '\n' + (m.content or '') + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})"},

{"deepseek", R"({{ bos_token|default('') }}
{%- for m in messages %}
{%- if m.role == 'system' %}{{ m.content }}
{%- elif m.role == 'assistant' %}{{ '<｜Assistant｜>' + (m.content or '') + '<｜end▁of▁sentence｜>' }}
{%- else %}{{ '<｜User｜>' + m.content }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %})"},

{"gemma", R"({{ bos_token|default('') }}
{%- set ns = namespace(system='') %}
{%- for m in messages %}
{%- if m.role == 'system' %}{% set ns.system = ns.system + m.content + '\n\n' %}
{%- elif m.role == 'assistant' %}{{ '<start_of_turn>model\n' + (m.content or '')|trim + '<end_of_turn>\n' }}
{%- else %}{{ '<start_of_turn>' + m.role + '\n' + ns.system + m.content|trim + '<end_of_turn>\n' }}
{%- set ns.system = '' %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %})"},

{"llama2", R"({% set ns = namespace(system='') %}
{%- for m in messages %}
{%- if m.role == 'system' %}{% set ns.system = '<<SYS>>\n' + m.content + '\n<</SYS>>\n\n' %}
{%- elif m.role == 'assistant' %}{{ ' ' + (m.content or '')|trim + ' ' + eos_token|default('') }}
{%- else %}{{ bos_token|default('') + '[INST] ' + ns.system + m.content|trim + ' [/INST]' }}
{%- set ns.system = '' %}
{%- endif %}
{%- endfor %})"},

{"llama3", R"({{ bos_token|default('') }}
{%- for m in messages %}
{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + (m.content or '')|trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})"},

{"mistral", R"({{ bos_token|default('') }}
{%- set ns = namespace(system='') %}
{%- for m in messages %}
{%- if m.role == 'system' %}{% set ns.system = ns.system + m.content + '\n\n' %}
{%- elif m.role == 'assistant' %}{{ ' ' + (m.content or '')|trim + eos_token|default('') }}
{%- else %}{{ '[INST] ' + ns.system + m.content + ' [/INST]' }}
{%- set ns.system = '' %}
{%- endif %}
{%- endfor %})"},

{"phi3", R"({% for m in messages %}
{{- '<|' + m.role + '|>\n' + (m.content or '') + '<|end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})"},

{"vicuna", R"({{ bos_token|default('') }}
{%- for m in messages %}
{%- if m.role == 'system' %}{{ m.content + ' ' }}
{%- elif m.role == 'assistant' %}{{ 'ASSISTANT: ' + (m.content or '') + eos_token|default('') }}
{%- else %}{{ 'USER: ' + m.content + ' ' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %})"},

{"zephyr", R"({% for m in messages %}
{{- '<|' + m.role + '|>\n' + (m.content or '') + eos_token|default('') + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})"},
};
// clang-format on

}  // namespace

std::optional<std::string_view> NamedTemplate(std::string_view name) {
  for (const NamedSource& named : kNamedTemplates)
    if (named.name == name) return named.source;
  return std::nullopt;
}

std::string TemplateNames() {
  std::string names;
  for (const NamedSource& named : kNamedTemplates)
    names.append(names.empty() ? "" : ", ").append(named.name);
  return names;
}

}  // namespace inflight::chat_template
