// SPDX-License-Identifier: Apache-2.0
#include "serving/sequences/sequence_table.h"

#include <algorithm>

#include "base/log.h"
#include "base/status_macros.h"
#include "serving/sequences/sequence_controls.h"

namespace inflight::serving {
namespace {

constexpr uint64_t kMaxIdleUs = uint64_t{1} << 50;  // 35 years: sums of times stay in range

int SlotsPerInstance(const ::inference::ModelConfig& config) {
  const int batch = std::max(config.max_batch_size(), 1);
  if (!config.sequence_batching().has_oldest()) return batch;
  return std::max(config.sequence_batching().oldest().max_candidate_sequences(), 1);
}

std::string Word(const Request& request) {
  return request.sequence_name.empty() ? std::to_string(request.sequence_id)
                                       : request.sequence_name;
}

}  // namespace

SequenceTable::SequenceTable(const ::inference::ModelConfig& config, Clock& clock, GiveUp give_up)
    : config_(config),
      clock_(clock),
      give_up_(std::move(give_up)),
      max_idle_ns_(1000 *
                   static_cast<int64_t>(std::min<uint64_t>(
                       config.sequence_batching().max_sequence_idle_microseconds(), kMaxIdleUs))),
      slots_per_instance_(SlotsPerInstance(config)) {}

int SequenceTable::AddInstance(Run run) {
  std::lock_guard lock(mutex_);
  const int instance = next_instance_++;
  slots_[instance].run = std::move(run);
  AdmitWaitingLocked();
  return instance;
}

void SequenceTable::RemoveInstance(int instance, std::function<void()> when_empty) {
  std::lock_guard lock(mutex_);
  Slots& slots = slots_.at(instance);
  if (slots.num_used > 0) {
    slots.when_empty = std::move(when_empty);
    return;
  }
  slots_.erase(instance);
  when_empty();
}

Status SequenceTable::Add(QueuedRequest& item) {
  const Request& request = item.request;
  const Key key = request.sequence_key();
  std::lock_guard lock(mutex_);
  DropIdleLocked();
  AdmitWaitingLocked();  // those that came earlier
  RETURN_IF_ERROR(CheckLocked(request, key));
  RETURN_IF_ERROR(PlaceOrHoldLocked(key, item));
  AdmitWaitingLocked();
  return Status::Ok();
}

void SequenceTable::Tick() {
  std::vector<GivenUp> given_up;
  {
    std::lock_guard lock(mutex_);
    DropIdleLocked();
    given_up = TakeGivenUpLocked();
    AdmitWaitingLocked();
  }
  AnswerGivenUp(std::move(given_up));
}

Status SequenceTable::PlaceOrHoldLocked(const Key& key, QueuedRequest& item) {
  const Request& request = item.request;
  const auto live = live_.find(key);
  const int instance = live != live_.end() ? live->second.instance : FreeInstanceLocked();
  const bool waits = live == live_.end() && (instance < 0 || IsWaitingLocked(key));
  if (waits && waiting_.size() >= kMaxWaiting)
    return Unavailable("Exceeds maximum queue size").WithReason(Reason::kQueueFull);
  if (live != live_.end() && request.sequence_start) {
    logging::Warning("a live sequence starts anew; its earlier requests end here",
                     {{"model", config_.name()}, {"sequence", Word(request)}});
  }
  AddSequenceControls(config_, item.request);
  if (waits) {
    constexpr int64_t kMaxUs = static_cast<int64_t>(kMaxIdleUs);
    const int64_t timeout_us = std::min(request.timeout_us, kMaxUs);
    const int64_t deadline_ns = timeout_us > 0 ? clock_.NowNs() + timeout_us * 1000 : 0;
    waiting_.push_back({key, std::move(item), deadline_ns});
    return Status::Ok();
  }
  if (live == live_.end()) ++slots_.at(instance).num_used;
  PlaceLocked(key, std::move(item), instance);
  return Status::Ok();
}

Status SequenceTable::CheckLocked(const Request& request, const Key& key) const {
  if (request.batch_size(config_.max_batch_size()) != 1) {
    return InvalidArgument("inference request to model '" + config_.name() +
                           "' must specify batch-size 1 due to requirements of sequence batcher");
  }
  if (request.sequence_id == 0 && request.sequence_name.empty()) {
    return InvalidArgument("inference request to model '" + config_.name() +
                           "' must specify a non-zero or non-empty correlation ID");
  }
  if (request.sequence_start || live_.contains(key) || IsWaitingLocked(key)) return Status::Ok();
  return InvalidArgument("inference request for sequence " + Word(request) + " to model '" +
                         config_.name() +
                         "' must specify the START flag on the first request of the sequence");
}

bool SequenceTable::IsWaitingLocked(const Key& key) const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const Waiting& waiting) { return waiting.key == key; });
}

