// SPDX-License-Identifier: Apache-2.0
// One client's connection: a socket, with TLS or without, and the HTTP/2 session over it.
//
// Threads: tasks come from any thread through a mailbox, whose mutex guards it alone; what gathers
// while the I/O thread is busy is done together and leaves together. Everything else belongs to the
// I/O thread.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "protocol/grpc_listener/session.h"
#include "protocol/tcp_listener/connection.h"
#include "protocol/tls/server_tls.h"

namespace inflight::grpc_listener {

// What the connections of a listener share.
struct ConnectionContext {
  SessionContext session;
  std::shared_ptr<MemoryAccount> memory;
  std::shared_ptr<tls::ServerTls> tls;  // null: plain
};

class Connection final : public tcp_listener::Connection, public SessionThread {
 public:
  using Deadline = tcp_listener::Deadline;

  Connection(std::shared_ptr<const ConnectionContext> context,
             std::shared_ptr<tcp_listener::IoThread> thread, boost::asio::ip::tcp::socket socket,
             boost::asio::ip::address client);

  void Start() override;
  void Refuse(const std::string& reason) override;
  void Drain() override;
  void Close() override;
  bool IsDue(Deadline now) const override;
  void OnDue(Deadline now) override;
  bool IsWaiting() const override { return !closed_; }
  bool IsIdle() const override { return session_ == nullptr || !session_->HasCalls(); }
  int64_t last_request_ns() const override { return last_received_ns_; }

  bool IsThis() const override;
  bool Post(std::function<void()> task) override;

 private:
  using ErrorCode = boost::system::error_code;

  std::shared_ptr<Connection> self() {
    return std::static_pointer_cast<Connection>(shared_from_this());
  }
  // Calls `use` with the stream that bytes go through.
  template <typename Use>
  void WithStream(Use use) {
    tls_ ? use(*tls_) : use(socket_);
  }

  template <typename Do>
  void Guarded(Do act);
  void Begin();
  void ReadSome();
  void OnRead(ErrorCode ec, size_t bytes);
  void OnMail();
  void GoOn();  // after anything has happened
  void Flush();
  void OnWritten(ErrorCode ec);
  void ArmDeadline();

  const std::shared_ptr<const ConnectionContext> context_;
  const std::shared_ptr<tcp_listener::IoThread> thread_;
  std::thread::id thread_id_;
  boost::asio::ip::tcp::socket socket_;
  std::optional<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> tls_;
  std::shared_ptr<boost::asio::ssl::context> tls_context_;  // of tls_
  std::unique_ptr<Session> session_;
  std::shared_ptr<AccountShare> share_;
  std::vector<char> in_;
  std::string out_;
  bool writing_ = false;
  bool closed_ = false;
  int64_t last_received_ns_ = 0;
  Deadline handshake_deadline_ = Deadline::max();
  boost::asio::steady_timer deadline_timer_;  // of calls
  Deadline armed_for_ = Deadline::max();

  std::mutex mail_mutex_;
  std::vector<std::function<void()>> mail_;
  bool is_mail_posted_ = false;
  bool is_mail_closed_ = false;
};

}  // namespace inflight::grpc_listener
