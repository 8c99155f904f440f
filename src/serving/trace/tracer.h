// SPDX-License-Identifier: Apache-2.0
// Which requests are traced, and where their traces go (docs/tracing.md).
//
// A setting is that of the model, else that of all models, else that of the start. Models without
// settings of their own are counted together.
//
// Threads: all methods are thread-safe. While nothing is traced, Sample is one relaxed load.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "serving/trace/trace.h"
#include "serving/trace/trace_file.h"
#include "serving/trace/trace_settings.h"

namespace inflight::serving {

// Takes traces in place of a file.
class TraceExporter {
 public:
  virtual ~TraceExporter() = default;

  virtual void Export(FinishedTrace trace) = 0;  // never waits

  virtual std::string mode() const = 0;  // its name among the settings
  // Further settings that clients see and cannot change.
  virtual std::vector<std::pair<std::string, std::string>> settings() const = 0;
};

struct TraceOptions {
  TraceSettings start;
  std::string file;                         // none: nothing is traced, whatever the level
  std::shared_ptr<TraceExporter> exporter;  // null = the file
};

class Tracer {
 public:
  explicit Tracer(TraceOptions options = {});

  // `model` empty = all models.
  void Update(const std::string& model, const TraceUpdate& update);

  // Names and values as clients see them, in the order of the protocol.
  using Description = std::vector<std::pair<std::string, std::vector<std::string>>>;
  Description Describe(const std::string& model) const;

  // False: Sample gives nothing.
  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }
  // A trace for the next request to `model`, or an empty one.
  Trace Sample(const std::string& model, const TraceContext& context = {});

 private:
  class Scope;

  const std::shared_ptr<Scope>& ScopeOfLocked(const std::string& model) const;
  std::shared_ptr<Scope> MakeScope(const TraceSettings& settings) const;

  const TraceOptions options_;
  const std::shared_ptr<TraceFile> file_;  // null without one
  const std::shared_ptr<std::atomic<uint64_t>> next_id_;
  std::atomic<bool> is_on_{false};  // any scope has a level
  mutable std::mutex mutex_;
  TraceOverrides overrides_;
  std::map<std::string, TraceOverrides> model_overrides_;
  std::shared_ptr<Scope> scope_;
  std::map<std::string, std::shared_ptr<Scope>> model_scopes_;  // keys as in model_overrides_
};

}  // namespace inflight::serving
