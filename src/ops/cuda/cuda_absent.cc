// SPDX-License-Identifier: Apache-2.0
// Stands in for ops/cuda in builds without CUDA.
#include "base/check.h"
#include "ops/convert_rows.h"
#include "ops/cuda/cuda.h"
#include "ops/profile.h"
#include "ops/random.h"
#include "ops/tensor_core_order.h"

namespace inflight::ops {

void ResetProfile() {}
std::vector<ProfileEntry> TakeProfile() { return {}; }

// There is no CUDA device to pass: cuda::Probe refused it.
Status FillUniformOnGpu(const FillUniformParams&, Device&) { CHECK(false); }
Status ConvertRowsOnGpu(const ConvertRowsParams&, void*) { CHECK(false); }
bool CanOrderForTensorCores(const Weight&) { return false; }
Status OrderForTensorCores(Device&, Weight*) { CHECK(false); }

}  // namespace inflight::ops

namespace inflight::ops::cuda {

std::vector<OpTable> OpTables(const ShapeClass&, const Device&) { return {}; }

// There is no CUDA device to pass: cuda::Probe refused it.
Result<std::unique_ptr<Stream>> MakeStream(Device&, const ShapeClass&, int, int, OpChoice) {
  CHECK(false);
}
Status CheckRunnable(const ShapeClass&, const inflight::cuda::DeviceProperties&) { CHECK(false); }
uint64_t StreamBytes(const ShapeClass&, int, int) { return 0; }
Status TuneLinears(std::span<const LinearShape>, Stream&) { CHECK(false); }
std::string SaveTuning(Stream&) { CHECK(false); }
Status LoadTuning(std::string_view, Stream&) { CHECK(false); }

}  // namespace inflight::ops::cuda
