// SPDX-License-Identifier: Apache-2.0
#include "serving/trace/trace.h"

#include <mutex>
#include <utility>

#include "base/clock.h"
#include "serving/trace/trace_text.h"

namespace inflight::serving {

struct Trace::Tree {
  ~Tree() { observer(std::move(trace)); }

  TraceLevels levels;
  NextId next_id;
  Observer observer;
  std::mutex mutex;
  FinishedTrace trace;
};

Trace::Trace(TraceLevels levels, TraceContext context, NextId next_id, Observer observer)
    : tree_(std::make_shared<Tree>()) {
  tree_->levels = levels;
  tree_->next_id = std::move(next_id);
  tree_->observer = std::move(observer);
  tree_->trace.context = std::move(context);
  tree_->trace.records.push_back({.id = tree_->next_id()});
}

void Trace::SetModel(const std::string& name, const std::string& version,
                     const std::string& request_id) const {
  if (!tree_) return;
  const std::lock_guard lock(tree_->mutex);
  TraceRecord& record = tree_->trace.records[record_];
  record.model_name = name;
  record.model_version = version;
  record.request_id = request_id;
}

void Trace::Mark(std::string_view event) const {
  if (tree_) Mark(event, Clock::System().NowNs());
}

void Trace::Mark(std::string_view event, int64_t ns) const {
  if (!tree_ || !tree_->levels.timestamps) return;
  const std::lock_guard lock(tree_->mutex);
  tree_->trace.records[record_].events.push_back({.name = event, .ns = ns});
}

void Trace::AddSpan(const RequestSpan& span) const {
  Mark("QUEUE_START", span.received_ns);
  Mark("COMPUTE_START", span.compute_start_ns);
  Mark("COMPUTE_INPUT_END", span.compute_input_end_ns);
  Mark("COMPUTE_OUTPUT_START", span.compute_output_start_ns);
  Mark("COMPUTE_END", span.finished_ns);
}

void Trace::SetChat() const {
  if (!tree_) return;
  const std::lock_guard lock(tree_->mutex);
  tree_->trace.records[record_].is_chat = true;
}

void Trace::SetGeneration(const TraceGeneration& generation) const {
  if (!tree_) return;
  const std::lock_guard lock(tree_->mutex);
  tree_->trace.records[record_].generation = generation;
}

void Trace::AddTensors(std::string_view activity, std::span<const Tensor> tensors) const {
  if (!tree_ || !tree_->levels.tensors) return;
  for (const Tensor& tensor : tensors) {
    TraceTensor traced = {.activity = activity,
                          .name = tensor.name,
                          .data = TraceText(tensor),
                          .shape = tensor.shape,
                          .datatype = tensor.datatype};
    const std::lock_guard lock(tree_->mutex);
    tree_->trace.records[record_].tensors.push_back(std::move(traced));
  }
}

Trace Trace::Child() const {
  if (!tree_) return {};
  const std::lock_guard lock(tree_->mutex);
  std::vector<TraceRecord>& records = tree_->trace.records;
  records.push_back({.id = tree_->next_id(), .parent_id = records[record_].id});
  return {tree_, records.size() - 1};
}

}  // namespace inflight::serving
