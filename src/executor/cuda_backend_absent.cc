// SPDX-License-Identifier: Apache-2.0
// Stands in for cuda/cuda_backend.cc in builds without CUDA.
#include "executor/cuda_backend.h"

namespace inflight::executor {

// NOLINTBEGIN(performance-unnecessary-value-param): the other one keeps what it is given.
Result<std::unique_ptr<Backend>> CreateCudaBackend(std::shared_ptr<const model::Engine>, Device&,
                                                   const MemoryPlan&, const ops::OpTable&,
                                                   ops::OpChoice, DraftWeights,
                                                   const ops::OpTable&) {
  return Unimplemented("device: got cuda, this program was built without CUDA");
}
// NOLINTEND(performance-unnecessary-value-param)

uint64_t CudaStepBytes(const MemoryPlan&) { return 0; }
uint64_t CudaRankBytes(const model::ModelConfig&, int) { return 0; }
uint64_t CudaDraftBytes(const model::ModelConfig&, const model::EngineLimits&) { return 0; }
uint64_t CudaMedusaBytes(const model::ModelConfig&, const MemoryPlan&) { return 0; }
uint64_t CudaEagleBytes(const model::EagleConfig&, const MemoryPlan&) { return 0; }

}  // namespace inflight::executor
