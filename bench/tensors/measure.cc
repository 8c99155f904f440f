// SPDX-License-Identifier: Apache-2.0
#include "bench/tensors/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <random>
#include <utility>

#include "base/status_macros.h"
#include "bench/tensors/sequences.h"

namespace inflight::bench {
namespace {

ServerCounters Difference(const ServerCounters& after, const ServerCounters& before) {
  ServerCounters difference;
  for (const auto& [name, counters] : after) {
    const auto found = before.find(name);
    difference[name] = found == before.end() ? counters : counters - found->second;
  }
  return difference;
}

// When requests of a rate are due, one after the other.
class Schedule {
 public:
  Schedule(const MeasureOptions& options, double rate)
      : rate_(rate), is_poisson_(options.is_poisson), random_(options.seed) {}

  int64_t due_ns() const { return due_ns_; }
  void Begin(int64_t now_ns) { due_ns_ = now_ns; }
  void Advance() {
    const double uniform = (static_cast<double>(random_() >> 11) + 1) * 0x1p-53;
    const double gap_s = (is_poisson_ ? -std::log(uniform) : 1) / rate_;
    due_ns_ += static_cast<int64_t>(gap_s * 1e9);
  }

 private:
  const double rate_;
  const bool is_poisson_;
  std::mt19937_64 random_;
  int64_t due_ns_ = 0;
};

// Keeps requests under way and sorts those that ended into windows.
class Level {
 public:
  // `sequences` null: requests are of none.
  Level(const MeasureOptions& options, double level, LoadTransport& transport, Sequences* sequences)
      : options_(options),
        transport_(transport),
        sequences_(sequences),
        schedule_(options, level),
        outcomes_(
            static_cast<size_t>(options.is_rate ? options.max_under_way : std::llround(level))) {
    for (RequestOutcome& outcome : outcomes_) idle_.push_back(&outcome);
    if (sequences_ != nullptr) sequences_->SetSlots(outcomes_.size());
    schedule_.Begin(LoadNowNs());
  }

  // Sends requests, `limit` at most, until `is_over` says so. Those under way stay so.
  Window Run(int64_t limit, const std::function<bool(const Window&)>& is_over) {
    Window window;
    const int64_t begin_ns = LoadNowNs();
    while (!is_over(window)) {
      const int64_t wake_ns = Send(limit);
      if (limit == 0 && busy_.empty()) break;
      transport_.Poll(wake_ns);
      Take(window);
    }
    window.seconds = static_cast<double>(LoadNowNs() - begin_ns) * 1e-9;
    return window;
  }

  // Ends what was begun on the server, once nothing is under way.
  void EndSequences() {
    for (size_t slot = 0; sequences_ != nullptr && slot < outcomes_.size(); ++slot) {
      const auto step = sequences_->Rest(slot);
      if (!step) continue;
      RequestOutcome& outcome = outcomes_[slot];
      std::erase(idle_, &outcome);
      busy_.push_back(&outcome);
      outcome = RequestOutcome();
      outcome.sequence = *step;
      transport_.Start(sequences_->position(slot), outcome);
    }
    Run(0, [](const Window&) { return false; });
  }

 private:
  // When to look again: a request is due, or a window may be over.
  int64_t Send(int64_t& limit) {
    const int64_t wake_ns = LoadNowNs() + 10'000'000;
    while (limit > 0 && !idle_.empty()) {
      const int64_t now = LoadNowNs();
      if (options_.is_rate && schedule_.due_ns() > now)
        return std::min(wake_ns, schedule_.due_ns());
      RequestOutcome& outcome = *idle_.back();
      idle_.pop_back();
      busy_.push_back(&outcome);
      outcome = RequestOutcome();
      outcome.due_ns = options_.is_rate ? schedule_.due_ns() : now;
      if (options_.is_rate) schedule_.Advance();
      --limit;
      size_t index = num_started_++;
      if (sequences_ != nullptr) {
        const auto slot = static_cast<size_t>(&outcome - outcomes_.data());
        outcome.sequence = sequences_->Next(slot);
        index = sequences_->position(slot);
      }
      transport_.Start(index, outcome);
    }
    return wake_ns;
  }

