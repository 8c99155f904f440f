// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "executor/backend.h"
#include "executor/sequence.h"

namespace inflight::executor {

// Makes late inputs on the host, such as masks of guides (guide_masks.h).
class LateInputSource {
 public:
  virtual ~LateInputSource() = default;
  virtual bool Wants(const Sequence& sequence) const = 0;
  // Called once all earlier steps were collected, before the step that holds these rows is.
  // `drafts` are those of the sequence's row in it.
  virtual void Fill(Sequence& sequence, std::span<const TokenId> drafts, LateInputs* inputs) = 0;
};

}  // namespace inflight::executor
