// SPDX-License-Identifier: Apache-2.0
// The bad texts of slots (inflight/bad_texts.h) in device memory. Slots whose texts are the same
// share them, and those of one vocabulary the texts of its tokens; what no slot has any more is
// given back.
//
// Threads: used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "inflight/bad_texts.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

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
      : device_(device), slots_(static_cast<size_t>(max_slots)) {}

  // Null = none. Takes memory, booked as "sampler", and uploads, both only for texts that no other
  // slot has. No kernel that reads the slot's may be in flight.
  Status Set(int slot, const std::shared_ptr<const BadTexts>& bad);

  const DeviceBadTexts* Of(int slot) const;  // null = none

 private:
  struct Tokens {
    std::shared_ptr<const TokenTexts> host;
    Buffer memory;
    DeviceBadTexts part;  // what it has of them
  };
  struct Table {
    std::shared_ptr<const BadTexts> host;
    std::shared_ptr<const Tokens> tokens;
    Buffer memory;  // begins with DeviceBadTexts
  };

  Result<std::shared_ptr<const Tokens>> Upload(const std::shared_ptr<const TokenTexts>& tokens);
  Result<std::shared_ptr<const Table>> Upload(const std::shared_ptr<const BadTexts>& bad);

  Device& device_;
  std::vector<std::shared_ptr<const Table>> slots_;  // [max_slots]
};

}  // namespace inflight::decoding
