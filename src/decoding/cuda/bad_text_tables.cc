// SPDX-License-Identifier: Apache-2.0
#include "decoding/cuda/bad_text_tables.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "base/status_macros.h"
#include "ops/cuda/cuda_stream.h"
#include "tensor/cuda_status.h"

namespace inflight::decoding {
namespace {

constexpr size_t kLeastBytes = size_t{64}
                               << 10;  // so that lists of a few words fit where others did

template <typename T>
const T* At(const Buffer& memory, size_t offset) {
  return reinterpret_cast<const T*>(memory.data() + offset);
}

}  // namespace

// Arrays one behind the other, and where each will be.
class BadTextTables::Layout {
 public:
  template <typename Range>
  size_t Add(const Range& values) {
    const size_t begin = (size_ + kAlignment - 1) / kAlignment * kAlignment;
    parts_.push_back({begin, std::as_bytes(std::span(values))});
    size_ = begin + parts_.back().bytes.size();
    return begin;
  }
  size_t size() const { return size_; }

  Status Upload(const Memory& memory, Stream& stream) const {
    for (const Part& part : parts_) std::ranges::copy(part.bytes, memory.image.data() + part.begin);
    return inflight::cuda::ToStatus(
        cudaMemcpyAsync(memory.device.data(), memory.image.data(), size_, cudaMemcpyHostToDevice,
                        ops::cuda::AsCuda(stream).handle()),
        "sampler's bad texts");
  }

 private:
  static constexpr size_t kAlignment = 16;
  struct Part {
    size_t begin;
    std::span<const std::byte> bytes;
  };
  std::vector<Part> parts_;
  size_t size_ = 0;
};

Status BadTextTables::Set(int slot, const std::shared_ptr<const BadTexts>& bad, Stream& stream) {
  int& own = slots_[static_cast<size_t>(slot)];
  const int before = std::exchange(own, -1);
  if (before >= 0) --tables_[static_cast<size_t>(before)].num_users;
  if (bad == nullptr) return Status::Ok();
  ASSIGN_OR_RETURN(const size_t table, FindTable(bad, stream));
  ++tables_[table].num_users;
  own = static_cast<int>(table);
  return Status::Ok();
}

const DeviceBadTexts* BadTextTables::Of(int slot) const {
  const int table = slots_[static_cast<size_t>(slot)];
  return table < 0 ? nullptr
                   : At<DeviceBadTexts>(tables_[static_cast<size_t>(table)].memory.device, 0);
}

// Nothing waits until an image was copied: what overwrites it is copied behind it to the same
// place, before anything reads that.
template <typename Entry>
Result<size_t> BadTextTables::Claim(std::vector<Entry>* entries, size_t num_bytes) {
  const auto room = [](const Entry& entry) { return entry.memory.device.size(); };
  Entry* best = nullptr;
  Entry* largest = nullptr;
  for (Entry& entry : *entries) {
    if (entry.num_users > 0) continue;
    if (largest == nullptr || room(entry) > room(*largest)) largest = &entry;
    if (room(entry) >= num_bytes && (best == nullptr || room(entry) < room(*best))) best = &entry;
  }
  if (best == nullptr) {
    best = largest != nullptr ? largest : &entries->emplace_back();
    pinned_bytes_ -= best->memory.image.size();
    Forget(best);
    best->memory = {};
    const size_t size = std::max(std::bit_ceil(num_bytes), kLeastBytes);
    ASSIGN_OR_RETURN(best->memory.image, PinnedBuffer::Allocate(device_, size));
    pinned_bytes_ += size;
    Result<Buffer> memory = Buffer::Allocate(device_, "sampler", size);
    if (!memory.ok()) {
      pinned_bytes_ -= size;
      best->memory = {};
      return memory.status();
    }
    best->memory.device = *std::move(memory);
  }
  Forget(best);
  return static_cast<size_t>(best - entries->data());
}

Result<size_t> BadTextTables::FindTokens(const std::shared_ptr<const TokenTexts>& tokens,
                                         Stream& stream) {
  for (size_t i = 0; i < tokens_.size(); ++i)
    if (tokens_[i].host == tokens) return i;
  Layout layout;
  const size_t bytes = layout.Add(tokens->bytes);
  const size_t begins = layout.Add(tokens->begins);
  const size_t sorted = layout.Add(tokens->sorted);
  ASSIGN_OR_RETURN(const size_t at, Claim(&tokens_, layout.size()));
  Tokens& entry = tokens_[at];
  RETURN_IF_ERROR(layout.Upload(entry.memory, stream));
  entry.part = {.token_bytes = At<char>(entry.memory.device, bytes),
                .token_begins = At<uint32_t>(entry.memory.device, begins),
                .sorted = At<int32_t>(entry.memory.device, sorted),
                .num_tokens = tokens->num_tokens()};
  entry.host = tokens;
  return at;
}

void BadTextTables::Forget(Table* table) {
  if (table->host != nullptr) --tokens_[table->tokens].num_users;
  table->host = nullptr;
}

Result<size_t> BadTextTables::FindTable(const std::shared_ptr<const BadTexts>& bad,
                                        Stream& stream) {
  for (size_t i = 0; i < tables_.size(); ++i)
    if (tables_[i].host == bad) return i;
  DeviceBadTexts header{};
  Layout layout;
  layout.Add(std::span(&header, 1));
  const size_t texts = layout.Add(bad->texts);
  const size_t banned = layout.Add(bad->banned);
  const size_t completions = layout.Add(bad->completions);
  const size_t groups = layout.Add(bad->groups);
  ASSIGN_OR_RETURN(const size_t at, Claim(&tables_, layout.size()));
  Table& table = tables_[at];
  ASSIGN_OR_RETURN(const size_t tokens, FindTokens(bad->tokens, stream));
  const Buffer& memory = table.memory.device;
  header = tokens_[tokens].part;
  header.texts = At<char>(memory, texts);
  header.banned = At<int32_t>(memory, banned);
  header.completions = At<BadTexts::Completion>(memory, completions);
  header.groups = At<uint32_t>(memory, groups);
  header.num_banned = static_cast<int32_t>(bad->banned.size());
  RETURN_IF_ERROR(layout.Upload(table.memory, stream));
  table.host = bad;
  table.tokens = tokens;
  ++tokens_[tokens].num_users;
  return at;
}

}  // namespace inflight::decoding
