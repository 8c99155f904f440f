// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/step_graphs.h"

#include <algorithm>
#include <utility>

#include "tensor/cuda_status.h"

namespace inflight::executor::cuda {
namespace {

using inflight::cuda::ToStatus;

constexpr std::array kSizes = {1,  2,  3,  4,  6,  8,   12,  16,  24,  32,  40,
                               48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256};
constexpr int kStepBeyond = 64;

std::vector<int> SizesUpTo(int max_rows) {
  std::vector<int> sizes;
  for (const int size : kSizes)
    if (size < max_rows) sizes.push_back(size);
  for (int size = kSizes.back() + kStepBeyond; size < max_rows; size += kStepBeyond)
    sizes.push_back(size);
  sizes.push_back(max_rows);
  return sizes;
}

}  // namespace

StepGraphs::StepGraphs(int max_rows, cudaStream_t stream, Enqueue enqueue)
    : stream_(stream), enqueue_(std::move(enqueue)), sizes_(SizesUpTo(max_rows)) {
  for (auto& graphs : graphs_) graphs.resize(sizes_.size());
}

StepGraphs::~StepGraphs() {
  for (const auto& graphs : graphs_)
    for (cudaGraphExec_t graph : graphs)
      if (graph != nullptr) cudaGraphExecDestroy(graph);
}

size_t StepGraphs::IndexOf(int num_rows) const {
  return static_cast<size_t>(std::ranges::lower_bound(sizes_, num_rows) - sizes_.begin());
}

Status StepGraphs::Record(int size, StepVariant variant) {
  cudaGraphExec_t& executable = graphs_[static_cast<size_t>(variant)][IndexOf(size)];
  if (executable != nullptr) return Status::Ok();
  // Another thread may allocate meanwhile: a second model that loads.
  RETURN_IF_ERROR(ToStatus(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                           "cannot begin to record a step"));
  const Status enqueued = enqueue_(sizes_[IndexOf(size)], variant);
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

Status StepGraphs::Launch(int num_rows, StepVariant variant) {
  const size_t index = IndexOf(num_rows);
  cudaGraphExec_t& executable = graphs_[static_cast<size_t>(variant)][index];
  if (executable == nullptr) RETURN_IF_ERROR(Record(sizes_[index], variant));
  return ToStatus(cudaGraphLaunch(executable, stream_), "cannot launch the graph of a step");
}

}  // namespace inflight::executor::cuda
