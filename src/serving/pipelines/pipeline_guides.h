// SPDX-License-Identifier: Apache-2.0
// The guide of a request on its way through a pipeline: made of the texts of the tokens that the
// pipeline decodes, by whoever tokenizes the request.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/memory_account.h"
#include "contract/guide_tensors.h"
#include "serving/pipelines/pipeline_routes.h"

namespace inflight::serving {

// Whether it is made anew, which is no work for an I/O thread. `shown`: special tokens whose texts
// are part of the answer's.
bool IsNewGuide(const PipelineMembers& members, const GuideSpec& spec,
                std::span<const TokenId> shown);

// `opening` as of GuideCache::Get. Errors name the field, and are about it.
Result<std::shared_ptr<const Guide>> GuideOf(const PipelineMembers& members,
                                             const contract::AskedGuide& asked,
                                             std::span<const TokenId> shown,
                                             const std::shared_ptr<AccountShare>& memory,
                                             const std::string& opening = {});

}  // namespace inflight::serving
