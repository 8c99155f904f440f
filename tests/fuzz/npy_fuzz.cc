// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of numpy.save: an error, or an array that lies in the file.
#include <cstddef>
#include <cstdint>

#include "artifact/npy.h"
#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  const auto tensor = inflight::artifact::ParseNpy(file, "fuzz");
  if (!tensor.ok()) {
    CHECK(!tensor.status().message().empty());
    return 0;
  }
  CHECK(tensor->data.data() + tensor->data.size() == file.data() + file.size());
  CHECK_EQ(tensor->data.size(),
           static_cast<size_t>(tensor->shape.num_elements()) * inflight::SizeOf(tensor->dtype));
  return 0;
}
