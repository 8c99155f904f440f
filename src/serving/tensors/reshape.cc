// SPDX-License-Identifier: Apache-2.0
#include "serving/tensors/reshape.h"

#include <cstddef>
#include <utility>
#include <vector>

namespace inflight::serving {
namespace {

// `shape` has the form `from`; it gets the form `to`. A shape of another form stays.
template <typename Dims>
void Reshape(bool has_batch, const Dims& from, const Dims& to, std::vector<int64_t>& shape) {
  const size_t skip = has_batch ? 1 : 0;
  if (shape.size() != static_cast<size_t>(from.size()) + skip) return;
  std::vector<int64_t> variable;
  for (int i = 0; i < from.size(); ++i) {
    if (from[i] == -1) variable.push_back(shape[static_cast<size_t>(i) + skip]);
  }
  shape.resize(skip);
  size_t next = 0;
  for (const int64_t dim : to) {
    shape.push_back(dim == -1 && next < variable.size() ? variable[next++] : dim);
  }
}

}  // namespace

void ShapeInput(const ::inference::ModelConfig& config, Tensor& input) {
  for (const auto& io : config.input()) {
    if (io.name() != input.name || !io.has_reshape()) continue;
    Reshape(config.max_batch_size() > 0, io.dims(), io.reshape().shape(), input.shape);
  }
}

void ShapeOutput(const ::inference::ModelConfig& config, Tensor& output) {
  for (const auto& io : config.output()) {
    if (io.name() != output.name || !io.has_reshape()) continue;
    Reshape(config.max_batch_size() > 0, io.reshape().shape(), io.dims(), output.shape);
  }
}

}  // namespace inflight::serving
