// SPDX-License-Identifier: Apache-2.0
// Prompt tuning in the tensors of a request: its table, the ids of its prompt that name rows, and
// what tells its blocks from those of other tables (docs/reference/prompt-tuning.md).
//
// Errors: kInvalidArgument names the tensor as the client calls it; kResourceExhausted where the
// client's account has no room for the table.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/memory_account.h"
#include "contract/tensor.h"
#include "inflight/executor.h"
#include "inflight/prompt_table.h"
#include "inflight/request.h"

namespace inflight::contract {

// A table with the SHA-256 of its shape and values, 32 bytes.
struct KnownTable {
  std::shared_ptr<const PromptTable> table;
  std::string digest;
};

KnownTable KnownTableOf(std::shared_ptr<const PromptTable> table);

// Of a tensor [num_rows, hidden_size] or [1, num_rows, hidden_size], FP16, BF16 or FP32, the first
// `vocab_size` rows, or all where that is 0. What they take is charged to `memory` first.
Result<KnownTable> ReadPromptTable(const Tensor& tensor, int vocab_size,
                                   std::shared_ptr<AccountShare> memory);

// What a request has of prompt tuning besides Request::prompt_table.
struct PromptTuning {
  std::string digest = {};  // of the table; empty = none
  // One for each id of the prompt, 0 = ordinary; or a single one, which is that of all rows; or
  // none.
  std::vector<uint64_t> extra_ids = {};
};

// Puts the rows of the table before a prompt that names none of them, so that a text, which cannot
// name any, is continued behind all of them. Returns what tells the prompt's blocks from others of
// equal ids: empty where nothing does, else 32 bytes, of a SHA-256 of the table's digest and the
// extra ids that are not 0. Errors are those of parameters::CheckPromptTable too.
Result<std::string> PlacePromptTable(const ExecutorLimits& limits, const PromptTuning& tuning,
                                     Request& request);

}  // namespace inflight::contract
