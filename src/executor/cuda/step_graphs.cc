// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/step_graphs.h"

#include <algorithm>
#include <chrono>
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

constexpr double kRecordingMs = 1500;

double ElapsedMs(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

uint64_t FreeBytes() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  cudaMemGetInfo(&free_bytes, &total_bytes);
  return free_bytes;
}

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

std::vector<StepShape> WithAdapters(std::vector<StepShape> shapes) {
  const size_t num_without = shapes.size();
  shapes.resize(2 * num_without);
  for (size_t i = 0; i < num_without; ++i) {
    shapes[num_without + i] = shapes[i];
    shapes[num_without + i].has_adapters = true;
  }
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

// The largest first: they save the most.
Status StepGraphs::RecordAtLoad(bool all, logging::Level level,
                                std::span<const StepVariant> variants) {
  const auto start = std::chrono::steady_clock::now();
  const uint64_t free_before = FreeBytes();
  const auto num_shapes =
      static_cast<size_t>(std::ranges::count(shapes_, false, &StepShape::has_adapters));
  for (const StepVariant variant : variants) {
    for (size_t i = shapes_.size(); i-- > 0;) {
      if (shapes_[i].has_adapters) continue;
      if (ElapsedMs(start) > kRecordingMs && !all) break;
      RETURN_IF_ERROR(Record(i, variant));
    }
  }
  RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(stream_), "recording steps"));
  const uint64_t free_after = FreeBytes();
  logging::Log(level, "steps recorded as CUDA graphs",
               {{"graphs", num_recorded_},
                {"of", num_shapes * variants.size()},
                {"ms", ElapsedMs(start)},
                {"bytes", free_before > free_after ? free_before - free_after : 0}});
  return Status::Ok();
}

Status StepGraphs::Launch(size_t shape_idx, StepVariant variant) {
  cudaGraphExec_t& executable = graphs_[static_cast<size_t>(variant)][shape_idx];
  if (executable == nullptr) RETURN_IF_ERROR(Record(shape_idx, variant));
  return ToStatus(cudaGraphLaunch(executable, stream_), "cannot launch the graph of a step");
}

Status RecordPasses(std::span<const std::unique_ptr<StepGraphs>> passes, bool all,
                    logging::Level level) {
  const auto start = std::chrono::steady_clock::now();
  int num_recorded = 0;
  for (size_t i = passes.empty() ? 0 : passes.front()->shapes().size(); i-- > 0;) {
    if (ElapsedMs(start) > kRecordingMs && !all) break;
    for (const auto& graphs : passes) RETURN_IF_ERROR(graphs->Record(i, StepVariant::kGreedy));
    num_recorded += static_cast<int>(passes.size());
  }
  logging::Log(level, "passes recorded as CUDA graphs",
               {{"graphs", num_recorded}, {"ms", ElapsedMs(start)}});
  return Status::Ok();
}

}  // namespace inflight::executor::cuda
