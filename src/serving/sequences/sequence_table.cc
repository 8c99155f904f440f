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
  if (!slots.used.empty()) {
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
  DropEndedLocked();
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
    DropEndedLocked();
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
    const auto timeout_us =
        static_cast<int64_t>(std::min<uint64_t>(request.timeout_us, kMaxIdleUs));
    const int64_t deadline_ns = timeout_us > 0 ? clock_.NowNs() + timeout_us * 1000 : 0;
    waiting_.push_back({key, std::move(item), deadline_ns});
    return Status::Ok();
  }
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

void SequenceTable::DropEndedLocked() {
  const int64_t now_ns = clock_.NowNs();
  for (auto it = live_.begin(); it != live_.end();) {
    const Live& live = it->second;
    if (now_ns - live.last_ns <= max_idle_ns_ && !live.fate->is_cancelled) {
      ++it;
      continue;
    }
    GiveBackLocked(live.instance, live.slot);
    it = live_.erase(it);
  }
}

int SequenceTable::TakeSlotLocked(int instance) {
  std::set<int>& used = slots_.at(instance).used;
  int slot = 0;
  while (!used.insert(slot).second) ++slot;
  return slot;
}

// Behind the last request that runs in the slot.
void SequenceTable::GiveBackLocked(int instance, int slot) {
  const auto found = slots_.find(instance);
  Slots& slots = found->second;
  slots.used.erase(slot);
  if (!slots.used.empty() || !slots.when_empty) return;
  const auto when_empty = std::move(slots.when_empty);
  slots_.erase(found);
  when_empty();
}

int SequenceTable::FreeInstanceLocked() const {
  int least = slots_per_instance_;
  int instance = -1;
  for (const auto& [number, slots] : slots_) {
    const auto num_used = static_cast<int>(slots.used.size());
    if (slots.when_empty || num_used >= least) continue;
    least = num_used;
    instance = number;
  }
  return instance;
}

void SequenceTable::PlaceLocked(const Key& key, QueuedRequest item, int instance) {
  const auto [place, is_new] = live_.try_emplace(key);
  Live& live = place->second;
  if (is_new) live.slot = TakeSlotLocked(instance);
  if (item.request.sequence_start || live.fate == nullptr) {
    live.fate = std::make_shared<SequenceFate>();
  }
  item.fate = live.fate;
  const int slot = item.slot = live.slot;
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
  if (ends) GiveBackLocked(instance, slot);
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
    Waiting next = std::move(*it);
    it = waiting_.erase(it);
    PlaceLocked(next.key, std::move(next.item), instance);
  }
}

// A sequence that waited too long with one request has lost those behind it too; one of which a
// request was cancelled has lost all that wait.
std::vector<SequenceTable::GivenUp> SequenceTable::TakeGivenUpLocked() {
  const int64_t now_ns = clock_.NowNs();
  std::vector<GivenUp> given_up;
  std::map<Key, Status> ended;
  std::set<Key> cancelled;
  for (const Waiting& waiting : waiting_) {
    if (waiting.item.request.cancel->cancelled()) cancelled.insert(waiting.key);
  }
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const Request& request = it->item.request;
    if (request.sequence_start) ended.erase(it->key);
    const auto before = ended.find(it->key);
    Status status = before != ended.end() ? before->second : Status::Ok();
    if (it->deadline_ns != 0 && it->deadline_ns <= now_ns) {
      status = Unavailable("timeout of the corresponding sequence has been expired");
      ended[it->key] = status;
    } else if (cancelled.contains(it->key)) {
      status = Cancelled(request.cancel->cancelled() ? "the request was cancelled before it ran"
                                                     : "its sequence was cancelled");
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
