// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/step_graphs.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "tensor/cuda_status.h"

namespace inflight::executor::cuda {
namespace {

using inflight::cuda::ToStatus;

constexpr std::array kRows = {1,  2,  3,  4,  6,  8,   12,  16,  24,  32,  40,
                              48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256};
constexpr int kRowsBeyond = 64;
constexpr std::array kPrefillTokens = {16, 32, 64, 96, 128, 192, 256, 384, 512};
constexpr int kPrefillRows = 4;

}  // namespace

std::vector<StepShape> GraphShapes(int max_rows, int max_tokens) {
  std::vector<StepShape> shapes;
  for (const int rows : kRows)
    if (rows < max_rows) shapes.push_back(StepShape::Decode(rows));
  for (int rows = kRows.back() + kRowsBeyond; rows < max_rows; rows += kRowsBeyond)
    shapes.push_back(StepShape::Decode(rows));
  shapes.push_back(StepShape::Decode(max_rows));
  for (const int tokens : kPrefillTokens)
    if (tokens <= max_tokens)
      shapes.push_back(StepShape::Prefill(std::min(kPrefillRows, max_rows), tokens));
  return shapes;
}

StepGraphs::StepGraphs(std::vector<StepShape> shapes, cudaStream_t stream, Enqueue enqueue)
    : stream_(stream), enqueue_(std::move(enqueue)), shapes_(std::move(shapes)) {
  for (auto& graphs : graphs_) graphs.resize(shapes_.size());
}

StepGraphs::~StepGraphs() {
  for (const auto& graphs : graphs_)
    for (cudaGraphExec_t graph : graphs)
      if (graph != nullptr) cudaGraphExecDestroy(graph);
}

size_t StepGraphs::Find(const StepShape& shape) const {
  const auto holds = [&shape](const StepShape& larger) { return larger.Holds(shape); };
  return static_cast<size_t>(std::ranges::find_if(shapes_, holds) - shapes_.begin());
}

Status StepGraphs::Record(size_t shape_idx, StepVariant variant) {
  cudaGraphExec_t& executable = graphs_[static_cast<size_t>(variant)][shape_idx];
  if (executable != nullptr) return Status::Ok();
  // Another thread may allocate meanwhile: a second model that loads.
  RETURN_IF_ERROR(ToStatus(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                           "cannot begin to record a step"));
  const Status enqueued = enqueue_(shapes_[shape_idx], variant);
  cudaGraph_t graph = nullptr;
  const Status ended =
      ToStatus(cudaStreamEndCapture(stream_, &graph), "cannot end recording a step");
  Status status = enqueued.ok() ? ended : enqueued;
  if (status.ok())
    status = ToStatus(cudaGraphInstantiate(&executable, graph, 0), "cannot make a graph of a step");
  if (status.ok())
    status = ToStatus(cudaGraphUpload(executable, stream_), "cannot upload the graph of a step");
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (status.ok()) ++num_recorded_;
  return status;
}

Status StepGraphs::Launch(size_t shape_idx, StepVariant variant) {
  cudaGraphExec_t& executable = graphs_[static_cast<size_t>(variant)][shape_idx];
  if (executable == nullptr) RETURN_IF_ERROR(Record(shape_idx, variant));
  return ToStatus(cudaGraphLaunch(executable, stream_), "cannot launch the graph of a step");
}

}  // namespace inflight::executor::cuda
