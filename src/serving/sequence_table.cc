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
                             Clock& clock, Run run)
    : config_(config),
      clock_(clock),
      run_(std::move(run)),
      max_idle_ns_(1000 *
                   static_cast<int64_t>(std::min<uint64_t>(
                       config.sequence_batching().max_sequence_idle_microseconds(), kMaxIdleUs))),
      slots_per_instance_(SlotsPerInstance(config)),
      used_slots_(static_cast<size_t>(std::max(num_instances, 1)), 0) {}

Status SequenceTable::Add(QueuedRequest& item) {
  const Request& request = item.request;
  const Key key{request.sequence_id, request.sequence_name};
  std::vector<Ready> ready;
  {
    std::lock_guard lock(mutex_);
    DropIdleLocked();
    RETURN_IF_ERROR(CheckLocked(request, key));
    AddSequenceControls(config_, item.request);
    if (const auto live = live_.find(key); live != live_.end()) {
      if (request.sequence_start) {
        logging::Warning("a live sequence starts anew; its earlier requests end here",
                         {{"model", config_.name()}, {"sequence", Word(request)}});
      }
      PlaceLocked(key, std::move(item), live->second.instance, ready);
    } else if (const int instance = FreeInstanceLocked(); instance >= 0 && !IsWaitingLocked(key)) {
      ++used_slots_[static_cast<size_t>(instance)];
      PlaceLocked(key, std::move(item), instance, ready);
    } else {
      waiting_.emplace_back(key, std::move(item));
    }
    AdmitWaitingLocked(ready);
  }
  for (Ready& next : ready) run_(std::move(next.item), next.instance);
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
                     [&](const auto& waiting) { return waiting.first == key; });
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

void SequenceTable::PlaceLocked(const Key& key, QueuedRequest item, int instance,
                                std::vector<Ready>& ready) {
  if (item.request.sequence_end) {
    live_.erase(key);
    --used_slots_[static_cast<size_t>(instance)];
  } else {
    live_[key] = {.instance = instance, .last_ns = clock_.NowNs()};
  }
  ready.push_back({std::move(item), instance});
}

// In order of arrival, each sequence with all of its requests that wait.
void SequenceTable::AdmitWaitingLocked(std::vector<Ready>& ready) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const Key key = it->first;
    const auto live = live_.find(key);
    const int instance = live != live_.end() ? live->second.instance : FreeInstanceLocked();
    if (instance < 0) {
      ++it;
      continue;
    }
    if (live == live_.end()) ++used_slots_[static_cast<size_t>(instance)];
    QueuedRequest item = std::move(it->second);
    it = waiting_.erase(it);
    PlaceLocked(key, std::move(item), instance, ready);
  }
}

}  // namespace inflight::serving
