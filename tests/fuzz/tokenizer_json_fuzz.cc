// SPDX-License-Identifier: Apache-2.0
// Any bytes as a tokenizer.json: an error or a tokenizer that encodes and decodes without a fault,
// in chunks as at once. The input may end in a text to encode, behind a byte 0xFF.
#include <algorithm>
#include <cstdint>

#include "tokenizer_round_trip.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inflight::tokenizer;  // NOLINT(google-build-using-namespace)
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t split = std::min(input.find('\xFF'), input.size());
  const auto tokenizer = inflight::Tokenizer::FromJson(input.substr(0, split));
  if (tokenizer.ok())
    CheckRoundTrip(*tokenizer, split < input.size() ? input.substr(split + 1) : kSampleText);
  return 0;
}
