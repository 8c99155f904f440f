// SPDX-License-Identifier: Apache-2.0
// The bad texts of slots (inflight/bad_texts.h) in device memory. Slots whose texts are the same
// share them, and those of one vocabulary the texts of its tokens.
//
// Memory is taken when texts come that find none, and kept for later ones: it holds what most slots
// had at once, and texts that it still holds are not uploaded again. Uploads go through pinned
// memory in the order of the stream; nothing waits for them.
//
// Threads: used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "inflight/bad_texts.h"
#include "tensor/buffer.h"
#include "tensor/device.h"
#include "tensor/stream.h"

namespace inflight::decoding {

// As kernels read them; all pointers are the device's.
struct DeviceBadTexts {
  const char* token_bytes;
  const uint32_t* token_begins;  // [num_tokens + 1]
  const int32_t* sorted;         // [num_tokens]
  const char* texts;
  const int32_t* banned;  // [num_banned]
  const BadTexts::Completion* completions;
  const uint32_t* groups;  // [257]
  int32_t num_tokens;
  int32_t num_banned;
};

class BadTextTables {
 public:
  BadTextTables(Device& device, int max_slots)
      : device_(device), slots_(static_cast<size_t>(max_slots), -1) {}

  // Null = none. What it enqueues is done before later work of the stream. Memory is booked as
  // "sampler".
  Status Set(int slot, const std::shared_ptr<const BadTexts>& bad, Stream& stream);

  const DeviceBadTexts* Of(int slot) const;  // null = none

  uint64_t pinned_bytes() const { return pinned_bytes_; }

 private:
  // `image` is written by the host and copied to `device`.
  struct Memory {
    Buffer device;
    PinnedBuffer image;
  };
  // Nobody's while num_users is 0; its texts stand there until others take its place.
  struct Tokens {
    std::shared_ptr<const TokenTexts> host;
    Memory memory;
    DeviceBadTexts part;  // what it has of them
    int num_users = 0;    // tables
  };
  struct Table {
    std::shared_ptr<const BadTexts> host;
    size_t tokens = 0;
    Memory memory;      // begins with DeviceBadTexts
    int num_users = 0;  // slots
  };
  class Layout;

  Result<size_t> FindTable(const std::shared_ptr<const BadTexts>& bad, Stream& stream);
  Result<size_t> FindTokens(const std::shared_ptr<const TokenTexts>& tokens, Stream& stream);
  // An entry that nobody uses, with room for `num_bytes`.
  template <typename Entry>
  Result<size_t> Claim(std::vector<Entry>* entries, size_t num_bytes);
  // What an entry that nobody uses stands for.
  static void Forget(Tokens* tokens) { tokens->host = nullptr; }
  void Forget(Table* table);

  Device& device_;
  std::vector<Tokens> tokens_;
  std::vector<Table> tables_;
  std::vector<int> slots_;  // [max_slots], -1 = no texts
  uint64_t pinned_bytes_ = 0;
};

}  // namespace inflight::decoding
