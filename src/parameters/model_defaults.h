// SPDX-License-Identifier: Apache-2.0
// How tokens are drawn as people mean it: what a request says, then what the model's
// generation_config.json says. Of /v1, `run`, `chat` and the models of `serve DIR`; requests to a
// repository's models mean what the contract says instead (docs/reference/decoding.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "inflight/request.h"
#include "inflight/status.h"

namespace inflight::parameters {

// What generation_config.json says for requests that do not.
struct ModelDefaults {
  std::optional<bool> do_sample = {};  // false: temperature 0
  std::optional<float> temperature = {};
  std::optional<float> top_p = {};
  std::optional<int> top_k = {};
  std::optional<float> min_p = {};
  std::optional<float> repetition_penalty = {};
  std::optional<int> max_new_tokens = {};

  // "temperature 0.6, top_p 0.95, ..."; empty where it says nothing.
  std::string ToString() const;
};

// Of the file in `dir`, which may lack it; values out of their bounds are left out.
// kInvalidArgument where it is no JSON object.
Result<ModelDefaults> ReadModelDefaults(const std::filesystem::path& dir);
// The same, and a warning in the log in place of the error.
ModelDefaults ReadModelDefaultsOrWarn(const std::filesystem::path& dir);

// What a request says of how tokens are drawn.
struct Drawing {
  std::optional<float> temperature = {};  // 0: the likeliest
  std::optional<float> top_p = {};        // 0: the likeliest
  std::optional<int> top_k = {};          // 0 and below: off
  std::optional<float> min_p = {};

  bool says_nothing() const { return !temperature && !top_p && !top_k && !min_p; }
};

// Where neither the request nor the model says anything.
enum class Unsaid : uint8_t {
  kDraw,      // temperature 1, as OpenAI's API
  kLikeliest  // as transformers' generate()
};

// Fills temperature, top_k, top_p and min_p. A temperature above 0 draws, and 0 does not; what the
// request leaves open is the model's own, else temperature and top_p are 1 and the others off.
void SetDrawing(const Drawing& asked, const ModelDefaults& model, Unsaid unsaid,
                SamplingParams& sampling);

// The same of a request under the contract's names, where a top_p of 0 is off, and its penalty.
// Beams are drawn only where the request itself says so.
void SetSampling(const ModelDefaults& model, SamplingParams& sampling);

// Tokens of an answer where neither `run`, nor generate of `serve DIR`, nor the model says it.
constexpr int kDefaultMaxTokens = 64;

// 53 bits, which every reader of JSON keeps.
uint64_t RandomSeed();

}  // namespace inflight::parameters
