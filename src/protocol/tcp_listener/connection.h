// SPDX-License-Identifier: Apache-2.0
// A client's connection as its listener sees it, and the thread that it lives on. What is spoken
// over it is the business of http_listener/ and grpc_listener/.
//
// Threads: a connection belongs to the thread that it was given to; all methods are for that one.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/idle_memory.h"
#include "base/memory_account.h"
#include "protocol/tls/server_tls.h"

namespace inflight::tcp_listener {

class Connection;

// Of TCP or Unix.
using Socket = boost::asio::generic::stream_protocol::socket;

// A point of the steady clock; max() = never.
using Deadline = std::chrono::steady_clock::time_point;

// An io_context and the connections that live on it. Only its own thread touches what stands below
// the context.
//
// Deadlines are looked at by a sweep over all connections a few times a second: a timer for each
// would cost every request more than its parsing.
struct IoThread {
  explicit IoThread(std::chrono::milliseconds interval) : sweep_interval(interval) {}

  void Sweep();  // from now on now and then, until StopSweep
  void StopSweep();

  const std::chrono::milliseconds sweep_interval;
  boost::asio::io_context io{1};
  boost::asio::steady_timer sweep_timer{io};
  // Until they close, also where an exception takes the work with it that would have gone on: then
  // a deadline ends them.
  std::unordered_set<std::shared_ptr<Connection>> connections;
  size_t next_bucket = 0;  // of them, for FindRoom
  uint64_t num_done = 0;   // requests begun, answers and connections ended
  MemoryLook memory_look;
  bool draining = false;
  bool is_stopping = false;
  std::function<void()> on_closed;  // a connection of this thread has closed
};

// What a listener is told of all its connections.
struct ConnectionContext {
  std::shared_ptr<MemoryAccount> memory;
  std::shared_ptr<tls::ServerTls> tls;  // null: none
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  virtual ~Connection() = default;

  // The first call is one of these two, and joins the thread.
  virtual void Start() = 0;
  // Says to the client why it is not served, without reading from it, and closes.
  virtual void Refuse(const std::string& reason) = 0;

  virtual void Drain() = 0;  // closes now if idle, else after what runs
  void Close();              // at once; idempotent

  // A deadline has passed by `now`, and OnDue acts on it.
  virtual bool IsDue(Deadline now) const = 0;
  virtual void OnDue(Deadline now) = 0;

  // What make_room.h chooses by: whether it waits for its client, and how little is lost with it.
  virtual bool IsWaiting() const = 0;
  virtual bool IsIdle() const = 0;                    // between requests
  virtual bool IsLingering() const { return false; }  // had its last answer
  // Monotonic clock, when its last request began; without one, when the connection did.
  virtual int64_t last_request_ns() const = 0;

  const boost::asio::ip::address& client() const { return client_; }

 protected:
  using ErrorCode = boost::system::error_code;
  using Tls = boost::asio::ssl::stream<Socket&>;

  Connection(ConnectionContext context, std::shared_ptr<IoThread> thread, Socket socket,
             boost::asio::ip::address client);

  // What follows the socket's end.
  virtual void OnClosed() = 0;

  // To be one of the thread's. False: that drains, and the connection has closed.
  bool Join();
  // Bytes may be sent and received, encrypted where the context says so, once OnOpen is called. A
  // handshake that fails, or for which there is no room, closes the connection.
  void Open();
  virtual void OnOpen() = 0;

  // Calls `use` with what bytes are read from and written to: TLS, or the bare socket.
  template <typename Use>
  void OnStream(Use use) {
    tls_ != nullptr ? use(*tls_) : use(socket_);
  }

  // Of the account, made when it is first asked for: closes the connection where that is to end.
  const std::shared_ptr<AccountShare>& share();
  const std::string& client_name() const { return client_name_; }  // its address as a text
  IoThread& thread() const { return *thread_; }
  bool is_closed() const { return is_closed_; }
  Socket& socket() { return socket_; }
  Tls* tls() { return tls_.get(); }  // null: none

 private:
  const ConnectionContext context_;
  const std::shared_ptr<IoThread> thread_;
  Socket socket_;
  const boost::asio::ip::address client_;
  const std::string client_name_;
  std::shared_ptr<AccountShare> share_;
  std::shared_ptr<boost::asio::ssl::context> tls_context_;  // of tls_
  std::unique_ptr<Tls> tls_;
  MemoryCharge tls_charge_;  // of tls_
  bool is_closed_ = false;
};

}  // namespace inflight::tcp_listener
