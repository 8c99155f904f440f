// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of tiktoken's ranks: an error or a tokenizer that encodes and decodes without
// a fault, in chunks as at once. The input may go on behind a byte 0xFF, with a byte that says
// which encoding it has and a text to encode.
#include <algorithm>
#include <cstdint>
#include <iterator>

#include "tokenizer_round_trip.h"

namespace {

constexpr std::string_view kEncodings[] = {"cl100k_base", "gpt2", "llama3", "o200k_base", "qwen"};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inflight::tokenizer;  // NOLINT(google-build-using-namespace)
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t split = std::min(input.find('\xFF'), input.size());
  const std::string_view rest = input.substr(std::min(split + 1, input.size()));
  const size_t encoding =
      rest.empty() ? 0 : static_cast<uint8_t>(rest.front()) % std::size(kEncodings);
  const auto tokenizer =
      inflight::Tokenizer::FromTiktoken(input.substr(0, split), kEncodings[encoding]);
  if (tokenizer.ok()) CheckRoundTrip(*tokenizer, rest.size() > 1 ? rest.substr(1) : kSampleText);
  return 0;
}
