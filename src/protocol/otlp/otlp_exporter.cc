// SPDX-License-Identifier: Apache-2.0
#include "protocol/otlp/otlp_exporter.h"

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/thread_boundary.h"
#include "base/thread_name.h"
#include "protocol/otlp/span_json.h"

namespace inflight::otlp {
namespace {

constexpr std::chrono::seconds kPostTimeout{10};

int64_t WallClockOffsetNs() {
  using namespace std::chrono;
  const auto wall_ns = duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
  return wall_ns - Clock::System().NowNs();
}

}  // namespace

Result<std::shared_ptr<OtlpExporter>> OtlpExporter::Create(serving::OpenTelemetryOptions options) {
  ASSIGN_OR_RETURN(http_client::Url url, http_client::ParseUrl(options.url));
  if (url.is_tls)
    return InvalidArgument("'" + options.url + "' is no url of the form http://host:port/path");
  return std::shared_ptr<OtlpExporter>(new OtlpExporter(std::move(options), std::move(url)));
}

OtlpExporter::OtlpExporter(serving::OpenTelemetryOptions options, http_client::Url url)
    : options_(std::move(options)),
      url_(std::move(url)),
      random_(std::random_device()()),
      sender_([this] {
        NameThisThread("otlp");
        Run();
      }) {}

OtlpExporter::~OtlpExporter() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_all();
  sender_.join();
}

void OtlpExporter::Export(serving::FinishedTrace trace) {
  const int64_t offset_ns = WallClockOffsetNs();
  const std::lock_guard lock(mutex_);
  const auto limit = static_cast<size_t>(options_.max_queue_size);
  for (std::string& span :
       Spans(trace, {.wall_clock_offset_ns = offset_ns, .random = [this] { return random_(); }})) {
    if (spans_.size() >= limit) {
      if (std::exchange(has_dropped_, true)) return;
      return logging::Warning("spans are dropped, since the queue is full",
                              {{"bsp_max_queue_size", options_.max_queue_size}});
    }
    spans_.push_back(std::move(span));
  }
  if (spans_.size() >= static_cast<size_t>(options_.max_export_batch_size)) wake_.notify_all();
}

std::vector<std::pair<std::string, std::string>> OtlpExporter::settings() const {
  return {{"bsp_max_export_batch_size", std::to_string(options_.max_export_batch_size)},
          {"bsp_schedule_delay", std::to_string(options_.schedule_delay_ms)},
          {"bsp_max_queue_size", std::to_string(options_.max_queue_size)}};
}

void OtlpExporter::Run() {
  const auto batch_size = static_cast<size_t>(options_.max_export_batch_size);
  std::unique_lock lock(mutex_);
  while (!is_stopping_ || !spans_.empty()) {
    wake_.wait_for(lock, std::chrono::milliseconds(options_.schedule_delay_ms),
                   [&] { return is_stopping_ || spans_.size() >= batch_size; });
    if (spans_.empty()) continue;
    lock.unlock();
    bool is_taken = false;
    RunTurn("otlp", [&] { is_taken = Send(TakeBatch()); });
    lock.lock();
    if (is_stopping_ && !is_taken) return;
  }
}

std::vector<std::string> OtlpExporter::TakeBatch() {
  const std::lock_guard lock(mutex_);
  has_dropped_ = false;
  std::vector<std::string> batch;
  while (!spans_.empty() && batch.size() < static_cast<size_t>(options_.max_export_batch_size)) {
    batch.push_back(std::move(spans_.front()));
    spans_.pop_front();
  }
  return batch;
}

bool OtlpExporter::Send(const std::vector<std::string>& spans) const {
  const Status sent = http_client::PostJson({.url = url_,
                                             .headers = {},
                                             .body = ExportBody(options_.resource, spans),
                                             .timeout = kPostTimeout,
                                             .may_reach = {}});
  if (sent.ok()) return true;
  logging::Error("traces are lost, since the collector did not take them",
                 {{"url", options_.url}, {"spans", spans.size()}, {"reason", sent.message()}});
  return false;
}

}  // namespace inflight::otlp
