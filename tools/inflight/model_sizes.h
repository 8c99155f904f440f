// SPDX-License-Identifier: Apache-2.0
// What upstream's converters and build.py of 0.5 to 0.8 may say of a model's sizes. Where a model
// is given they have to be its own; `inflight build` without one makes an engine of random weights
// in them.
#pragma once

#include <optional>
#include <string>

#include "config/schema.h"
#include "model/config.h"

namespace inflight::tool {

struct ModelSizes {
  std::optional<int> vocab_size;
  std::optional<int> n_positions;
  std::optional<int> n_layer;
  std::optional<int> n_head;
  std::optional<int> n_kv_head;
  std::optional<int> n_embd;
  std::optional<int> inter_size;
  std::optional<double> rms_norm_eps;
  std::optional<double> rotary_base;
  std::optional<std::string> hidden_act;

  bool any() const { return *this != ModelSizes{}; }
  friend bool operator==(const ModelSizes&, const ModelSizes&) = default;
};

// Declares them; `access` maps Options& to a ModelSizes.
template <typename Options, typename Access>
void AddModelSizes(config::Schema<Options>& schema, Access access) {
  const auto add = [&](const char* name, auto member, const char* help,
                       const config::Constraint& constraint) {
    schema.Add(
        name, [access, member](Options& o) -> auto& { return access(o).*member; }, help,
        constraint);
  };
  using Sizes = ModelSizes;
  add("vocab_size", &Sizes::vocab_size, "Tokens of the vocabulary.", config::AtLeast(1));
  add("n_positions", &Sizes::n_positions, "Longest sequence.", config::AtLeast(1));
  add("n_layer", &Sizes::n_layer, "Layers.", config::AtLeast(1));
  add("n_head", &Sizes::n_head, "Heads of queries.", config::AtLeast(1));
  add("n_kv_head", &Sizes::n_kv_head, "Heads of keys and values.", config::AtLeast(1));
  add("n_embd", &Sizes::n_embd, "Width of the residual stream.", config::AtLeast(1));
  add("inter_size", &Sizes::inter_size, "Width of the feed-forward.", config::AtLeast(1));
  add("rms_norm_eps", &Sizes::rms_norm_eps, "Term in the root of norms.", config::AtLeast(0));
  add("rotary_base", &Sizes::rotary_base, "Base of rotary positions.", config::AtLeast(1));
  add("hidden_act", &Sizes::hidden_act, "Activation of the feed-forward, as checkpoints name it.",
      {});
}

// kInvalidArgument names the first that is not the model's, and what the model has.
Status CheckSizes(const ModelSizes& sizes, const model::ModelConfig& config);

// A model of that architecture in these sizes, for those that are not given in the ones that
// upstream's build.py of the family has: those of GPT-2 medium and of Llama 7B.
Result<model::ModelConfig> ConfigOfSizes(const ModelSizes& sizes, const std::string& architecture,
                                         DType dtype);

}  // namespace inflight::tool
