// SPDX-License-Identifier: Apache-2.0
// Accepts connections, over TCP or a Unix socket, and spreads them over I/O threads; what is spoken
// over them is the factory's.
//
// Threads: one io_context per I/O thread; a connection stays on the thread it was given to, in
// turn. One acceptor serves all of them: SO_REUSEPORT, unless asked for, would let a second server
// on the same port start unnoticed and share its clients.
#pragma once

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "inflight/status.h"
#include "protocol/tcp_listener/connection.h"
#include "protocol/tcp_listener/make_room.h"
#include "protocol/tcp_listener/socket_file.h"

namespace inflight::tcp_listener {

struct TcpOptions {
  std::string name;  // in log lines and of threads: "HTTP"
  bool reuse_port = false;
  int threads = 0;  // 0 = by cores, 1 to 4
  // Further ones take the place of one that waits for its client (make_room.h), or are refused.
  int max_connections = 16384;
  std::chrono::milliseconds sweep_interval{250};  // between two looks at deadlines
};

class TcpListener {
 public:
  // Makes a connection that has not begun. Called by the accepting thread.
  using Factory = std::function<std::shared_ptr<Connection>(std::shared_ptr<IoThread>, Socket,
                                                            boost::asio::ip::address client)>;

  TcpListener(const TcpOptions& options, Factory make);
  ~TcpListener() { Stop(std::chrono::milliseconds(0)); }
  TcpListener(const TcpListener&) = delete;
  TcpListener& operator=(const TcpListener&) = delete;

  // On all endpoints with the port of the first; `::` serves IPv4 too and alone, where the machine
  // has IPv6. The system's reason where none can be bound.
  Status Listen(std::vector<boost::asio::ip::tcp::endpoint> endpoints);
  int port() const { return port_; }
  // On a Unix socket (socket_file.h), whose clients are of this machine: they count as 127.0.0.1.
  Status ListenOnFile(const std::string& path);

  // Starts the threads. Once, after Listen.
  void Run();

  // Stops accepting and closes idle connections; lets what runs finish for `drain`, then
  // disconnects. Blocks until no thread of the listener runs. Later calls do nothing.
  void Stop(std::chrono::milliseconds drain);
  // The same, but for the threads.
  void Disconnect(std::chrono::milliseconds drain);

 private:
  using ErrorCode = boost::system::error_code;

  void WaitUntilNoneIsLeft(std::chrono::milliseconds drain);

  struct Port {
    explicit Port(boost::asio::io_context& io) : acceptor(io) {}
    using Protocol = boost::asio::generic::stream_protocol;
    boost::asio::basic_socket_acceptor<Protocol> acceptor;  // of the first thread
    Protocol::endpoint peer;  // of the connection that is accepted next
  };

  Status ListenOn(const boost::asio::ip::tcp::endpoint& endpoint);
  void Accept(Port& port);
  // `place`: of the connection's thread.
  void Begin(const Port& port, size_t place, Socket socket);
  void OnAccept(Port& port, ErrorCode ec, size_t place, Socket socket);
  void OnAcceptFailed(Port& port, ErrorCode ec);
  void MakeRoom(const std::shared_ptr<Connection>& newcomer, size_t place, size_t num_asked,
                Room best);
  void TakeRoom(const std::shared_ptr<Connection>& newcomer, size_t place, const Room& room);
  void FreeDescriptor(size_t num_asked, Room best);
  int NumTooMany();  // connections
  void OnClosed();
  void ForEachConnection(void (Connection::*action)());

  const TcpOptions options_;
  const Factory make_;
  std::vector<std::shared_ptr<IoThread>> threads_;
  std::vector<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work_;
  std::vector<std::thread> running_;
  std::deque<Port> ports_;
  std::unique_ptr<SocketFile> file_;  // of a Unix socket
  std::optional<boost::asio::steady_timer> accept_retry_;
  int64_t last_warning_ns_ = 0;
  size_t next_thread_ = 0;
  int port_ = 0;

  std::mutex mutex_;
  std::condition_variable none_left_;
  int num_connections_ = 0;
  bool is_disconnected_ = false;
  bool stopped_ = false;
};

}  // namespace inflight::tcp_listener
