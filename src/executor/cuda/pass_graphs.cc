// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/pass_graphs.h"

#include <utility>

#include "base/status_macros.h"
#include "ops/cuda/cuda_stream.h"

namespace inflight::executor::cuda {

PassGraphs::PassGraphs(int num_passes, int max_rows, inflight::Stream& stream, Enqueue enqueue)
    : stream_(stream), enqueue_(std::move(enqueue)) {
  for (int pass = 0; pass < num_passes; ++pass)
    graphs_.push_back(std::make_unique<StepGraphs>(
        GraphShapes(max_rows, /*max_tokens=*/0), ops::cuda::AsCuda(stream).handle(),
        [this, pass](const StepShape& shape, StepVariant /*variant*/) {
          return enqueue_(pass, shape.num_rows);
        }));
}

Status PassGraphs::WarmUp(bool use_graphs, bool records_all, logging::Level level) {
  if (graphs_.empty()) return Status::Ok();
  for (const StepShape& shape : graphs_.front()->shapes())
    for (int pass = 0; pass < size(); ++pass) RETURN_IF_ERROR(enqueue_(pass, shape.num_rows));
  use_graphs_ = use_graphs;
  RETURN_IF_ERROR(stream_.Synchronize());
  return use_graphs ? RecordPasses(graphs_, records_all, level) : Status::Ok();
}

Status PassGraphs::Run(int pass, int num_rows) {
  StepGraphs& graphs = *graphs_[static_cast<size_t>(pass)];
  const size_t graph = graphs.Find(StepShape::Decode(num_rows));
  if (use_graphs_ && graph < graphs.shapes().size())
    return graphs.Launch(graph, StepVariant::kGreedy);
  return enqueue_(pass, num_rows);
}

}  // namespace inflight::executor::cuda
