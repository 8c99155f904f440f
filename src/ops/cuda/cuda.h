// SPDX-License-Identifier: Apache-2.0
// Operators on NVIDIA GPUs, compute capability 8.0 and later. Programs built without CUDA link
// cuda_absent.cc, which offers none.
#pragma once

#include <memory>
#include <vector>

#include "ops/backend.h"

namespace inflight::ops::cuda {

std::vector<OpTable> OpTables(const ShapeClass& shape, const Device& device);
// Whether that is any; kUnimplemented says what is missing, and what is supported instead.
Status CheckRunnable(const ShapeClass& shape, const inflight::cuda::DeviceProperties& gpu);

Result<std::unique_ptr<Stream>> MakeStream(Device& device, const ShapeClass& shape,
                                           int max_num_tokens, int max_num_rows,
                                           OpChoice choice = OpChoice::kFastest);
uint64_t StreamBytes(const ShapeClass& shape, int max_num_tokens, int max_num_rows);

// As of ops/backend.h.
Status TuneLinears(std::span<const LinearShape> shapes, Stream& stream);
std::string SaveTuning(Stream& stream);
Status LoadTuning(std::string_view text, Stream& stream);

}  // namespace inflight::ops::cuda
