// SPDX-License-Identifier: Apache-2.0
#include "lora_cases.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "builder/peft_adapter.h"
#include "golden_reference.h"

namespace inflight::golden {

std::vector<LoraCase> ReadLoraCases() {
  std::ifstream file(DataDir().parent_path() / "lora/cases.json");
  const auto json = nlohmann::json::parse(file);
  std::vector<LoraCase> cases;
  for (const auto& entry : json.at("cases")) {
    LoraCase& c = cases.emplace_back();
    ReadCase(entry, &c);
    c.adapter = entry.at("adapter");
  }
  return cases;
}

std::shared_ptr<const LoraTensors> ReadAdapter(const LoraCase& c) {
  auto read = builder::ReadPeftAdapter(DataDir().parent_path() / "lora" / c.model / c.adapter);
  CHECK(read.ok());
  return std::make_shared<const LoraTensors>(*std::move(read));
}

Request RequestOf(const LoraCase& c, uint64_t id) {
  Request request;
  request.input_ids = c.prompt;
  request.max_tokens = static_cast<int>(c.greedy.size());
  request.output = {.return_context_logits = true, .return_generation_logits = true};
  if (!c.adapter.empty()) request.lora = LoraUse{.id = id, .tensors = ReadAdapter(c)};
  return request;
}

Request WholeOf(const LoraCase& c, uint64_t id) {
  Request request = RequestOf(c, id);
  request.input_ids.insert(request.input_ids.end(), c.greedy.begin(), c.greedy.end() - 1);
  request.max_tokens = 1;
  request.output.return_generation_logits = false;
  return request;
}

// The row of the prompt's last token twice.
std::vector<float> LogitsOfWhole(const LoraCase& c, const std::vector<float>& context_logits) {
  const size_t vocab_size = c.logits[0].size();
  const auto end =
      context_logits.begin() + static_cast<std::ptrdiff_t>(c.prompt.size() * vocab_size);
  std::vector<float> logits(context_logits.begin(), end);
  logits.insert(logits.end(), end - static_cast<std::ptrdiff_t>(vocab_size), context_logits.end());
  return logits;
}

}  // namespace inflight::golden
