// SPDX-License-Identifier: Apache-2.0
// Any bytes as a GGUF file: an error, or metadata, tensors and perhaps a tokenizer whose promises
// hold.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "artifact/block_codec.h"
#include "artifact/gguf_model.h"
#include "base/check.h"
#include "gguf/file.h"
#include "tokenizer_round_trip.h"

namespace {

using inflight::artifact::BlockCodec;

void CheckTensors(const inflight::gguf::File& file, std::span<const std::byte> bytes) {
  size_t total = 0;
  for (const inflight::gguf::Tensor& tensor : file.tensors) {
    CHECK(tensor.data.data() >= bytes.data());
    CHECK(tensor.data.data() + tensor.data.size() <= bytes.data() + bytes.size());
    total += tensor.data.size();
  }
  CHECK_LE(total, bytes.size());
  const auto stored = inflight::artifact::StoredTensorsOf(file);
  if (!stored.ok()) return;
  std::array<float, BlockCodec::kMaxElements> values;
  for (const inflight::artifact::StoredTensor& tensor : *stored)
    if (tensor.codec != nullptr)
      inflight::artifact::DecodeBlocks(*tensor.codec, tensor.data.data(), 0,
                                       tensor.codec->num_elements, values.data());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto file = inflight::gguf::Parse(bytes, "fuzz");
  if (!file.ok()) {
    CHECK(!file.status().message().empty());
    return 0;
  }
  CheckTensors(*file, bytes);
  const std::string bare = inflight::gguf::WithoutTensors(*file);
  const auto again = inflight::gguf::Parse(std::as_bytes(std::span(bare)), "bare");
  CHECK(again.ok());
  CHECK_EQ(again->metadata.entries().size(), file->metadata.entries().size());
  const auto tokenizer = inflight::Tokenizer::FromGguf(bytes);
  if (tokenizer.ok())
    inflight::tokenizer::CheckRoundTrip(*tokenizer, inflight::tokenizer::kSampleText);
  return 0;
}
