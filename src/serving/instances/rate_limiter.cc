// SPDX-License-Identifier: Apache-2.0
#include "serving/instances/rate_limiter.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "base/status_macros.h"

namespace inflight::serving {
namespace {

RateLimiter::Counts CountsOf(const ::inference::ModelRateLimiter& wanted) {
  RateLimiter::Counts counts;
  for (const auto& resource : wanted.resources()) {
    uint32_t& count = counts[resource.name()];
    count = std::max(count, resource.count());
  }
  std::erase_if(counts, [](const auto& each) { return each.second == 0; });
  return counts;
}

Result<std::pair<std::string, uint32_t>> ParseLimit(const std::string& setting) {
  const auto wrong = [&](const std::string& why) {
    return InvalidArgument("--rate-limit-resource: got '" + setting + "', " + why);
  };
  const size_t colon = setting.find(':');
  if (colon == 0 || colon == std::string::npos) return wrong("needs <name>:<count>[:<device>]");
  const size_t device = std::min(setting.find(':', colon + 1), setting.size());
  if (device != setting.size() && setting.substr(device) != ":0") {
    return wrong("instances run on the CPU, which is device 0: leave the device out");
  }
  uint32_t count = 0;
  const char* last = setting.data() + device;
  const auto [end, error] = std::from_chars(setting.data() + colon + 1, last, count);
  if (error != std::errc() || end != last || count == 0) {
    return wrong("needs a count of 1 to 4294967295 behind the colon");
  }
  return std::pair{setting.substr(0, colon), count};
}

}  // namespace

Result<std::shared_ptr<RateLimiter>> RateLimiter::Make(std::span<const std::string> settings) {
  Counts limits;
  for (const std::string& setting : settings) {
    ASSIGN_OR_RETURN(const auto limit, ParseLimit(setting));
    if (!limits.insert(limit).second) {
      return InvalidArgument("--rate-limit-resource: '" + limit.first + "' is given twice");
    }
  }
  return std::make_shared<RateLimiter>(std::move(limits));
}

Status RateLimiter::Check(const ::inference::ModelConfig& config) const {
  for (const auto& group : config.instance_group()) {
    for (const auto& [resource, count] : CountsOf(group.rate_limiter())) {
      const auto limit = limits_.find(resource);
      if (limit == limits_.end() || count <= limit->second) continue;
      return InvalidArgument(fmt::format(
          "instance group '{}' of model '{}' asks for {} of resource '{}', there are {}: raise "
          "--rate-limit-resource {}:{}",
          group.name(), config.name(), count, resource, limit->second, resource, count));
    }
  }
  return Status::Ok();
}

std::unique_ptr<RateLimiter::Instance> RateLimiter::Register(
    const ::inference::ModelRateLimiter& wanted) {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.insert(
      entries_.end(),
      {.wanted = CountsOf(wanted), .priority = std::max<uint64_t>(wanted.priority(), 1)});
  GrantLocked();  // there may be more of a resource now
  return std::make_unique<Instance>(shared_from_this(), entry);
}

int RateLimiter::num_waiting() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::count_if(entries_.begin(), entries_.end(),
                                        [](const Entry& entry) { return entry.is_waiting; }));
}

uint64_t RateLimiter::AvailableLocked(const std::string& resource) const {
  uint64_t total = 0;
  if (const auto limit = limits_.find(resource); limit != limits_.end()) {
    total = limit->second;
  } else {
    for (const Entry& entry : entries_) {
      const auto wanted = entry.wanted.find(resource);
      if (wanted != entry.wanted.end()) total = std::max<uint64_t>(total, wanted->second);
    }
  }
  const auto held = held_.find(resource);
  const uint64_t taken = held == held_.end() ? 0 : held->second;
  return total > taken ? total - taken : 0;  // the instance that asked for the most may have gone
}

void RateLimiter::GrantLocked() {
  std::vector<Entry*> waiting;
  for (Entry& entry : entries_) {
    if (entry.is_waiting) waiting.push_back(&entry);
  }
  std::stable_sort(waiting.begin(), waiting.end(), [](const Entry* a, const Entry* b) {
    return a->num_executions * a->priority < b->num_executions * b->priority;
  });
  std::set<std::string> kept;  // for those in front
  for (Entry* entry : waiting) {
    const bool may_run = std::all_of(entry->wanted.begin(), entry->wanted.end(), [&](auto& each) {
      return !kept.contains(each.first) && AvailableLocked(each.first) >= each.second;
    });
    if (may_run) {
      for (const auto& [resource, count] : entry->wanted) held_[resource] += count;
      entry->is_waiting = false;
      entry->holds = true;
    } else {
      for (const auto& [resource, count] : entry->wanted) kept.insert(resource);
    }
  }
  changed_.notify_all();
}

RateLimiter::Instance::~Instance() {
  const std::lock_guard lock(limiter_->mutex_);
  if (entry_->holds) {
    for (const auto& [resource, count] : entry_->wanted) limiter_->held_[resource] -= count;
  }
  limiter_->entries_.erase(entry_);
  limiter_->GrantLocked();
}

bool RateLimiter::Instance::Acquire() {
  std::unique_lock lock(limiter_->mutex_);
  if (entry_->is_closed) return false;
  entry_->is_waiting = true;
  limiter_->GrantLocked();
  limiter_->changed_.wait(lock, [this] { return entry_->holds || entry_->is_closed; });
  entry_->is_waiting = false;
  return entry_->holds;
}

void RateLimiter::Instance::Release(bool has_executed) {
  const std::lock_guard lock(limiter_->mutex_);
  if (has_executed) ++entry_->num_executions;
  if (!entry_->holds) return;
  entry_->holds = false;
  for (const auto& [resource, count] : entry_->wanted) limiter_->held_[resource] -= count;
  limiter_->GrantLocked();
}

void RateLimiter::Instance::Close() {
  const std::lock_guard lock(limiter_->mutex_);
  entry_->is_closed = true;
  entry_->is_waiting = false;
  limiter_->GrantLocked();  // others may have stood behind it
}

}  // namespace inflight::serving
