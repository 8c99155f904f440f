// SPDX-License-Identifier: Apache-2.0
// Bans, minimal lengths, penalties and biases against transformers' logits processors
// (make_bans_golden.py): all cases of a model at once, so that rows of many rules share steps.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "builder/builder.h"
#include "constants.h"
#include "golden_reference.h"
#include "run_requests.h"

namespace inflight::golden {
namespace {

struct BansCase {
  std::string rules;
  Request request;
  std::vector<std::vector<TokenId>> sequences;
  std::vector<float> scores;  // of beams
};

void Apply(const nlohmann::json& rules, int vocab_size, Request* request) {
  SamplingParams& sampling = request->sampling;
  request->bad_words = rules.value("bad_words_ids", std::vector<std::vector<TokenId>>{});
  request->end_ids = rules.value("end_ids", std::vector<TokenId>{});
  sampling.no_repeat_ngram_size = rules.value("no_repeat_ngram_size", 0);
  // transformers' min_length counts the prompt; make_bans_golden.py adds it.
  sampling.min_tokens = rules.value("min_new_tokens", rules.value("min_length", 0));
  if (rules.contains("repetition_penalty"))
    sampling.repetition_penalty = rules["repetition_penalty"];
  if (!rules.contains("sequence_bias")) return;
  auto bias = std::make_shared<std::vector<float>>(static_cast<size_t>(vocab_size));
  for (const auto& [token, value] : rules["sequence_bias"].items())
    (*bias)[std::stoul(token)] = value;
  request->embedding_bias = std::move(bias);
}

std::vector<BansCase> ReadCases(const std::string& model, int vocab_size) {
  std::ifstream file(DataDir().parent_path() / "bans.json");
  const auto json = nlohmann::json::parse(file);
  std::vector<BansCase> cases;
  for (const auto& entry : json.at("cases")) {
    if (entry.at("model") != model) continue;
    BansCase& c = cases.emplace_back();
    c.rules = entry.at("rules").dump();
    c.request.input_ids = entry.at("prompt").get<std::vector<TokenId>>();
    c.request.max_tokens = json.at("about").at("max_new_tokens");
    c.request.streaming = cases.size() % 2 == 0;
    c.sequences = entry.at("sequences").get<std::vector<std::vector<TokenId>>>();
    if (entry.at("width") > 1) {
      c.request.sampling.beam_width = entry.at("width");
      c.request.sampling.length_penalty = 1;
      c.request.sampling.early_stopping = 0;
      c.scores = entry.at("scores").get<std::vector<float>>();
    }
    Apply(entry.at("rules"), vocab_size, &c.request);
  }
  return cases;
}

class BansGoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(BansGoldenTest, IdsAndBeamsEqualTransformers) {
  const auto device = Device::Cpu(2);
  auto engine =
      builder::Open(DataDir() / GetParam(), *device, {.dtype = DType::kF32, .limits = {}});
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  const std::vector<BansCase> cases = ReadCases(GetParam(), (*engine)->config.vocab_size);
  ASSERT_GE(cases.size(), 30U);
  ExecutorOptions options;
  options.block_size = kBlockSize;
  options.max_kv_tokens = 8192;
  const auto executor = MakeExecutor(*engine, *device, options);
  std::vector<Request> requests;
  for (const BansCase& c : cases) requests.push_back(c.request);
  const auto sinks = RunAll(*executor, requests);
  for (size_t i = 0; i < cases.size(); ++i) {
    const BansCase& c = cases[i];
    const Response& response = sinks[i]->last;
    ASSERT_TRUE(response.status.ok()) << response.status.ToString();
    if (c.scores.empty()) {
      EXPECT_EQ(sinks[i]->ids, c.sequences[0]) << c.rules;
      continue;
    }
    ASSERT_EQ(response.beams.size(), c.sequences.size()) << c.rules;
    for (size_t b = 0; b < c.sequences.size(); ++b) {
      EXPECT_EQ(response.beams[b].output_ids, c.sequences[b]) << c.rules << ", beam " << b;
      EXPECT_NEAR(response.beams[b].score, c.scores[b], kTolerance) << c.rules << ", beam " << b;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, BansGoldenTest,
                         testing::Values("llama_gqa2", "llama_gqa4", "gpt2_tied"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace inflight::golden
