// SPDX-License-Identifier: Apache-2.0
// One client's connection: reads requests, hands them to the handler, writes answers.
//
// Phases of a request, all on the connection's I/O thread:
//   TLS      where the port has it, once: the handshake (header_timeout)
//   idle     buffer empty, waiting for a first byte (idle_timeout)
//   head     reading the head (header_timeout)
//   body     reading the body (body_timeout)
//   running  the handler has it; a read stays pending for the next request or the client's end
//   writing  the answer goes out; then idle, head of a pipelined request, or closed
//
// Threads: Exchange (the responder) comes from any thread; what it shares with the I/O thread is
// under its mutex. Everything else belongs to the I/O thread.
#pragma once

#include <atomic>
#include <boost/asio/ip/address.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>  // before Boost 1.74 under C++20
#include <vector>

#include "base/memory_account.h"
#include "base/request_log.h"
#include "protocol/http_listener/growing_body.h"
#include "protocol/http_listener/http_listener.h"
#include "protocol/tcp_listener/connection.h"

namespace inflight::http_listener {

class Exchange;

// What the connections of a listener share.
struct ListenerContext {
  HttpHandler& handler;
  const ListenerOptions options;
  const tcp_listener::ConnectionContext connection;
};

using tcp_listener::Deadline;
using tcp_listener::IoThread;

// 503 with a reason that needs no escapes in JSON.
HttpResponse Overloaded(const std::string& reason);

class Connection final : public tcp_listener::Connection {
 public:
  Connection(std::shared_ptr<const ListenerContext> context, std::shared_ptr<IoThread> thread,
             tcp_listener::Socket socket, boost::asio::ip::address client);

  void Start() override;
  void Refuse(const std::string& reason) override;
  void Drain() override;
  bool IsDue(Deadline now) const override {
    return read_deadline_ <= now || write_deadline_ <= now || is_lost_;
  }
  void OnDue(Deadline) override { Close(); }
  bool IsWaiting() const override { return !is_closed() && !exchange_ && !writing_ && !lingering_; }
  bool IsIdle() const override { return IsWaiting() && !reading_head_or_body_; }
  bool IsLingering() const override { return lingering_; }
  int64_t last_request_ns() const override { return head_started_ns_; }

 private:
  friend class Exchange;
  using Parser = boost::beast::http::request_parser<GrowingBody>;

  std::shared_ptr<Connection> self() {
    return std::static_pointer_cast<Connection>(shared_from_this());
  }
  void OnOpen() override;
  void OnClosed() override;
  // Where it is interrupted, such as by bad_alloc, nobody would go on: the connection closes.
  template <typename Do>
  void Guarded(Do act) {
    try {
      act();
    } catch (const std::exception& e) {
      Lose(e);
    }
  }
  void Lose(const std::exception& error);
  std::optional<LoggedRequest> Logged() const;
  void Reject(HttpResponse response);  // answer without reading further, close
  void ReadRequest();
  void ReadHead();
  void ParseHead();
  void OnHeadBytes(ErrorCode ec, size_t bytes);
  void OnHead(ErrorCode ec);
  void ReadBody();
  void OnBody(ErrorCode ec);
  void Dispatch();
  void ReadAhead();
  void OnReadAhead(ErrorCode ec, size_t bytes);
  void FailRequest(ErrorCode ec);
  Status ChargeBody();
  size_t NextReadBytes() const;
  Status ChargeRead();
  Status ChargeBuffer(size_t bytes);
  void ShrinkBuffer();

  void SendWhole(HttpResponse response, MemoryCharge charge = {});
  void FlushStream();
  size_t WriteAtOnce(std::string_view bytes);
  void WriteSome();
  void OnWritten(ErrorCode ec, size_t bytes);
  void FinishExchange();
  void Linger();
  void LingerOverTls();
  void DiscardRest();

  static void ExpireAfter(Deadline& deadline, std::chrono::milliseconds duration);  // 0 = never
  std::string StreamHead(int status, const Headers& headers) const;

  const std::shared_ptr<const ListenerContext> context_;
  Deadline read_deadline_ = Deadline::max();
  Deadline write_deadline_ = Deadline::max();
  // What was read ahead, and a head or a chunk's head whole: more than that is a malformed request.
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::function<void(uint64_t, boost::beast::string_view, ErrorCode&)> on_chunk_;
  int num_chunks_ = 0;
  int64_t head_started_ns_ = 0;
  size_t num_head_bytes_ = 0;
  std::string raw_head_;       // where raw values are kept, between its parsing and OnHead
  size_t num_body_bytes_ = 0;  // that read_deadline_ knows of

  MemoryCharge buffer_charge_;    // of buffer_, while it is larger than that of an idle connection
  MemoryCharge body_charge_;      // of the body that is being read
  MemoryCharge response_charge_;  // of response_

  HttpRequest request_;   // head while its body is read
  bool is_head_ = false;  // HEAD: answers carry no body
  bool is_http10_ = false;
  bool keep_alive_ = false;             // after the running exchange
  std::shared_ptr<Exchange> exchange_;  // the running one
  bool reading_ahead_ = false;
  bool reading_head_or_body_ = false;
  bool lingering_ = false;  // answered for the last time; waiting for the client to stop sending
  std::atomic<bool> is_lost_{false};  // its answer could not be posted, for want of memory

  // What is being written: `head_`, then the response's body and segments, or one batch of chunks.
  std::string head_;
  HttpResponse response_;
  std::string chunks_;
  std::vector<boost::asio::const_buffer> write_buffers_;
  bool writing_ = false;
  bool last_write_ = false;  // the exchange is complete when write_buffers_ is empty
};

}  // namespace inflight::http_listener
