// SPDX-License-Identifier: Apache-2.0
// Sends traces to an OpenTelemetry collector: OTLP over HTTP, in JSON, in batches.
//
// Threads: Export is thread-safe and never waits; a thread of its own sends, and at the end what is
// left, as long as it is taken.
// Errors: a batch that the collector does not take, or for which there is no memory, is dropped and
// logged, as are spans beyond the queue's size.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "protocol/http_client/http_client.h"
#include "serving/trace/trace_config.h"
#include "serving/trace/tracer.h"

namespace inflight::otlp {

class OtlpExporter final : public serving::TraceExporter {
 public:
  // kInvalidArgument for a url that is none.
  static Result<std::shared_ptr<OtlpExporter>> Create(serving::OpenTelemetryOptions options);
  ~OtlpExporter() override;

  void Export(serving::FinishedTrace trace) override;
  std::string mode() const override { return "opentelemetry"; }
  std::vector<std::pair<std::string, std::string>> settings() const override;

 private:
  OtlpExporter(serving::OpenTelemetryOptions options, http_client::Url url);
  void Run();
  std::vector<std::string> TakeBatch();
  bool Send(const std::vector<std::string>& spans) const;  // whether they were taken

  const serving::OpenTelemetryOptions options_;
  const http_client::Url url_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::mt19937_64 random_;  // under the lock
  std::deque<std::string> spans_;
  bool has_dropped_ = false;  // since the last batch
  bool is_stopping_ = false;
  std::thread sender_;  // last
};

}  // namespace inflight::otlp
