// SPDX-License-Identifier: Apache-2.0
// How `chat` and `run` choose tokens: options, what the model says where they are silent, and a
// seed by chance.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/schema.h"
#include "inflight/request.h"
#include "parameter_flags.h"
#include "parameters/model_defaults.h"

namespace inflight::tool {

struct SamplingOptions {
  parameters::Drawing drawing;
  std::optional<float> repetition_penalty;
  std::optional<int64_t> seed;
  std::optional<int> max_tokens;

  // The parameters of a request; `seed` is taken where none was given and tokens are drawn.
  SamplingParams ToParams(const parameters::ModelDefaults& model, uint64_t seed_by_chance) const;
  // Tokens of an answer: the option's, the model's, else `otherwise`.
  int MaxTokens(const parameters::ModelDefaults& model, int otherwise) const;
};

// Declares them in `schema`; `field` gives the SamplingOptions, `of` begins each help text where it
// is not empty ("For --prompt: ").
template <typename Options, typename Field>
void AddSampling(config::Schema<Options>& schema, const Field& field, const std::string& of,
                 const std::string& max_tokens_help) {
  schema.Add(
      "max_tokens", [field](Options& o) -> auto& { return field(o).max_tokens; }, max_tokens_help,
      config::AtLeast(1));
  schema.Add(
      "temperature", [field](Options& o) -> auto& { return field(o).drawing.temperature; },
      of + "Randomness: above 0 draws, 0 takes the likeliest; default: the model's own.",
      BoundsOf("temperature"));
  schema.Add(
      "top_k", [field](Options& o) -> auto& { return field(o).drawing.top_k; },
      of + "Draw among so many; 0 is off; default: the model's own.", BoundsOf("top_k"));
  schema.Add(
      "top_p", [field](Options& o) -> auto& { return field(o).drawing.top_p; },
      of + "Draw among the likeliest of this sum; 0 is off; default: the model's own.",
      BoundsOf("top_p"));
  schema.Add(
      "min_p", [field](Options& o) -> auto& { return field(o).drawing.min_p; },
      of + "Leave out tokens below this share of the likeliest; default: the model's own.",
      BoundsOf("min_p"));
  schema.Add(
      "repetition_penalty", [field](Options& o) -> auto& { return field(o).repetition_penalty; },
      of + "Above 1 discourages tokens that occurred; default: the model's own.",
      BoundsOf("repetition_penalty"));
  schema.Add(
      "seed", [field](Options& o) -> auto& { return field(o).seed; },
      of + "Of the random numbers; default: by chance.", config::AtLeast(0));
}

}  // namespace inflight::tool
