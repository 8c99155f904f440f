// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/new_id.h"

#include <cstdint>
#include <random>

namespace inflight::openai {
namespace {

constexpr size_t kShortIdDigits = 9;  // of a call, as templates of Mistral want them

}  // namespace

std::string NewId(std::string_view prefix) {
  thread_local std::mt19937_64 random{std::random_device()()};
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id(prefix);
  for (int word = 0; word < 2; ++word) {
    uint64_t bits = random();
    for (int i = 0; i < 16; ++i, bits >>= 4) id.push_back(kDigits[bits & 15]);
  }
  return id;
}

std::string NewCallId(const answer_parts::AnswerFormat& format, std::string_view prefix) {
  if (format.calls == nullptr || !format.calls->short_ids) return NewId(prefix);
  return NewId("").substr(0, kShortIdDigits);
}

}  // namespace inflight::openai
