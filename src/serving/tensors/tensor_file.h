// SPDX-License-Identifier: Apache-2.0
// Tensors whose bytes a model's directory holds: of warm-ups and of initial states.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "inflight/status.h"
#include "serving/tensors/tensor.h"

namespace inflight::serving {

// As long as these are: more than 1/8 GiB of elements is kInvalidArgument.
Result<size_t> CountElements(const Tensor& tensor);

// Zeros; BYTES elements are empty texts.
Status FillWithZeros(Tensor& tensor);

// The bytes of `file` below `folder`: little endian, BYTES elements behind their sizes.
// kInvalidArgument, which names `field`, where it lies elsewhere; and where its size is not that of
// the shape.
Status FillFromFile(const std::filesystem::path& folder, const std::string& file,
                    std::string_view field, Tensor& tensor);

}  // namespace inflight::serving