void SequenceTable::DropIdleLocked() {
  const int64_t now_ns = clock_.NowNs();
  for (auto it = live_.begin(); it != live_.end();) {
    if (now_ns - it->second.last_ns <= max_idle_ns_) {
      ++it;
      continue;
    }
    GiveBackLocked(it->second.instance);
    it = live_.erase(it);
  }
}

// Behind the last request that runs in the slot.
void SequenceTable::GiveBackLocked(int instance) {
  const auto found = slots_.find(instance);
  Slots& slots = found->second;
  if (--slots.num_used > 0 || !slots.when_empty) return;
  const auto when_empty = std::move(slots.when_empty);
  slots_.erase(found);
  when_empty();
}

int SequenceTable::FreeInstanceLocked() const {
  int least = slots_per_instance_;
  int instance = -1;
  for (const auto& [number, slots] : slots_) {
    if (slots.when_empty || slots.num_used >= least) continue;
    least = slots.num_used;
    instance = number;
  }
  return instance;
}

void SequenceTable::PlaceLocked(const Key& key, QueuedRequest item, int instance) {
  Live& live = live_[key];
  if (!config_.sequence_batching().state().empty() &&
      (item.request.sequence_start || live.states == nullptr)) {
    live.states = std::make_shared<SequenceStates::Values>();
  }
  item.states = live.states;
  const bool ends = item.request.sequence_end;
  if (ends) {
    live_.erase(key);
  } else {
    live.instance = instance;
    live.last_ns = clock_.NowNs();
  }
  slots_.at(instance).run(std::move(item));
  if (ends) GiveBackLocked(instance);
}

// In order of arrival, each sequence with all of its requests that wait.
void SequenceTable::AdmitWaitingLocked() {
  if (waiting_.empty() || FreeInstanceLocked() < 0) return;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const auto live = live_.find(it->key);
    const int instance = live != live_.end() ? live->second.instance : FreeInstanceLocked();
    if (instance < 0) {
      ++it;
      continue;
    }
    if (live == live_.end()) ++slots_.at(instance).num_used;
    Waiting next = std::move(*it);
    it = waiting_.erase(it);
    PlaceLocked(next.key, std::move(next.item), instance);
  }
}

// A sequence that lost its first request, or waited too long with one, has lost those behind it
// too.
std::vector<SequenceTable::GivenUp> SequenceTable::TakeGivenUpLocked() {
  const int64_t now_ns = clock_.NowNs();
  std::vector<GivenUp> given_up;
  std::map<Key, Status> ended;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const Request& request = it->item.request;
    if (request.sequence_start) ended.erase(it->key);
    const auto before = ended.find(it->key);
    Status status = before != ended.end() ? before->second : Status::Ok();
    if (it->deadline_ns != 0 && it->deadline_ns <= now_ns) {
      status = Unavailable("timeout of the corresponding sequence has been expired");
      ended[it->key] = status;
    } else if (request.cancel->cancelled()) {
      status = Cancelled("the request was cancelled before it ran");
      if (request.sequence_start) ended[it->key] = Cancelled("its sequence was cancelled");
    }
    if (status.ok()) {
      ++it;
      continue;
    }
    given_up.push_back({std::move(it->item), std::move(status)});
    it = waiting_.erase(it);
  }
  return given_up;
}

void SequenceTable::AnswerGivenUp(std::vector<GivenUp> given_up) const {
  for (GivenUp& next : given_up) give_up_(std::move(next.item), std::move(next.status));
}

}  // namespace inflight::serving
