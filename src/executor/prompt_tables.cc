// SPDX-License-Identifier: Apache-2.0
#include "executor/prompt_tables.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/status_macros.h"
#include "inflight/prompt_table.h"
#include "tensor/element.h"

namespace inflight::executor {
namespace {

// Giving pinned memory back waits for the GPU, so that some is kept: as much as a server's tables
// of a hundred rows take, and no more than others would miss.
constexpr uint64_t kKeptBytes = uint64_t{64} << 20;

}  // namespace

PromptTables::PromptTables(Device& device, const PromptRows& shape, int max_slots)
    : device_(device), shape_(shape), slots_(static_cast<size_t>(max_slots)) {}

Status PromptTables::SetUp(const SlotSetup& setup) {
  Release(setup.slot);
  for (const SlotId beam : setup.beam_slots) Release(beam);  // the first one computes the prompt
  const auto& table = setup.request->prompt_table;
  if (table == nullptr) return Status::Ok();
  ASSIGN_OR_RETURN(Entry* const entry, Find(table));
  ++entry->num_users;
  slots_[static_cast<size_t>(setup.slot)] = {
      .entry = entry, .rows = entry->data(), .num_rows = table->num_rows};
  return Status::Ok();
}

void PromptTables::Release(SlotId slot) {
  Entry* const entry = std::exchange(slots_[static_cast<size_t>(slot)], {}).entry;
  if (entry != nullptr && --entry->num_users == 0) Drop(entry);
}

const void* PromptTables::RowOf(SlotId slot, TokenId id) const {
  const Slot& found = slots_[static_cast<size_t>(slot)];
  const int row = id - shape_.first_id();
  if (row < 0 || row >= found.num_rows) return nullptr;
  return found.rows + static_cast<size_t>(row) * shape_.row_bytes();
}

Result<PromptTables::Entry*> PromptTables::Find(const std::shared_ptr<const PromptTable>& table) {
  for (const auto& entry : entries_)
    if (entry->table.lock() == table) return entry.get();
  auto entry = std::make_unique<Entry>();
  entry->table = table;
  const auto num_rows = static_cast<size_t>(table->num_rows);
  if (const Status status = Allocate(num_rows * shape_.row_bytes(), entry.get()); !status.ok())
    return status.WithPrefix("prompt_embedding_table");
  for (size_t i = 0; i < table->values.size(); ++i)
    StoreFloat(entry->data(), shape_.dtype, static_cast<int64_t>(i), table->values[i]);
  return entries_.emplace_back(std::move(entry)).get();
}

// Pinned memory comes in powers of two, so that other tables fit where one was.
Status PromptTables::Allocate(size_t num_bytes, Entry* entry) {
  if (device_.kind() == DeviceKind::kCpu) {
    ASSIGN_OR_RETURN(entry->buffer, Buffer::Allocate(device_, "prompt tables", num_bytes));
    return Status::Ok();
  }
  const auto fits = [num_bytes](const PinnedBuffer& buffer) {
    return buffer.size() >= num_bytes && buffer.size() / 2 < num_bytes;
  };
  if (const auto found = std::ranges::find_if(free_, fits); found != free_.end()) {
    entry->pinned = std::move(*found);
    free_.erase(found);
    return Status::Ok();
  }
  ASSIGN_OR_RETURN(entry->pinned, PinnedBuffer::Allocate(device_, std::bit_ceil(num_bytes)));
  pinned_bytes_ += entry->pinned.size();
  return Status::Ok();
}

void PromptTables::Drop(Entry* entry) {
  if (entry->pinned.size() > 0) {
    uint64_t kept = entry->pinned.size();
    for (const PinnedBuffer& buffer : free_) kept += buffer.size();
    if (kept <= kKeptBytes) {
      free_.push_back(std::move(entry->pinned));
    } else {
      pinned_bytes_ -= entry->pinned.size();
    }
  }
  std::erase_if(entries_, [entry](const auto& held) { return held.get() == entry; });
}

}  // namespace inflight::executor
