// SPDX-License-Identifier: Apache-2.0
// What the pickle of a state dict says of its tensors, before their bytes are found.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "artifact/pickle.h"
#include "inflight/status.h"
#include "tensor/dtype.h"
#include "tensor/tensor_view.h"

namespace inflight::artifact {

struct TorchStorage {
  std::string_view key;
  DType dtype = DType::kF32;
  int64_t num_elements = 0;
};

struct TorchTensor {
  std::string name;
  TorchStorage storage;
  int64_t offset = 0;  // of the first element in the storage, in elements
  Shape shape;
  std::vector<int64_t> strides;  // per axis, in elements; 0 or more
};

// The tensors of a pickled {name: tensor}. Checks all that can be checked without the bytes:
// arguments and their types, that a tensor lies within its storage, that no two of its elements are
// one and that names are unique. An error names the tensor.
Result<std::vector<TorchTensor>> ReadStateDict(const Pickle& pickle);

}  // namespace inflight::artifact
