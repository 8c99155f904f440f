// SPDX-License-Identifier: Apache-2.0
// Whatever a template says, parsing and rendering it end without an abort.
#include "chat_template/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inflight::chat_template;
  const auto parsed = Template::Parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!parsed.ok()) return 0;
  static const Value messages = *Value::FromJson(
      R"([{"role": "system", "content": " Be \u00e9 kind.\n"},
          {"role": "user", "content": [{"type": "text", "text": "1 < 2"}]},
          {"role": "assistant", "content": null, "tool_calls": [{"name": "f", "n": 1.5}]}])");
  (void)parsed->Render({{"messages", messages},
                        {"add_generation_prompt", Value(true)},
                        {"bos_token", Value(std::string("<s>"))}},
                       0);
  return 0;
}
