// SPDX-License-Identifier: Apache-2.0
// Resources that instances of models share (docs/reference/repositories.md, "Rate limiter"): an
// instance executes only while it holds what its group's rate_limiter asks for.
//
// There is as much of a resource as --rate-limit-resource says, else the most that one instance
// asks for. Of those that wait, the one with the least executions × priority comes first; those
// behind it may pass if they want none of the resources that it waits for.
//
// All instances are on one device, the CPU, whose number is 0, so that global resources and those
// of a device are the same.
//
// Threads: any; Acquire blocks.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "inflight/status.h"
#include "model_config.pb.h"

namespace inflight::serving {

class RateLimiter : public std::enable_shared_from_this<RateLimiter> {
 public:
  using Counts = std::map<std::string, uint32_t>;  // by resource

  // One instance, as long as it exists. A single thread uses it.
  class Instance;

  explicit RateLimiter(Counts limits) : limits_(std::move(limits)) {}
  // `settings`: <name>:<count>[:0] each, as --rate-limit-resource has them.
  static Result<std::shared_ptr<RateLimiter>> Make(std::span<const std::string> settings);

  // kInvalidArgument: an instance of this model asks for more than there will ever be.
  Status Check(const ::inference::ModelConfig& config) const;
  std::unique_ptr<Instance> Register(const ::inference::ModelRateLimiter& wanted);
  int num_waiting() const;

 private:
  struct Entry {
    Counts wanted;
    uint64_t priority = 1;
    uint64_t num_executions = 0;
    bool is_waiting = false;
    bool holds = false;
    bool is_closed = false;
  };

  uint64_t AvailableLocked(const std::string& resource) const;
  void GrantLocked();

  const Counts limits_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Entry> entries_;
  Counts held_;
};

class RateLimiter::Instance {
 public:
  Instance(std::shared_ptr<RateLimiter> limiter, std::list<Entry>::iterator entry)
      : limiter_(std::move(limiter)), entry_(entry) {}
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  // Waits for the resources. False: closed.
  bool Acquire();
  void Release(bool has_executed);
  // From any thread: Acquire gives up, now and later.
  void Close();

 private:
  const std::shared_ptr<RateLimiter> limiter_;
  const std::list<Entry>::iterator entry_;
};

}  // namespace inflight::serving
