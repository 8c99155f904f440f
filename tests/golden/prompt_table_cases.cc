// SPDX-License-Identifier: Apache-2.0
#include "prompt_table_cases.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "golden_reference.h"

namespace inflight::golden {

Request PromptTableCase::GreedyRequest() const {
  Request request;
  request.input_ids = prompt;
  request.prompt_table = table;
  request.max_tokens = static_cast<int>(greedy.size());
  return request;
}

std::vector<PromptTableCase> ReadPromptTableCases() {
  std::ifstream file(DataDir().parent_path() / "prompt_tables.json");
  const auto json = nlohmann::json::parse(file);
  std::vector<PromptTableCase> cases;
  for (const auto& entry : json.at("cases")) {
    PromptTableCase& c = cases.emplace_back();
    ReadCase(entry, &c);
    auto table = std::make_shared<PromptTable>();
    for (const auto& row : entry.at("table")) {
      ++table->num_rows;
      table->hidden_size = static_cast<int>(row.size());
      for (const float value : row) table->values.push_back(value);
    }
    c.table = std::move(table);
    c.beams = entry.at("beams").get<std::vector<std::vector<TokenId>>>();
  }
  return cases;
}

}  // namespace inflight::golden
