// SPDX-License-Identifier: Apache-2.0
// One request's answer on its way from any thread to the connection's I/O thread.
//
// States: open -> answered (Send), open -> streaming (StartStream) -> answered (Finish); from any
// of them -> gone when the connection closes. The first of two racing calls wins, the other does
// nothing.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>  // before Boost 1.74 under C++20

#include "base/request_log.h"
#include "protocol/http_listener/connection.h"

namespace inflight::http_listener {

class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  // `logged`: the request, where it has a line of the request log.
  Exchange(std::shared_ptr<Connection> connection, std::optional<LoggedRequest> logged)
      : connection_(std::move(connection)),
        pending_charge_(connection_->share()),
        logged_(std::move(logged)) {}

  // Any thread.
  void Send(HttpResponse response);
  void StartStream(int status, const Headers& headers);
  void WriteChunk(std::string_view bytes);
  void Finish();
  void OnDisconnect(std::function<void()> callback);
  void OnSent(std::function<void()> callback);
  void Abandon();  // the handler dropped its responder

  // I/O thread.
  bool TakePending(std::string& bytes);  // true when nothing will follow
  void MarkDone();
  void MarkGone();

 private:
  // kBroken: a stream that ends without its last chunk; the connection is about to close.
  enum class State { kOpen, kStreaming, kAnswered, kBroken, kGone };

  // With mutex_ held.
  void PostResponse(HttpResponse response);
  void BreakStream();
  void ScheduleFlush();

  const std::shared_ptr<Connection> connection_;
  std::mutex mutex_;
  State state_ = State::kOpen;
  std::string pending_;
  size_t first_chunk_end_ = 0;   // in pending_; 0: it has none
  MemoryCharge pending_charge_;  // for twice as much: what was taken is being written meanwhile
  bool flush_scheduled_ = false;
  int status_ = 0;  // of the answer, once it has begun
  const std::optional<LoggedRequest> logged_;
  // What was sent, from kAnswered on the I/O thread's.
  HttpResponse response_;
  MemoryCharge response_charge_;
  std::function<void()> on_disconnect_;
  std::function<void()> on_sent_;
};

// What the handler holds.
class Responder : public HttpResponder {
 public:
  explicit Responder(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  ~Responder() override { exchange_->Abandon(); }

  void Send(HttpResponse response) override { exchange_->Send(std::move(response)); }
  void StartStream(int status, const Headers& headers) override {
    exchange_->StartStream(status, headers);
  }
  void WriteChunk(std::string_view bytes) override { exchange_->WriteChunk(bytes); }
  void Finish() override { exchange_->Finish(); }
  void OnDisconnect(std::function<void()> callback) override {
    exchange_->OnDisconnect(std::move(callback));
  }
  void OnSent(std::function<void()> callback) override { exchange_->OnSent(std::move(callback)); }

 private:
  std::shared_ptr<Exchange> exchange_;
};

}  // namespace inflight::http_listener
