// SPDX-License-Identifier: Apache-2.0
// HTTP/2 on one connection, by nghttp2: bytes in, calls of a service, bytes out. No socket in it.
//
// Threads: one at a time, that of SessionThread.
#pragma once

#include <nghttp2/nghttp2.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/memory_account.h"
#include "protocol/grpc_listener/keepalive.h"
#include "protocol/grpc_listener/rpc.h"
#include "protocol/grpc_listener/stream.h"

namespace inflight::grpc_listener {

inline constexpr size_t kMaxSentFrameBytes = 17 * 1024;  // 16 KiB of data, or a head, about

struct SessionOptions {
  size_t max_message_bytes = 64 << 20;
  std::optional<int> max_concurrent_streams;
  KeepaliveOptions keepalive;
  bool request_log = false;  // a line for each call that ends
};

// What the sessions of a listener share.
struct SessionContext {
  RpcHandler& handler;
  const SessionOptions options;
  // Runs a task on another thread: services take messages there that are large or compressed.
  const std::function<void(std::function<void()>)> run_elsewhere;
};

class Session {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Session(const SessionContext& context, const std::shared_ptr<SessionThread>& thread,
          std::string client, std::shared_ptr<AccountShare> share, Time now);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Takes what came. False: the connection is to be closed.
  bool Receive(std::string_view bytes, Time now);
  // Tells the services what has happened.
  void TellReactors();
  // Adds what is to be sent, up to about `max_bytes`: less than kMaxSentFrameBytes more. False: the
  // connection is to be closed.
  bool Send(std::string& out, size_t max_bytes);
  // What Send gave has left.
  void OnFlushed();

  // No new calls; those that run go on.
  void GoAway();
  // The connection has closed: all calls are over.
  void Close();
  // Nothing more is to be received or sent.
  bool IsOver() const;

  bool HasCalls() const { return !streams_.empty(); }
  // For the client: of a message part came, or part of one is to be sent.
  bool IsWaiting() const { return num_waiting_ > 0; }

  Time next_deadline() const { return next_deadline_; }  // of calls
  // The next time at which OnDue has something to do.
  Time due() const { return std::min(keepalive_.due(), next_deadline_); }
  // False: the connection is to be closed.
  bool OnDue(Time now);

 private:
  friend class Stream;

  struct Callbacks;

  static void TellReactor(Stream& stream);
  void OnHead(Stream& stream);
  void OnStreamClosed(int32_t id, uint32_t error);
  void OnPing();
  void AddDeadline(Time deadline) { next_deadline_ = std::min(next_deadline_, deadline); }
  void ExpireCalls(Time now);
  void EndLostCalls();

  const SessionContext& context_;
  const std::weak_ptr<SessionThread> thread_;  // owns this
  const std::string client_;
  const std::shared_ptr<AccountShare> share_;
  nghttp2_session* session_ = nullptr;
  std::unordered_map<int32_t, std::shared_ptr<Stream>> streams_;  // open for HTTP/2
  int num_waiting_ = 0;                                           // of them
  MemoryCharge head_charge_;                                      // of their heads
  size_t num_head_bytes_ = 0;
  std::deque<std::shared_ptr<Stream>> told_next_;       // TellReactor is to be called
  std::vector<std::shared_ptr<Stream>> ended_;          // with what Send gives next
  std::vector<std::shared_ptr<Stream>> being_flushed_;  // with what Send gave last
  Time now_;
  Time next_deadline_ = Time::max();
  Keepalive keepalive_;
  bool is_failed_ = false;

  // Streams that end before they are answered: so many at once, and so many a second.
  double resets_left_;
  Time resets_counted_at_;
};

}  // namespace inflight::grpc_listener
