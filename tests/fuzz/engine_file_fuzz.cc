// SPDX-License-Identifier: Apache-2.0
// Any bytes as an engine file: as they are, and behind a valid header with right checksums.
#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "artifact/engine_file.h"
#include "base/check.h"

namespace {

constexpr size_t kHeaderBytes = 128;  // docs/reference/artifacts.md

void Check(std::span<const std::byte> file) {
  const auto table = inflight::artifact::ParseEngineTable(file, file.size(), "fuzz");
  if (!table.ok()) {
    CHECK(!table.status().message().empty());
    return;
  }
  uint64_t end = table->data_offset;
  for (const auto& tensor : table->tensors) {
    CHECK_LE(end, tensor.offset_bytes);
    end = tensor.offset_bytes + tensor.num_bytes;
    CHECK_LE(end, file.size());
    CHECK_LE(static_cast<uint64_t>(tensor.shape.num_elements()) * inflight::SizeOf(tensor.dtype),
             tensor.num_bytes);
  }
}

template <typename T>
void Put(std::string& file, size_t at, T value) {
  std::memcpy(file.data() + at, &value, sizeof(value));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Check({reinterpret_cast<const std::byte*>(data), size});
  if (size < 2) return 0;
  // Byte 0: number of tensors. Byte 1: how much of the rest is the table; what remains is data.
  const size_t table_bytes = (size - 2) * data[1] / 255;
  std::string file(kHeaderBytes, '\0');
  file.append(reinterpret_cast<const char*>(data) + 2, size - 2);
  std::memcpy(file.data(), "inflight-engine\n", 16);
  Put(file, 16, uint32_t{1});
  Put(file, 20, static_cast<uint32_t>(kHeaderBytes));
  std::memcpy(file.data() + 24, "cpu", 3);
  Put(file, 56, static_cast<uint64_t>(file.size()));
  Put(file, 64, static_cast<uint64_t>(table_bytes));
  Put(file, 72, static_cast<uint64_t>(data[0]));
  Put(file, 80, static_cast<uint64_t>(kHeaderBytes + table_bytes));
  Put(file, 88, XXH3_64bits(file.data() + kHeaderBytes, table_bytes));
  Put(file, 120, XXH3_64bits(file.data(), 120));
  Check(std::as_bytes(std::span(file)));
  return 0;
}
