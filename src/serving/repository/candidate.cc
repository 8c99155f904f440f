// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/candidate.h"

#include <algorithm>

#include "contract/llm_inputs.h"
#include "contract/text_parameters.h"
#include "serving/tensors/model_file.h"

namespace inflight::serving {

using ::inference::ModelConfig;

ModelConfig WithAnyBatchSize(const ParsedModelConfig& parsed) {
  constexpr int kAnyBatchSize = 1 << 20;
  ModelConfig filled = parsed.config;
  if (parsed.IsUnfilled("max_batch_size")) filled.set_max_batch_size(kAnyBatchSize);
  return filled;
}

Result<std::filesystem::path> ResolveNamed(const Candidate& candidate, std::string_view field,
                                           const std::string& named) {
  if (!candidate.is_from_request || candidate.own_values.contains(named)) {
    return ResolvePath(named, candidate.dir);
  }
  return FindBeneath(candidate.dir, "directory", named, field);
}

bool IsUpstreams(const ModelConfig& llm) {
  return std::ranges::none_of(llm.input(),
                              [](const auto& input) { return contract::IsOurs(input.name()); });
}

std::vector<std::string> MembersOf(const ModelConfig& config) {
  std::vector<std::string> members;
  for (const auto& step : config.ensemble_scheduling().step()) {
    members.push_back(step.model_name());
  }
  if (KindOf(config) != ModelKind::kBls) return members;
  const auto names = contract::ParseBlsParameters(AllParameters(config));
  if (!names.ok()) return members;
  members = {names->preprocessing, names->llm, names->postprocessing};
  if (!names->draft_llm.empty()) members.push_back(names->draft_llm);
  return members;
}

}  // namespace inflight::serving
