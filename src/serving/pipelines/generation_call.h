// SPDX-License-Identifier: Apache-2.0
// A request by generation (serving/core/generation.h) through a pipeline: tokenize, execute, make
// text of what comes.
//
// Threads: as of PipelineModel.
#pragma once

#include <memory>

#include "serving/core/generation.h"
#include "serving/core/model.h"
#include "serving/pipelines/pipeline_routes.h"

namespace inflight::serving {

// What front ends know of a pipeline of these members.
std::shared_ptr<const TextModel> TextModelOf(const PipelineMembers& members);

// Model::Infer of `pipeline` for a request that has a generation. kInvalidArgument with the reason
// kPromptTooLong says how many tokens are too many.
void Generate(Model& pipeline, const PipelineMembers& members, Request request,
              ResponseHandler handler);

}  // namespace inflight::serving
