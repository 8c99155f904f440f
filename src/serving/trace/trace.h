// SPDX-License-Identifier: Apache-2.0
// One traced request on its way: what happened when, in the front end and in each model that ran
// for it, and with the level TENSORS the tensors (docs/tracing.md).
//
// A Trace is a handle on the record of one model's run; an empty one takes every call and keeps
// nothing, so callers need not ask. The records of a request go to its observer together, when the
// last handle is gone.
//
// Threads: all methods are thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serving/statistics/statistics.h"
#include "serving/tensors/tensor.h"
#include "serving/trace/trace_settings.h"

namespace inflight::serving {

struct TraceEvent {
  std::string_view name;  // a literal: "REQUEST_START"
  int64_t ns;             // monotonic
};

struct TraceTensor {
  std::string_view activity;  // a literal: "TENSOR_QUEUE_INPUT"
  std::string name;
  std::string data;  // elements between commas; texts in quotation marks
  std::vector<int64_t> shape;
  DataType datatype;
};

// What a language model read and wrote for a request; literals, but for the counts.
struct TraceGeneration {
  int64_t num_input_tokens = 0;
  int64_t num_output_tokens = 0;
  std::string_view finish_reason;  // FinishReasonName of its last sequence
};

struct TraceRecord {
  uint64_t id = 0;
  uint64_t parent_id = 0;  // 0 = the request itself
  std::string model_name;
  std::string model_version;
  std::string request_id;
  std::vector<TraceEvent> events;
  std::vector<TraceTensor> tensors;
  bool is_chat = false;  // of a language model: its prompt is messages
  std::optional<TraceGeneration> generation;
};

// The context that a client's headers bring (W3C Trace Context); empty where it brings none.
struct TraceContext {
  std::string traceparent;
  std::string tracestate;
};

struct FinishedTrace {
  std::vector<TraceRecord> records;  // parents before children
  TraceContext context;
};

class Trace {
 public:
  using Observer = std::function<void(FinishedTrace)>;
  using NextId = std::function<uint64_t()>;

  Trace() = default;
  Trace(TraceLevels levels, TraceContext context, NextId next_id, Observer observer);

  explicit operator bool() const { return tree_ != nullptr; }

  void SetModel(const std::string& name, const std::string& version,
                const std::string& request_id) const;
  void Mark(std::string_view event) const;  // now
  void Mark(std::string_view event, int64_t ns) const;
  // QUEUE_START and the COMPUTE_* events.
  void AddSpan(const RequestSpan& span) const;
  void SetChat() const;
  void SetGeneration(const TraceGeneration& generation) const;
  void AddTensors(std::string_view activity, std::span<const Tensor> tensors) const;

  // The run of another model for this one.
  Trace Child() const;

 private:
  struct Tree;
  Trace(std::shared_ptr<Tree> tree, size_t record) : tree_(std::move(tree)), record_(record) {}

  std::shared_ptr<Tree> tree_;
  size_t record_ = 0;
};

}  // namespace inflight::serving
