// SPDX-License-Identifier: Apache-2.0
// The memory that clients make the process hold: received, unpacked, parsed, tokenized, padded,
// waiting to be sent. All of it is charged to one account before it is taken, and returned by
// scope.
//
//   account      of the process, with a soft mark and a hard one
//   share        of a client (its address), and below it one of each of its connections
//   charge       so many bytes of a share
//
// A connection's share has a bound. Where a client has more than its share, or all have more than
// the soft mark, the largest connection that waits for its client and is larger than the one that
// asks is told to end, and the one that asks may grow; where there is none, only a small one may
// (kSmallShareBytes), and a larger one is refused. Nobody grows past the hard mark. This follows
// the overload manager of Envoy, which resets the streams that hold most.
//
// Threads: all methods are thread-safe; a charge is used by one thread at a time. A charge costs
// three additions to atomics, a lock only past the soft mark.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "inflight/status.h"

namespace inflight {

inline constexpr size_t kSmallShareBytes = 64 * 1024;

struct MemoryLimits {
  size_t hard_bytes = size_t{8} << 30;
  size_t soft_bytes = hard_bytes / 5 * 4;
  size_t client_bytes = hard_bytes;      // of one client
  size_t connection_bytes = hard_bytes;  // of one connection

  // A request memory of so many bytes, whose soft mark is at four fifths; a client may have three
  // quarters of it and a connection half.
  static MemoryLimits Of(size_t hard_bytes);
};

class MemoryAccount;

// Of a client, or of one connection of it.
class AccountShare {
 public:
  ~AccountShare();
  AccountShare(const AccountShare&) = delete;
  AccountShare& operator=(const AccountShare&) = delete;

  size_t used_bytes() const { return used_.load(std::memory_order_relaxed); }
  // Tells clients apart: the same for all connections of one, while one of them exists.
  const void* client() const { return client_ == nullptr ? this : client_.get(); }

  // Waits for its client: to send the rest of what it began, or to read what was written. The
  // largest of those that wait ends first.
  void SetWaiting(bool waits) { waits_.store(waits, std::memory_order_relaxed); }

 private:
  friend class MemoryAccount;
  friend class MemoryCharge;

  AccountShare(std::shared_ptr<MemoryAccount> account, std::shared_ptr<AccountShare> client,
               size_t limit, std::function<void()> end);

  // kResourceExhausted says which bound is in the way; nothing is charged then.
  Status Add(size_t bytes);
  void Remove(size_t bytes);

  const std::shared_ptr<MemoryAccount> account_;
  const std::shared_ptr<AccountShare> client_;  // null: this is one
  const size_t limit_;
  const std::function<void()> end_;
  std::string name_;  // of a client
  std::atomic<size_t> used_{0};
  std::atomic<bool> waits_{false};
  std::atomic<bool> is_listed_{false};  // among the large ones
  // Bytes that it held when it was told to end; of a client, those of its connections. Under the
  // account's mutex.
  size_t ending_ = 0;
};

class MemoryAccount : public std::enable_shared_from_this<MemoryAccount> {
 public:
  static std::shared_ptr<MemoryAccount> Make(const MemoryLimits& limits);

  // Of a new connection of the client with this name. `end` is called once from any thread where
  // the connection is to end, and must neither block nor charge.
  std::shared_ptr<AccountShare> NewConnection(const std::string& client, std::function<void()> end);

  // For gauges.
  const MemoryLimits& limits() const { return limits_; }
  size_t used_bytes() const { return used_.load(std::memory_order_relaxed); }
  uint64_t num_refused() const { return num_refused_.load(std::memory_order_relaxed); }
  uint64_t num_ended() const { return num_ended_.load(std::memory_order_relaxed); }

 private:
  friend class AccountShare;

  explicit MemoryAccount(const MemoryLimits& limits) : limits_(limits) {}

  std::shared_ptr<AccountShare> FindClient(const std::string& client);  // null without
  std::shared_ptr<AccountShare> AddClient(const std::string& client);
  bool MakeRoom(AccountShare& asks, AccountShare* client, size_t used, size_t mark);
  void List(AccountShare& share);
  void Forget(AccountShare& share);
  Status Refuse(const std::string& what, size_t limit);

  const MemoryLimits limits_;
  std::atomic<size_t> used_{0};
  std::atomic<uint64_t> num_refused_{0};
  std::atomic<uint64_t> num_ended_{0};

  std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<AccountShare>> clients_;
  std::unordered_set<AccountShare*> large_;  // connections that held more than a small share
  size_t ending_ = 0;                        // bytes of those that were told to end and still exist
};

// Bytes of a share, given back when it ends. Without a share it counts for nobody: what the process
// does for itself.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  explicit MemoryCharge(std::shared_ptr<AccountShare> share) : share_(std::move(share)) {}
  MemoryCharge(MemoryCharge&& other) noexcept;
  MemoryCharge& operator=(MemoryCharge&& other) noexcept;
  ~MemoryCharge() { Release(); }

  // From now on it is for so many bytes. On kResourceExhausted it stays as it was; less is always
  // granted.
  Status Resize(size_t bytes);
  // At least so many, in steps of kSmallShareBytes / 4: for what grows a little at a time.
  Status Reserve(size_t bytes);
  void Release();
  size_t bytes() const { return bytes_; }
  const std::shared_ptr<AccountShare>& share() const { return share_; }

 private:
  std::shared_ptr<AccountShare> share_;
  size_t bytes_ = 0;
};

// `value` and what it is charged with, for whoever keeps a part of it.
template <typename T>
std::shared_ptr<T> Charged(T value, MemoryCharge charge) {
  struct Both {
    T value;
    MemoryCharge charge;
  };
  auto both = std::make_shared<Both>(Both{std::move(value), std::move(charge)});
  return {both, &both->value};
}

}  // namespace inflight
