// SPDX-License-Identifier: Apache-2.0
// The predictions that run: so many at a time, found by their ids. An id is that of one client
// (docs/reference/access.md, "Tenants"): nobody joins or cancels another's.
//
// Threads: all methods are thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/client.h"
#include "protocol/cog/prediction.h"

namespace inflight::cog {

class Predictions : public std::enable_shared_from_this<Predictions> {
 public:
  explicit Predictions(int most) : most_(most) {}

  bool IsFull() const;
  // Null where none of this id runs.
  std::shared_ptr<Prediction> Find(const Identity& client, const std::string& id) const;
  // A place for one that starts, given back by its `on_end`, which is set. Null where all are taken
  // or one of this id runs.
  std::shared_ptr<Prediction> Add(const Identity& client, PredictionStart start);

 private:
  using Key = std::pair<Identity, std::string>;
  void Remove(const std::optional<Key>& key);

  const int most_;
  mutable std::mutex mutex_;
  int num_running_ = 0;
  std::map<Key, std::shared_ptr<Prediction>> by_id_;  // those that have one
};

}  // namespace inflight::cog
