// SPDX-License-Identifier: Apache-2.0
#include "ops/reference/lora.h"

#include "tensor/element.h"

namespace inflight::ops::reference {
namespace {

float Dot(const TensorView& x, int64_t token, const LoraPart& part, int row) {
  float sum = 0;
  for (int64_t k = 0; k < part.in_features; ++k)
    sum += LoadFloat(x.data, x.dtype, token * part.in_features + k) *
           LoadFloat(part.a, part.dtype, row * LoraStride(part.in_features) + k);
  return sum;
}

}  // namespace

LoraSums::LoraSums(const TensorView& x, const LoraTerm& term, LoraSite site)
    : term_(term), site_(site) {
  if (term.batch == nullptr) return;
  for (const LoraBatch::Run& run : term.batch->runs())
    for (int i = run.first; i < run.first + run.num; ++i) {
      const int64_t token = term.batch->tokens()[static_cast<size_t>(i)];
      std::vector<float>& shrunk = shrunk_.emplace_back();
      for (const LoraPart& part : run.adapter->Of(term.layer, site))
        for (int row = 0; row < part.rank; ++row) shrunk.push_back(Dot(x, token, part, row));
    }
}

float LoraSums::Add(float sum, int64_t token, int64_t feature) const {
  const int entry = term_.batch == nullptr ? -1 : term_.batch->EntryOf(token);
  if (entry < 0) return sum;
  const float* shrunk = shrunk_[static_cast<size_t>(entry)].data();
  for (const LoraPart& part : term_.batch->AdapterOf(entry).Of(term_.layer, site_)) {
    const int64_t n = feature - part.first_feature;
    if (n >= 0 && n < part.num_features) {
      for (int row = 0; row < part.rank; ++row)
        sum += shrunk[row] * LoadFloat(part.b, part.dtype, row * LoraStride(part.num_features) + n);
      if (part.bias != nullptr) sum += part.bias[n];
    }
    shrunk += part.rank;
  }
  return sum;
}

}  // namespace inflight::ops::reference
