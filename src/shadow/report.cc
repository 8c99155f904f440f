// SPDX-License-Identifier: Apache-2.0
#include "shadow/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

namespace inflight::shadow {
namespace {

using nlohmann::json;

double Percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto place = std::lround(share * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, values.begin() + place);
  return values[static_cast<size_t>(place)];
}

std::string LatencyLine(std::string_view name, const std::vector<double>& first_ms,
                        const std::vector<double>& total_ms) {
  return fmt::format(
      "{}: to the first byte {:.1f} ms (p50), {:.1f} ms (p99); whole {:.1f} ms (p50), {:.1f} ms "
      "(p99)\n",
      name, Percentile(first_ms, 0.5), Percentile(first_ms, 0.99), Percentile(total_ms, 0.5),
      Percentile(total_ms, 0.99));
}

json ReplyJson(const Reply& reply) {
  if (!reply.answer.ok()) return {{"error", reply.answer.status().message()}};
  return {
      {"status", reply.answer->status}, {"first_ms", reply.first_ms}, {"total_ms", reply.total_ms}};
}

void Print(FILE* out, const std::string& text) { std::fwrite(text.data(), 1, text.size(), out); }

}  // namespace

void Report::Add(const Outcome& outcome) {
  const std::lock_guard lock(mutex_);
  ++num_requests_;
  const std::string name =
      fmt::format("{} {} {}", num_requests_, outcome.request.method, outcome.request.path);
  for (const auto& [side, reply] :
       {std::pair("old", &outcome.old_reply), {"new", &outcome.new_reply}})
    if (!reply->answer.ok())
      Print(out_,
            fmt::format("{}: {}: no answer: {}\n", name, side, reply->answer.status().message()));
  std::set<Kind> kinds;
  for (const Difference& difference : outcome.differences) {
    kinds.insert(difference.kind);
    Print(out_, fmt::format("{}: {}{}{}: old {} new {}\n", name, NameOf(difference.kind),
                            difference.place.empty() ? "" : " ", difference.place,
                            difference.old_value, difference.new_value));
  }
  for (const Kind kind : kinds) ++num_of_kind_[static_cast<size_t>(kind)];
  num_different_ += kinds.empty() ? 0 : 1;
  num_failed_ += outcome.HasFailed() ? 1 : 0;
  if (!outcome.HasFailed()) {
    old_latencies_.first_ms.push_back(outcome.old_reply.first_ms);
    old_latencies_.total_ms.push_back(outcome.old_reply.total_ms);
    new_latencies_.first_ms.push_back(outcome.new_reply.first_ms);
    new_latencies_.total_ms.push_back(outcome.new_reply.total_ms);
  }
  std::fflush(out_);  // for who reads along
  if (file_ != nullptr) Write(outcome);
}

void Report::AddLeftOut() {
  const std::lock_guard lock(mutex_);
  ++num_left_out_;
}

void Report::Write(const Outcome& outcome) const {
  json differences = json::array();
  for (const Difference& difference : outcome.differences) {
    differences.push_back({{"kind", NameOf(difference.kind)},
                           {"place", difference.place},
                           {"old", difference.old_value},
                           {"new", difference.new_value}});
  }
  const json line = {{"request", num_requests_},
                     {"method", outcome.request.method},
                     {"path", outcome.request.path},
                     {"old", ReplyJson(outcome.old_reply)},
                     {"new", ReplyJson(outcome.new_reply)},
                     {"differences", differences}};
  Print(file_, line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
  std::fflush(file_);
}

void Report::PrintSummary() const {
  const std::lock_guard lock(mutex_);
  std::string kinds;
  for (size_t i = 0; i < num_of_kind_.size(); ++i)
    if (num_of_kind_[i] > 0)
      kinds += fmt::format("{}{} {}", kinds.empty() ? " (" : ", ", NameOf(static_cast<Kind>(i)),
                           num_of_kind_[i]);
  if (!kinds.empty()) kinds += ")";
  Print(out_, fmt::format("{} requests: {} equal, {} different{}, {} without an answer{}\n",
                          num_requests_, num_requests_ - num_different_ - num_failed_,
                          num_different_, kinds, num_failed_,
                          num_left_out_ > 0
                              ? fmt::format("; {} more went to the old server alone", num_left_out_)
                              : ""));
  Print(out_, LatencyLine("old", old_latencies_.first_ms, old_latencies_.total_ms));
  Print(out_, LatencyLine("new", new_latencies_.first_ms, new_latencies_.total_ms));
  std::fflush(out_);
}

int Report::num_requests() const {
  const std::lock_guard lock(mutex_);
  return num_requests_;
}

int Report::num_unequal() const {
  const std::lock_guard lock(mutex_);
  return num_different_ + num_failed_;
}

}  // namespace inflight::shadow
