// SPDX-License-Identifier: Apache-2.0
#include "serving/instances/batch_rules.h"

#include <algorithm>
#include <cmath>

namespace inflight::serving {
namespace {

constexpr uint64_t kMaxDelayUs = uint64_t{1} << 50;  // 35 years: sums of times stay in range

int64_t Nanoseconds(uint64_t us) { return static_cast<int64_t>(std::min(us, kMaxDelayUs)) * 1000; }

template <typename Sizes>
std::set<int64_t> Preferred(const Sizes& sizes, int64_t max_size) {
  std::set<int64_t> preferred(sizes.begin(), sizes.end());
  if (preferred.empty()) preferred.insert(max_size);
  return preferred;
}

}  // namespace

BatchRules BatchRulesOf(const ::inference::ModelConfig& config) {
  BatchRules rules;
  rules.max_batch_size = config.max_batch_size();
  rules.max_size = std::max(config.max_batch_size(), 1);
  for (const auto& input : config.input()) {
    if (input.allow_ragged_batch()) rules.ragged.insert(input.name());
  }
  if (config.has_dynamic_batching()) {
    const auto& batching = config.dynamic_batching();
    rules.is_batched = true;
    rules.preferred = Preferred(batching.preferred_batch_size(), rules.max_size);
    rules.max_delay_ns = Nanoseconds(batching.max_queue_delay_microseconds());
  } else if (config.sequence_batching().has_oldest()) {
    const auto& oldest = config.sequence_batching().oldest();
    rules.is_batched = rules.has_sequences = true;
    rules.preferred = Preferred(oldest.preferred_batch_size(), rules.max_size);
    rules.max_delay_ns = Nanoseconds(oldest.max_queue_delay_microseconds());
  } else if (config.has_sequence_batching()) {
    const auto& direct = config.sequence_batching().direct();
    rules.is_batched = rules.has_sequences = true;
    rules.min_size = static_cast<int64_t>(
        std::ceil(direct.minimum_slot_utilization() * static_cast<float>(rules.max_size)));
    rules.max_delay_ns = Nanoseconds(direct.max_queue_delay_microseconds());
  }
  if (!rules.preferred.empty()) rules.max_preferred = *rules.preferred.rbegin();
  return rules;
}

BatchBuilder::Answer BatchBuilder::Offer(const Request& request, int64_t queued_ns) {
  if (!can_grow_) return Answer::kFull;
  if (rules_.has_sequences && sequences_.contains(request.sequence_key())) return Answer::kSkipped;
  const int64_t size = request.batch_size(rules_.max_batch_size);
  const bool is_beyond_preferred = rules_.max_preferred > 0 && size_ + size > rules_.max_preferred;
  if (first_ != nullptr && is_beyond_preferred && num_preferred_ == 0) num_preferred_ = num_taken_;
  if (first_ != nullptr && (size_ + size > rules_.max_size || !Joins(request))) {
    can_grow_ = false;
    return Answer::kFull;
  }
  if (first_ == nullptr) first_ = &request;
  if (rules_.has_sequences) sequences_.insert(request.sequence_key());
  ++num_taken_;
  has_warm_up_ |= request.is_warm_up;
  size_ += size;
  oldest_ns_ = std::min(oldest_ns_, queued_ns);
  if (rules_.preferred.contains(size_)) num_preferred_ = num_taken_;
  can_grow_ = rules_.is_batched && size_ < rules_.max_size;
  return Answer::kTaken;
}

bool BatchBuilder::Joins(const Request& request) const {
  if (request.inputs.size() != first_->inputs.size()) return false;
  for (const Tensor& input : request.inputs) {
    const Tensor* other = first_->FindInput(input.name);
    if (other == nullptr || other->shape.size() != input.shape.size()) return false;
    if (rules_.ragged.contains(input.name)) continue;
    const bool has_batch = rules_.max_batch_size > 0 && !input.shape.empty();
    if (!std::equal(input.shape.begin() + (has_batch ? 1 : 0), input.shape.end(),
                    other->shape.begin() + (has_batch ? 1 : 0))) {
      return false;
    }
  }
  return true;
}

std::optional<size_t> BatchBuilder::NumReady(int64_t now_ns) const {
  if (num_taken_ == 0) return 0;  // there is nothing to wait with
  const bool has_waited = now_ns >= wait_until_ns();
  if (num_preferred_ > 0 && !(has_waited && rules_.max_delay_ns > 0)) return num_preferred_;
  const bool may_wait =
      rules_.max_preferred > 0 ? size_ < rules_.max_preferred : size_ < rules_.min_size;
  if (!can_grow_ || !may_wait || has_warm_up_ || has_waited) return num_taken_;
  return std::nullopt;
}

}  // namespace inflight::serving
