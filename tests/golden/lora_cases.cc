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

}  // namespace inflight::golden
