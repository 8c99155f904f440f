// SPDX-License-Identifier: Apache-2.0
// Computes a receipt's answer again, alone, and compares.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "inflight/adapter.h"
#include "inflight/executor.h"
#include "receipts/receipt.h"

namespace inflight::receipts {

// Tokens of KV cache that the request of a receipt takes at most, alone. Of one whose numbers no
// request has it is that of a small one.
int64_t KvTokensOf(const Receipt& receipt);

// What a receipt is compared with: a model that is open by OptionsLike, in an executor that does
// nothing else.
struct Again {
  EngineRecord engine;
  Executor* executor = nullptr;
  std::shared_ptr<const LoraTensors> adapter = {};  // null: none was given
  bool any_kernels = false;                         // other ones are no error
};

// In what the receipt differs, the first of each part: empty means verified. `receipt` has the ids
// of its prompt. Blocks until the answer is there. Errors: kFailedPrecondition for other kernels,
// with both, and where an adapter is missing; those of the executor, which refuses the request.
Result<std::vector<std::string>> Verify(const Receipt& receipt, const Again& again);

}  // namespace inflight::receipts
