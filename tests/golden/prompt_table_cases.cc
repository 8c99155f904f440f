// SPDX-License-Identifier: Apache-2.0
#include "prompt_table_cases.h"

#include <cmath>
#include <fstream>
#include <limits>
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
    c.model = entry.at("model");
    auto table = std::make_shared<PromptTable>();
    for (const auto& row : entry.at("table")) {
      ++table->num_rows;
      table->hidden_size = static_cast<int>(row.size());
      for (const float value : row) table->values.push_back(value);
    }
    c.table = std::move(table);
    c.prompt = entry.at("prompt").get<std::vector<TokenId>>();
    c.greedy = entry.at("greedy").get<std::vector<TokenId>>();
    c.beams = entry.at("beams").get<std::vector<std::vector<TokenId>>>();
    c.positions = entry.at("positions").get<std::vector<int>>();
    c.logits = entry.at("logits").get<std::vector<std::vector<float>>>();
    c.noise_gain = entry.value("noise_gain", 0.0F);
  }
  return cases;
}

float WorstLogit(const PromptTableCase& c, const std::vector<float>& logits) {
  const size_t vocab_size = c.logits[0].size();
  if (logits.size() != (c.prompt.size() + c.greedy.size()) * vocab_size)
    return std::numeric_limits<float>::infinity();
  float worst = 0;
  for (size_t i = 0; i < c.positions.size(); ++i) {
    // The prompt's last row and the first generated one are the same.
    const auto position = static_cast<size_t>(c.positions[i]);
    const size_t row = position < c.prompt.size() ? position : position + 1;
    for (size_t v = 0; v < vocab_size; ++v) {
      const float difference = std::fabs(logits[row * vocab_size + v] - c.logits[i][v]);
      if (!(difference <= worst)) worst = difference;
    }
  }
  return worst;
}

}  // namespace inflight::golden
