// SPDX-License-Identifier: Apache-2.0
// Any bytes as a tokenizer.model: an error or a tokenizer that encodes and decodes without a fault,
// in chunks as at once. The input's last byte says how many bytes before it are a text to encode.
#include <algorithm>
#include <cstdint>

#include "tokenizer_round_trip.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inflight::tokenizer;  // NOLINT(google-build-using-namespace)
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t text_size = size == 0 ? 0 : std::min<size_t>(data[size - 1], size - 1);
  const size_t model_size = size - std::min<size_t>(size, 1) - text_size;
  const auto tokenizer = inflight::Tokenizer::FromSentencePiece(input.substr(0, model_size));
  if (tokenizer.ok())
    CheckRoundTrip(*tokenizer, text_size > 0 ? input.substr(model_size, text_size) : kSampleText);
  return 0;
}
