// SPDX-License-Identifier: Apache-2.0
// A client that the server tells from others by its key (docs/reference/access.md, "Tenants"): what
// came with the key points to it. Nobody can choose an identity.
//
// Errors:  kResourceExhausted with the reason kOverLimit names the client, its bound, and when to
//          try again, which it also has as its retry_after_s where that is a time.
// Threads: all methods are thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/memory_account.h"
#include "base/request_bucket.h"
#include "inflight/status.h"

namespace inflight {

using Identity = std::array<uint8_t, 32>;  // zeros: of all who are not told apart

// What a client may have; 0: as much as it likes.
struct ClientLimits {
  double requests_per_second = 0;
  double burst = 0;                // requests at once; at least 1 where there is a rate
  int64_t max_concurrent = 0;      // inferences in progress
  int64_t default_timeout_ms = 0;  // of an inference that names none
  int64_t max_timeout_ms = 0;      // of any
  int64_t tokens_per_period = 0;   // of prompts and answers
  int64_t period_s = 0;            // > 0 where tokens are bounded
  double share = 1;                // of the tokens while others wait, [0.01, 100]; no bound
};

// What a client has taken of its limits: its own, not that of one reading of its limits.
class ClientUse {
 public:
  ClientUse(const ClientLimits& limits, int64_t now_ns);

  // From now on the limits are these; what was taken stays taken.
  void Change(const ClientLimits& limits, int64_t now_ns);

  // Whether the client still may infer: what it began, such as a stream, outlives its key.
  void SetMayInfer(bool may_infer);
  Status CheckMayInfer(const std::string& name);  // kUnauthenticated

  Status TakeRequest(const std::string& name, int64_t now_ns);

  Status Enter(const std::string& name);  // an inference is in progress, until Leave
  void Leave();

  // The most that an inference may take. What it did not take is given back after it.
  Result<int64_t> TakeTokens(const std::string& name, int64_t num_tokens, int64_t now_ns);
  void ReturnTokens(int64_t period, int64_t num_tokens);  // `period`: what TakeTokens gave

 private:
  void RollLocked(int64_t now_ns);

  std::mutex mutex_;
  ClientLimits limits_;
  RequestBucket requests_;
  bool may_infer_ = true;
  int64_t num_in_progress_ = 0;
  int64_t period_ = 0;  // counts them
  int64_t period_started_ns_ = 0;
  int64_t tokens_taken_ = 0;  // in this period
};

struct Client {
  Identity identity = {};
  std::string name;  // by which errors call it; no secret
  ClientLimits limits;
  std::shared_ptr<ClientUse> use;  // null: nothing is bounded
};

inline Identity IdentityOf(const std::shared_ptr<const Client>& client) {
  return client != nullptr ? client->identity : Identity{};
}

// Whose long work goes in turns with that of others (WorkerPool::Post): the client's, by its key or
// by the address that `memory` counts for. Both may be null.
inline const void* OwnerOf(const std::shared_ptr<const Client>& client,
                           const std::shared_ptr<AccountShare>& memory) {
  if (client != nullptr) return client.get();
  return memory == nullptr ? nullptr : memory->client();
}

// Whether a client, which may be null, may send another request on a stream that it began before.
// The request counts for its rate.
Status TakeRequestOfStream(const std::shared_ptr<const Client>& client, int64_t now_ns);

// One of the inferences that a client has in progress, until it is released or destroyed.
class ClientPlace {
 public:
  ClientPlace() = default;  // of nobody
  // Of a client that may be null.
  static Result<ClientPlace> Take(const std::shared_ptr<const Client>& client);
  ClientPlace(ClientPlace&& other) noexcept = default;
  ClientPlace& operator=(ClientPlace&& other) noexcept;
  ~ClientPlace() { Release(); }
  void Release();

 private:
  std::shared_ptr<ClientUse> use_;
};

// Tokens that a client may take; what of them it did not is given back at the end.
class ClientTokens {
 public:
  ClientTokens() = default;  // of nobody
  // Of a client that may be null.
  static Result<ClientTokens> Take(const std::shared_ptr<const Client>& client, int64_t num_tokens,
                                   int64_t now_ns);
  ClientTokens(ClientTokens&& other) noexcept = default;
  ClientTokens& operator=(ClientTokens&& other) noexcept;
  ~ClientTokens() { Settle(0); }
  // At most as many as were taken.
  void Settle(int64_t num_taken);

 private:
  std::shared_ptr<ClientUse> use_;
  int64_t num_tokens_ = 0;
  int64_t period_ = 0;
};

}  // namespace inflight
