// SPDX-License-Identifier: Apache-2.0
// What make_golden.py keeps of transformers, read back.
#pragma once

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "artifact/tensor_set.h"
#include "base/check.h"
#include "builder/builder.h"
#include "inflight/request.h"

namespace inflight::golden {

// What transformers said about one prompt.
struct Expected {
  std::vector<TokenId> prompt;
  std::vector<TokenId> greedy;     // [256]
  std::vector<int64_t> positions;  // [n]
  std::vector<float> logits;       // [n, vocab_size]
  float noise_gain = 0;

  // The prompt and all generated tokens but the last: the input whose logits were kept.
  std::vector<TokenId> Whole() const {
    std::vector<TokenId> ids = prompt;
    ids.insert(ids.end(), greedy.begin(), greedy.end() - 1);
    return ids;
  }
};

std::filesystem::path DataDir();
// All models there, or those that INFLIGHT_GOLDEN_MODELS names, separated by blanks
// (scripts/sanitize.sh: few).
std::vector<std::string> ModelNames();
std::vector<Expected> ReadReference(const std::filesystem::path& dir);

// max_seq_len of an engine that continues the texts of `dir`, a Hugging Face directory: 0, the
// default, but of a model of longrope whose texts begin beyond its original length.
int MaxSeqLenOf(const std::filesystem::path& dir);

// What rounding may change in a logit: k * u * noise_gain. Of float32 kTolerance.
//   u            unit roundoff: 2^-8 for bfloat16, 2^-11 for float16
//   noise_gain   measured by make_golden.py on this very prompt: the largest change of these logits
//                per unit of relative, normally distributed noise on all weights
//   k = 1.5      rounding to nearest is noise of at most u / sqrt(3) rms; the weights have it, and
//                activations, keys and values as much again: u * sqrt(2 / 3). The rest is margin
//                for draws that are worse than the measured ones.
float RoundingBound(DType dtype, const Expected& expected);

template <typename T>
std::vector<T> ValuesOf(const artifact::TensorSet& set, const std::string& name) {
  const artifact::StoredTensor* tensor = set.Find(name);
  CHECK(tensor != nullptr);
  std::vector<T> values(tensor->data.size() / sizeof(T));
  std::memcpy(values.data(), tensor->data.data(), tensor->data.size());
  return values;
}

// "prompt" and what greedy decoding appends, "greedy", of a reference of one text.
std::vector<TokenId> PromptAndGreedy(const artifact::TensorSet& set);

}  // namespace inflight::golden
