// SPDX-License-Identifier: Apache-2.0
// Tables of sequences whose prompts are being computed (inflight/prompt_table.h), in the model's
// dtype, where the embedding reads them: on the CPU ordinary memory; on a GPU pinned memory, which
// the kernel reads in place, so that a row crosses the bus once, when its token is computed.
//
// A slot has its table from SetUp until Release, which the backend calls when the last token of the
// prompt was computed, or until it is set up anew. Slots whose requests have the same table share
// it.
//
// Threads: the executor's.
// Errors:  kResourceExhausted where there is no memory; the slot then has no table.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "executor/backend.h"
#include "executor/memory_plan.h"
#include "tensor/buffer.h"

namespace inflight::executor {

class PromptTables {
 public:
  PromptTables(Device& device, const PromptRows& shape, int max_slots);

  Status SetUp(const SlotSetup& setup);
  void Release(SlotId slot);

  // Rows in the model's dtype, [num_rows, hidden_size]; null where the slot has none.
  const std::byte* Of(SlotId slot) const { return slots_[static_cast<size_t>(slot)].rows; }
  // The row that `id` of the slot's prompt names; null where it is in the vocabulary or no row.
  const void* RowOf(SlotId slot, TokenId id) const;

  // Pinned memory that is held, in use or to be used again.
  uint64_t pinned_bytes() const { return pinned_bytes_; }

 private:
  // A copy of one table.
  struct Entry {
    std::weak_ptr<const PromptTable> table;
    Buffer buffer;        // on the CPU
    PinnedBuffer pinned;  // on a GPU
    int num_users = 0;

    std::byte* data() const { return pinned.data() != nullptr ? pinned.data() : buffer.data(); }
  };
  struct Slot {
    Entry* entry = nullptr;
    const std::byte* rows = nullptr;
    int num_rows = 0;
  };

  Result<Entry*> Find(const std::shared_ptr<const PromptTable>& table);
  Status Allocate(size_t num_bytes, Entry* entry);
  void Drop(Entry* entry);

  Device& device_;
  const PromptRows shape_;
  std::vector<Slot> slots_;                      // [max_slots]
  std::vector<std::unique_ptr<Entry>> entries_;  // in use
  std::vector<PinnedBuffer> free_;               // to be used again
  uint64_t pinned_bytes_ = 0;
};

}  // namespace inflight::executor
