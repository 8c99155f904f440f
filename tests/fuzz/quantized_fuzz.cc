// SPDX-License-Identifier: Apache-2.0
// Any bytes as a directory of quantised weights, or a checkpoint, the description as JSON, a zero
// byte, the tensors as a safetensors file: an error, or weights that can be read to their last
// element.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "artifact/json_file.h"
#include "artifact/safetensors.h"
#include "base/check.h"
#include "quantized/method.h"

namespace {

using inflight::artifact::StoredTensor;

// The corners of a matrix or vector, or of matrices one behind the other.
void ReadCorners(const StoredTensor& tensor) {
  if (tensor.reader == nullptr) return;
  const int rank = tensor.shape.rank();
  const int64_t columns = rank == 1 ? 1 : tensor.shape[rank - 1];
  const int64_t rows = tensor.shape.num_elements() / columns;
  const int64_t num_rows = std::min<int64_t>(rows, 20);
  const int64_t num_columns = std::min<int64_t>(columns, 1100) & ~int64_t{rank >= 2};
  std::vector<std::byte> values(static_cast<size_t>(num_rows * num_columns) * sizeof(float));
  const int64_t last = (columns - num_columns) & ~int64_t{rank >= 2};
  tensor.reader->Read({0, num_rows, 0, num_columns}, values.data());
  tensor.reader->Read({rows - num_rows, num_rows, last, num_columns}, values.data());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = text.find('\0');
  if (end == std::string_view::npos) return 0;
  const auto json = inflight::artifact::ParseJsonObject(text.substr(0, end), "fuzz");
  if (!json.ok()) return 0;
  const auto method =
      json->contains("quantization") ? inflight::quantized::ReadModelOptFile(*json, "fuzz")
      : json->contains("quant_algo")
          ? inflight::quantized::ReadCheckpointMethod(*json, /*is_in_own_layout=*/false, "fuzz")
          : inflight::quantized::ReadMethod(*json, "fuzz");
  if (!method.ok()) {
    CHECK(!method.status().message().empty());
    return 0;
  }
  if (*method == nullptr) return 0;  // a form of this project
  CHECK(!(*method)->Describe().empty());
  const std::string_view file = text.substr(end + 1);
  auto tensors = inflight::artifact::ParseSafetensors(std::as_bytes(std::span(file)), "fuzz");
  if (!tensors.ok()) return 0;
  auto set = inflight::artifact::TensorSet::Of({}, *std::move(tensors));
  const auto unpacked = inflight::quantized::UnpackAll(**method, set);
  if (!unpacked.ok()) return 0;
  for (const StoredTensor& tensor : set.tensors()) ReadCorners(tensor);
  for (const auto& [name, form] : unpacked->native) {
    ReadCorners(form.codes);
    ReadCorners(form.scales);
    if (form.offsets) ReadCorners(*form.offsets);
  }
  return 0;
}
