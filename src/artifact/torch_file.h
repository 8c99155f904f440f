// SPDX-License-Identifier: Apache-2.0
// State dicts written by torch.save: `pytorch_model.bin`.
//
// Since torch 1.6 a zip file of stored entries below one folder (its name does not matter):
//
//   archive/data.pkl    pickle of {name: tensor}; storages are persistent ids
//                       ('storage', torch.FloatStorage, 'N', 'cpu', num_elements)
//   archive/data/N      bytes of storage N
//   archive/byteorder   "little"; absent before torch 2.1
//
// and before that (or with _use_new_zipfile_serialization=False) one after another:
//
//   pickle of the number 0x1950a86a20f9469cfc6c
//   pickle of 1001
//   pickle of {'little_endian': True, ...}
//   pickle of {name: tensor}; ids have a sixth member, None
//   pickle of [keys of storages]
//   per key: i64 num_elements, then its bytes
//
// Source: torch/serialization.py of torch 1.13 and 2.6. What is no dict of dense float or integer
// tensors by name is refused by name, and nothing in the file is run (artifact/pickle.h).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "artifact/stored_tensor.h"
#include "inflight/status.h"

namespace inflight::artifact {

struct TorchTensors {
  std::vector<StoredTensor> tensors;  // in the order of the dict; data in the file or in `gathered`
  // Dense copies of those tensors whose elements do not lie side by side in the file, a transposed
  // one for example. Together never larger than the file.
  std::vector<std::unique_ptr<std::byte[]>> gathered;
};

// `file` is for messages; truncation is kDataLoss, what torch may write but is no state dict of
// dense tensors kUnimplemented, the rest kInvalidArgument.
Result<TorchTensors> ParseTorchFile(std::span<const std::byte> bytes, std::string_view file);

}  // namespace inflight::artifact
