// SPDX-License-Identifier: Apache-2.0
#include "golden_case.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "worse.h"

namespace inflight::golden {

void ReadCase(const nlohmann::json& entry, GoldenCase* out) {
  out->model = entry.at("model");
  out->prompt = entry.at("prompt").get<std::vector<TokenId>>();
  out->greedy = entry.at("greedy").get<std::vector<TokenId>>();
  out->positions = entry.at("positions").get<std::vector<int>>();
  out->logits = entry.at("logits").get<std::vector<std::vector<float>>>();
  out->noise_gain = entry.value("noise_gain", 0.0F);
}

float WorstLogit(const GoldenCase& c, const std::vector<float>& logits) {
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
      worst = Worse(worst, difference);
    }
  }
  return worst;
}

double LogProbOf(std::span<const TokenId> ids, size_t num_before, std::span<const float> logits,
                 size_t vocab_size) {
  double sum = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto row = logits.subspan((num_before - 1 + i) * vocab_size, vocab_size);
    double all = 0;
    for (const float x : row) all += std::exp(static_cast<double>(x));
    sum += row[static_cast<size_t>(ids[i])] - std::log(all);
  }
  return sum;
}

}  // namespace inflight::golden
