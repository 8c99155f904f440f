// SPDX-License-Identifier: Apache-2.0
// Stands in for cuda/cuda_ranks.cc in builds without CUDA.
#include "executor/cuda_ranks.h"

namespace inflight::executor {

Status CheckCudaRanks(const model::RankPart&) { return Status::Ok(); }

Result<LocalBackend> CreateCudaRanks(const RankEngines&, const std::vector<Device*>&,
                                     const ExecutorOptions&, const std::string&,
                                     const std::vector<DraftWeights>&) {
  return Unimplemented("device: got cuda, this program was built without CUDA");
}

}  // namespace inflight::executor
