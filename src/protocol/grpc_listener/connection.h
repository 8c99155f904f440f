// SPDX-License-Identifier: Apache-2.0
// One client's connection: a socket, with TLS or without, and the HTTP/2 session over it.
//
// Threads: tasks come from any thread through a mailbox, whose mutex guards it alone; what gathers
// while the I/O thread is busy is done together and leaves together. Everything else belongs to the
// I/O thread.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "protocol/grpc_listener/session.h"
#include "protocol/tcp_listener/connection.h"

namespace inflight::grpc_listener {

// What the connections of a listener share.
struct ListenerContext {
  SessionContext session;
  tcp_listener::ConnectionContext connection;
};

class Connection final : public tcp_listener::Connection, public SessionThread {
 public:
  using Deadline = tcp_listener::Deadline;

  Connection(std::shared_ptr<const ListenerContext> context,
             std::shared_ptr<tcp_listener::IoThread> thread, tcp_listener::Socket socket,
             boost::asio::ip::address client);

  void Start() override;
  void Refuse(const std::string& reason) override;
  void Drain() override;
  bool IsDue(Deadline now) const override;
  void OnDue(Deadline now) override;
  bool IsWaiting() const override { return !is_closed(); }
  bool IsIdle() const override { return session_ == nullptr || !session_->HasCalls(); }
  int64_t last_request_ns() const override { return last_received_ns_; }

  bool IsThis() const override;
  bool Post(std::function<void()> task) override;

 private:
  std::shared_ptr<Connection> self() {
    return std::static_pointer_cast<Connection>(shared_from_this());
  }
  void OnOpen() override;
  void OnClosed() override;
  template <typename Do>
  void Guarded(Do act);
  void ReadSome();
  void ShrinkRead();
  void OnRead(ErrorCode ec, size_t bytes);
  void OnMail();
  void GoOn();  // after anything has happened
  bool Gather();
  void Flush();
  void OnWritten(ErrorCode ec);
  void ArmDeadline();

  const std::shared_ptr<const ListenerContext> context_;
  std::thread::id thread_id_;
  std::unique_ptr<Session> session_;
  std::vector<char> in_;
  MemoryCharge in_charge_;  // while it is larger than that of an idle connection
  std::string out_;
  MemoryCharge out_charge_;  // while it may have more than a few frames
  bool writing_ = false;
  int64_t last_received_ns_ = 0;
  Deadline handshake_deadline_ = Deadline::max();  // until it is open
  boost::asio::steady_timer deadline_timer_;       // of calls
  Deadline armed_for_ = Deadline::max();

  std::mutex mail_mutex_;
  std::vector<std::function<void()>> mail_;
  bool is_mail_posted_ = false;
  bool is_mail_closed_ = false;
};

}  // namespace inflight::grpc_listener
