// SPDX-License-Identifier: Apache-2.0
#include "sampling_options.h"

#include "parameters/parameters.h"

namespace inflight::tool {

SamplingParams SamplingOptions::ToParams(const parameters::ModelDefaults& model,
                                         uint64_t seed_by_chance) const {
  SamplingParams sampling;
  sampling.temperature = drawing.temperature;
  sampling.top_k = drawing.top_k;
  sampling.top_p = drawing.top_p;
  sampling.min_p = drawing.min_p;
  sampling.repetition_penalty = repetition_penalty;
  if (seed) sampling.seed = static_cast<uint64_t>(*seed);
  parameters::SetSampling(model, sampling);
  if (!seed && parameters::IsDrawn(sampling)) sampling.seed = seed_by_chance;
  return sampling;
}

int SamplingOptions::MaxTokens(const parameters::ModelDefaults& model, int otherwise) const {
  return max_tokens.value_or(model.max_new_tokens.value_or(otherwise));
}

}  // namespace inflight::tool
