// SPDX-License-Identifier: Apache-2.0
#include "serving/sequence_table.h"

#include <algorithm>

#include "base/log.h"
#include "serving/sequence_controls.h"

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

SequenceTable::SequenceTable(const ::inference::ModelConfig& config, int num_instances,
                             Clock& clock, Run run, GiveUp give_up)
    : config_(config),
      clock_(clock),
      run_(std::move(run)),
      give_up_(std::move(give_up)),
      max_idle_ns_(1000 *
                   static_cast<int64_t>(std::min<uint64_t>(
                       config.sequence_batching().max_sequence_idle_microseconds(), kMaxIdleUs))),
      slots_per_instance_(SlotsPerInstance(config)),
      used_slots_(static_cast<size_t>(std::max(num_instances, 1)), 0) {}

Status SequenceTable::Add(QueuedRequest& item) {
  const Request& request = item.request;
  const Key key{request.sequence_id, request.sequence_name};
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
  if (waits && waiting_.size() >= kMaxWaiting) return Unavailable("Exceeds maximum queue size");
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
  if (live == live_.end()) ++used_slots_[static_cast<size_t>(instance)];
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
    --used_slots_[static_cast<size_t>(it->second.instance)];
    it = live_.erase(it);
  }
}

int SequenceTable::FreeInstanceLocked() const {
  const auto least = std::min_element(used_slots_.begin(), used_slots_.end());
  if (*least >= slots_per_instance_) return -1;
  return static_cast<int>(least - used_slots_.begin());
}

void SequenceTable::PlaceLocked(const Key& key, QueuedRequest item, int instance) {
  Live& live = live_[key];
  if (!config_.sequence_batching().state().empty() &&
      (item.request.sequence_start || live.states == nullptr)) {
    live.states = std::make_shared<SequenceStates::Values>();
  }
  item.states = live.states;
  if (item.request.sequence_end) {
    live_.erase(key);
    --used_slots_[static_cast<size_t>(instance)];
  } else {
    live.instance = instance;
    live.last_ns = clock_.NowNs();
  }
  run_(std::move(item), instance);
}

// In order of arrival, each sequence with all of its requests that wait.
void SequenceTable::AdmitWaitingLocked() {
  if (FreeInstanceLocked() < 0) return;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const auto live = live_.find(it->key);
    const int instance = live != live_.end() ? live->second.instance : FreeInstanceLocked();
    if (instance < 0) {
      ++it;
      continue;
    }
    if (live == live_.end()) ++used_slots_[static_cast<size_t>(instance)];
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
