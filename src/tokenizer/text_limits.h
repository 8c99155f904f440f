// SPDX-License-Identifier: Apache-2.0
// How long texts may be.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "inflight/status.h"

namespace inflight::tokenizer {

inline constexpr size_t kMaxTextBytes = size_t{1} << 28;  // keeps every offset in 32 bits

// What a text of so many bytes may become on its way to the model. No rule of Unicode makes it more
// than eleven times as long (U+FDFA in NFKC); a file may ask for anything.
inline size_t MaxGrownBytes(size_t text_bytes) {
  return std::min(kMaxTextBytes, 256 * text_bytes + 65536);
}

inline Status CheckGrowth(size_t grown_bytes, size_t text_bytes) {
  if (grown_bytes <= MaxGrownBytes(text_bytes)) return Status::Ok();
  return InvalidArgument("text: the tokenizer makes more than " +
                         std::to_string(MaxGrownBytes(text_bytes)) + " bytes of " +
                         std::to_string(text_bytes) + ", which is the most that is allowed");
}

}  // namespace inflight::tokenizer