  void Take(Window& window) {
    for (size_t i = 0; i < busy_.size();) {
      RequestOutcome& outcome = *busy_[i];
      if (outcome.end_ns == 0) {
        ++i;
        continue;
      }
      if (outcome.error.empty())
        window.samples.push_back(SampleOf(outcome));
      else
        Fail(window, outcome);
      idle_.push_back(&outcome);
      busy_[i] = busy_.back();
      busy_.pop_back();
    }
  }

  void Fail(Window& window, const RequestOutcome& outcome) {
    ++window.errors[outcome.error];
    if (sequences_ != nullptr) sequences_->Drop(static_cast<size_t>(&outcome - outcomes_.data()));
  }

  const MeasureOptions& options_;
  LoadTransport& transport_;
  Sequences* const sequences_;
  Schedule schedule_;
  std::vector<RequestOutcome> outcomes_;
  std::vector<RequestOutcome*> idle_, busy_;
  size_t num_started_ = 0;
};

constexpr int64_t kNoLimit = INT64_MAX;

bool Never(const Window&) { return false; }

Result<LevelResult> MeasureFixed(const MeasureOptions& options, const ServedModel& model,
                                 ServerCalls& calls, Level& level) {
  ASSIGN_OR_RETURN(const ServerCounters before, ReadCounters(calls, model));
  Window window = level.Run(options.num_requests, Never);
  ASSIGN_OR_RETURN(const ServerCounters after, ReadCounters(calls, model));
  window.server = Difference(after, before);
  return LevelResult{.is_stable = true,
                     .figures = Summarize({window}, options.batch_size, options.percentile)};
}

Result<LevelResult> MeasureWindows(const MeasureOptions& options, const ServedModel& model,
                                   ServerCalls& calls, Level& level) {
  // The server's counts at the windows' borders, asked for while the load goes on.
  const auto read = [&] {
    return std::async(std::launch::async, [&] { return ReadCounters(calls, model); });
  };
  std::vector<std::future<Result<ServerCounters>>> borders;
  borders.push_back(read());
  std::vector<Window> windows;
  bool is_stable = false;
  while (!is_stable && windows.size() < static_cast<size_t>(options.max_windows)) {
    const int64_t end_ns = LoadNowNs() + options.interval_ms * 1'000'000;
    windows.push_back(level.Run(kNoLimit, [&](const Window& window) {
      if (options.window_requests == 0) return LoadNowNs() >= end_ns;
      size_t num_ended = window.samples.size();
      for (const auto& [kind, count] : window.errors) num_ended += static_cast<size_t>(count);
      return num_ended >= static_cast<size_t>(options.window_requests);
    }));
    borders.push_back(read());
    if (windows.back().samples.empty()) break;
    is_stable = IsStable(windows, options.stability, options.percentile);
  }
  level.Run(0, Never);
  std::vector<ServerCounters> counters;
  for (auto& border : borders) {
    ASSIGN_OR_RETURN(ServerCounters at_border, border.get());
    counters.push_back(std::move(at_border));
  }
  for (size_t i = 0; i < windows.size(); ++i)
    windows[i].server = Difference(counters[i + 1], counters[i]);
  if (windows.size() > kStableWindows)
    windows.erase(windows.begin(), windows.end() - kStableWindows);
  return LevelResult{.is_stable = is_stable,
                     .figures = Summarize(windows, options.batch_size, options.percentile)};
}

}  // namespace

Status Measure(const MeasureOptions& options, const ServedModel& model, ServerCalls& calls,
               LoadTransport& transport, const std::function<void(const LevelResult&)>& done) {
  std::optional<Sequences> sequences;
  if (options.sequences) sequences.emplace(*options.sequences, options.seed);
  for (const double strength : options.levels) {
    Level level(options, strength, transport, sequences ? &*sequences : nullptr);
    if (options.num_warmup > 0) level.Run(options.num_warmup, Never);
    ASSIGN_OR_RETURN(LevelResult result, options.num_requests > 0
                                             ? MeasureFixed(options, model, calls, level)
                                             : MeasureWindows(options, model, calls, level));
    result.level = strength;
    level.EndSequences();
    done(result);
    const Figures& figures = result.figures;
    if (figures.num_requests == 0)
      return Unavailable(figures.errors.empty()
                             ? "no request ended within a window; raise --measurement-interval"
                             : "no request was answered: " + figures.errors.begin()->first);
    if (options.latency_limit_us > 0 &&
        figures.Latency(options.percentile) > options.latency_limit_us)
      break;
  }
  return Status::Ok();
}

}  // namespace inflight::bench
