// SPDX-License-Identifier: Apache-2.0
#include "beam_cases.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "golden_reference.h"

namespace inflight::golden {
namespace {

int EarlyStopping(const nlohmann::json& value) {
  if (value.is_string()) return 2;  // "never"
  return value.get<bool>() ? 1 : 0;
}

}  // namespace

std::vector<BeamCase> ReadBeamCases(const std::string& model) {
  std::ifstream file(DataDir().parent_path() / "beam_search.json");
  const auto json = nlohmann::json::parse(file);
  std::vector<BeamCase> cases;
  for (const auto& entry : json.at("cases")) {
    if (entry.at("model") != model) continue;
    BeamCase& c = cases.emplace_back();
    c.request.input_ids = entry.at("prompt").get<std::vector<TokenId>>();
    c.request.max_tokens = json.at("about").at("max_new_tokens");
    c.request.end_ids = entry.at("end_ids").get<std::vector<TokenId>>();
    c.request.sampling.beam_width = entry.at("width");
    c.request.sampling.length_penalty = json.at("about").at("length_penalty");
    c.request.sampling.early_stopping = EarlyStopping(entry.at("early_stopping"));
    c.request.output.return_log_probs = true;
    c.request.streaming = cases.size() % 2 == 0;
    c.sequences = entry.at("sequences").get<std::vector<std::vector<TokenId>>>();
    c.scores = entry.at("scores").get<std::vector<float>>();
  }
  return cases;
}

}  // namespace inflight::golden
