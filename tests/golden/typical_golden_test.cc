// SPDX-License-Identifier: Apache-2.0
// Draws with typical_p against the probabilities that transformers' warpers leave (typical.json,
// made by make_typical_golden.py), by chi-square.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "decoding/sampler.h"

namespace inflight {
namespace {

constexpr size_t kDraws = 20'000;

SamplingParams ParamsOf(const nlohmann::json& rules) {
  SamplingParams params;
  const auto read = [&rules](const char* name, auto& field) {
    if (rules.contains(name)) field = rules.at(name).get<float>();
  };
  read("temperature", params.temperature);
  read("top_p", params.top_p);
  read("min_p", params.min_p);
  read("typical_p", params.typical_p);
  if (rules.contains("top_k")) params.top_k = rules.at("top_k").get<int>();
  return params;
}

std::vector<double> Counts(const SamplingParams& params, const std::vector<float>& logits) {
  Request request;
  request.sampling = params;
  const auto vocab_size = static_cast<int>(logits.size());
  decoding::Sampler sampler(/*max_slots=*/1, vocab_size, /*max_concurrency=*/1);
  const std::vector<TokenId> tokens(kDraws);  // only their number counts
  sampler.Setup(0, decoding::MakeSamplingRule(request, /*seed=*/5, /*num_prompt_tokens=*/0), {},
                kDraws);
  std::vector<double> counts(logits.size());
  std::vector<float> row;
  for (size_t i = 0; i < kDraws; ++i) {
    row = logits;
    ++counts[static_cast<size_t>(sampler.Sample(0, std::span(tokens).first(i), row.data()).id)];
  }
  return counts;
}

TEST(TypicalGoldenTest, TokensAreDrawnWithTheProbabilitiesThatTransformersLeaves) {
  const auto path = std::filesystem::path(INFLIGHT_GOLDEN_DATA).parent_path() / "typical.json";
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file);
  ASSERT_GE(json.at("cases").size(), 30U);
  for (const auto& entry : json.at("cases")) {
    SCOPED_TRACE(entry.at("rules").dump());
    const auto logits = entry.at("logits").get<std::vector<float>>();
    std::vector<double> probabilities(logits.size());
    for (const auto& [id, p] : entry.at("probabilities").items()) {
      probabilities[std::stoul(id)] = p.get<double>();
    }
    const std::vector<double> counts = Counts(ParamsOf(entry.at("rules")), logits);
    double statistic = 0;
    int num_bins = 0;
    for (size_t id = 0; id < counts.size(); ++id) {
      if (probabilities[id] == 0) {
        EXPECT_EQ(counts[id], 0) << "id " << id << " was left out";
        continue;
      }
      const double want = kDraws * probabilities[id];
      EXPECT_GT(counts[id], 0) << "id " << id << " was left in";
      statistic += (counts[id] - want) * (counts[id] - want) / want;
      ++num_bins;
    }
    EXPECT_LE(statistic, num_bins - 1 + 5 * std::sqrt(2.0 * num_bins)) << "five deviations";
  }
}

}  // namespace
}  // namespace inflight
