// SPDX-License-Identifier: Apache-2.0
#include "serving/pipelines/pipeline_guides.h"

#include <algorithm>

namespace inflight::serving {
namespace {

GuideTokens TokensOf(const PipelineMembers& members, std::span<const TokenId> shown) {
  GuideTokens tokens{.num_tokens = members.llm->executor().limits().vocab_size,
                     .shown = {shown.begin(), shown.end()}};
  std::ranges::sort(tokens.shown);
  return tokens;
}

}  // namespace

bool IsNewGuide(const PipelineMembers& members, const GuideSpec& spec,
                std::span<const TokenId> shown) {
  return !members.postprocessing->guides().Has(spec, TokensOf(members, shown));
}

Result<std::shared_ptr<const Guide>> GuideOf(const PipelineMembers& members,
                                             const contract::AskedGuide& asked,
                                             std::span<const TokenId> shown,
                                             const std::shared_ptr<AccountShare>& memory,
                                             const std::string& opening) {
  auto made =
      members.postprocessing->guides().Get(asked.spec, TokensOf(members, shown), memory, opening);
  if (made.ok()) return made;
  return made.status().WithPrefix(asked.field).WithField(asked.field);
}

}  // namespace inflight::serving
