// SPDX-License-Identifier: Apache-2.0
#include "widened_head.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "artifact/json_file.h"
#include "artifact/safetensors.h"
#include "artifact/tensor_set.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "tensor/element.h"

namespace inflight::golden {
namespace {

namespace fs = std::filesystem;

// Dimension d of a head of `width` is this one of the widened head: the angle of pair j of w is
// that of pair 2 j of 2 w, and pairs are w / 2 dimensions apart.
int WidenedDim(int d, int width) {
  const int half = width / 2;
  return d < half ? 2 * d : width + 2 * (d - half);
}

std::vector<float> FloatsOf(const artifact::StoredTensor& tensor) {
  std::vector<float> values;
  for (int64_t i = 0; i < tensor.shape.num_elements(); ++i)
    values.push_back(LoadFloat(tensor.data.data(), tensor.dtype, i));
  return values;
}

// Rows [heads * width, columns] become [heads * 2 width, columns], times `factor`.
std::vector<float> WidenRows(const std::vector<float>& rows, int width, size_t columns,
                             float factor) {
  std::vector<float> out(2 * rows.size());
  for (size_t r = 0; r < rows.size() / columns; ++r) {
    const auto head = static_cast<int>(r) / width;
    const auto to =
        static_cast<size_t>(head * 2 * width + WidenedDim(static_cast<int>(r) % width, width));
    for (size_t c = 0; c < columns; ++c) out[to * columns + c] = factor * rows[r * columns + c];
  }
  return out;
}

std::vector<float> Transposed(const std::vector<float>& values, size_t rows) {
  const size_t columns = values.size() / rows;
  std::vector<float> out(values.size());
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < columns; ++c) out[c * rows + r] = values[r * columns + c];
  return out;
}

}  // namespace

Status WriteWidenedHead(const fs::path& from, const fs::path& to, const fs::path& table_of) {
  fs::remove_all(to);
  fs::create_directories(to);
  ASSIGN_OR_RETURN(nlohmann::json config, artifact::ReadJsonFile(from / "config.json"));
  const int width = config["head_dim"];
  config["head_dim"] = 2 * width;
  RETURN_IF_ERROR(WriteFile(to / "config.json", config.dump()));
  ASSIGN_OR_RETURN(const artifact::TensorSet tensors, artifact::TensorSet::OpenModel(from));
  std::vector<artifact::TensorSpec> specs;
  std::vector<std::vector<float>> widened;  // empty: as it is
  for (const artifact::StoredTensor& tensor : tensors.tensors()) {
    Shape shape = tensor.shape;
    std::vector<float> values;
    const auto is = [&](const char* name) {
      return tensor.name.find(name) != std::string::npos && shape.rank() == 2;
    };
    if (is("q_proj") || is("k_proj") || is("v_proj")) {
      // Scores are divided by the square root of twice the width.
      const float factor = is("q_proj") ? std::sqrt(2.0F) : 1.0F;
      values = WidenRows(FloatsOf(tensor), width, static_cast<size_t>(shape[1]), factor);
      shape = {2 * shape[0], shape[1]};
    } else if (is("o_proj")) {
      const auto rows = static_cast<size_t>(shape[0]);
      const auto wide = WidenRows(Transposed(FloatsOf(tensor), rows), width, rows, 1);
      values = Transposed(wide, wide.size() / rows);
      shape = {shape[0], 2 * shape[1]};
    }
    specs.push_back({tensor.name, values.empty() ? tensor.dtype : DType::kF32, shape});
    widened.push_back(std::move(values));
  }
  std::vector<std::byte> table;
  if (!table_of.empty()) {
    ASSIGN_OR_RETURN(const artifact::TensorSet model, artifact::TensorSet::OpenModel(table_of));
    const artifact::StoredTensor* const stored = model.Find("model.embed_tokens.weight");
    if (stored == nullptr) return NotFound(table_of.string() + ": has no table");
    specs.push_back({"embed_tokens.weight", stored->dtype, stored->shape});
    table.assign(stored->data.begin(), stored->data.end());
  }
  ASSIGN_OR_RETURN(auto writer,
                   artifact::SafetensorsWriter::Create(to / "model.safetensors", specs));
  for (size_t i = 0; i < widened.size(); ++i)
    RETURN_IF_ERROR(writer.Append(widened[i].empty() ? tensors.tensors()[i].data
                                                     : std::as_bytes(std::span(widened[i]))));
  if (!table.empty()) RETURN_IF_ERROR(writer.Append(table));
  return writer.Finish();
}

}  // namespace inflight::golden
