// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ops/lora.h"

namespace inflight::ops::reference {

// What adapters add to the sums of one weight (ops/lora.h).
class LoraSums {
 public:
  LoraSums(const TensorView& x, const LoraTerm& term, LoraSite site);

  // `sum` and what is added to it for a token and a feature; `sum` itself of a token without an
  // adapter.
  float Add(float sum, int64_t token, int64_t feature) const;

 private:
  const LoraTerm& term_;
  LoraSite site_;
  std::vector<std::vector<float>> shrunk_;  // x A^T of the batch's tokens, all parts of a site
};

}  // namespace inflight::ops::reference
