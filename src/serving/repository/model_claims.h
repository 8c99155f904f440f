// SPDX-License-Identifier: Apache-2.0
// Which models loads and unloads have to themselves, so that those of others go on beside them.
//
// A call claims its model and all that are connected with it, by ensembles and BLS, all at once:
// nobody holds some and waits for others.
//
// Threads: any; everything under one mutex, the owner's.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <string>

namespace inflight::serving {

class ModelClaims {
 public:
  explicit ModelClaims(int max_loads) : max_loads_(max_loads) {}

  enum class Kind { kLoad, kUnload };  // of loads there are at most max_loads at a time

  // Held as long as it lives; made and destroyed under `lock`, which waiting gives up meanwhile.
  class Scope {
   public:
    // `names` is asked again after each wait: what is connected may have changed.
    Scope(ModelClaims& claims, std::unique_lock<std::mutex>& lock, Kind kind,
          const std::function<std::set<std::string>()>& names);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ModelClaims& claims_;
    const Kind kind_;
    std::set<std::string> names_;
  };

 private:
  bool IsFree(const std::set<std::string>& names) const;

  const int max_loads_;
  int num_loads_ = 0;
  std::set<std::string> claimed_;
  std::condition_variable changed_;
};

// Gives a mutex that is held up for as long as it lives.
class Unlocked {
 public:
  explicit Unlocked(std::mutex& mutex) : mutex_(mutex) { mutex_.unlock(); }
  ~Unlocked() { mutex_.lock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  std::mutex& mutex_;
};

}  // namespace inflight::serving
