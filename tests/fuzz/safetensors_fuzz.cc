// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: an error, or tensors whose promises hold.
#include <cstddef>
#include <cstdint>
#include <string>

#include "artifact/safetensors.h"
#include "base/check.h"

namespace {

void Check(std::span<const std::byte> file) {
  const auto tensors = inflight::artifact::ParseSafetensors(file, "fuzz");
  if (!tensors.ok()) {
    CHECK(!tensors.status().message().empty());
    return;
  }
  size_t total = 0;
  for (const auto& tensor : *tensors) {
    CHECK(tensor.data.empty() ||
          (tensor.data.data() >= file.data() &&
           tensor.data.data() + tensor.data.size() <= file.data() + file.size()));
    CHECK_EQ(tensor.data.size(),
             static_cast<size_t>(tensor.shape.num_elements()) * inflight::SizeOf(tensor.dtype));
    total += tensor.data.size();
  }
  CHECK_LE(total, file.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Check({reinterpret_cast<const std::byte*>(data), size});
  // Again with a right length before the header, which chance rarely finds: the first byte says how
  // much of the rest is header.
  if (size < 2) return 0;
  const size_t header = (size - 1) * data[0] / 255;
  std::string file(sizeof(uint64_t), '\0');
  for (size_t i = 0; i < sizeof(uint64_t); ++i) file[i] = static_cast<char>(header >> (8 * i));
  file.append(reinterpret_cast<const char*>(data) + 1, size - 1);
  Check(std::as_bytes(std::span(file)));
  return 0;
}
