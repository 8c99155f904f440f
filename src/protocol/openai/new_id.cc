// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/new_id.h"

#include <sys/random.h>

#include <array>
#include <cstdint>

#include "base/check.h"

namespace inflight::openai {
namespace {

constexpr size_t kShortIdDigits = 9;  // of a call, as templates of Mistral want them

}  // namespace

std::string NewId(std::string_view prefix) {
  std::array<uint8_t, 16> random = {};
  CHECK_EQ(getrandom(random.data(), random.size(), 0), static_cast<ssize_t>(random.size()));
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id(prefix);
  for (const uint8_t byte : random) {
    id.push_back(kDigits[byte >> 4]);
    id.push_back(kDigits[byte & 15]);
  }
  return id;
}

std::string NewCallId(const answer_parts::AnswerFormat& format, std::string_view prefix) {
  if (format.calls == nullptr || !format.calls->short_ids) return NewId(prefix);
  return NewId("").substr(0, kShortIdDigits);
}

}  // namespace inflight::openai
