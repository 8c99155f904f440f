// SPDX-License-Identifier: Apache-2.0
#include "protocol/tcp_listener/tcp_listener.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/thread_name.h"
#include "protocol/tcp_listener/endpoints.h"

namespace inflight::tcp_listener {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using AnyEndpoint = asio::generic::stream_protocol::endpoint;

constexpr int kBacklog = 4096;
constexpr int kMaxRefused = 256;  // at a time; further ones are closed without an answer
constexpr int kMaxFreed = 16;     // connections that end for want of descriptors, at a time
constexpr std::chrono::milliseconds kAcceptRetry{20};  // after that
constexpr int64_t kWarningNs = 10'000'000'000;

int ThreadsByCores() {
  const unsigned cores = std::thread::hardware_concurrency();
  return cores <= 2 ? 1 : cores <= 8 ? 2 : 4;
}

// That is of TCP.
tcp::endpoint ToTcp(const AnyEndpoint& any) {
  tcp::endpoint endpoint;
  endpoint.resize(any.size());
  std::memcpy(endpoint.data(), any.data(), any.size());
  return endpoint;
}

// A client of IPv4 is the same one on a port that serves both families.
asio::ip::address ClientOf(const AnyEndpoint& peer) {
  if (peer.data()->sa_family == AF_UNIX) return asio::ip::address_v4::loopback();
  return Unmapped(ToTcp(peer).address());
}

}  // namespace

TcpListener::TcpListener(const TcpOptions& options, Factory make)
    : options_(options), make_(std::move(make)) {
  const int num_threads = options.threads > 0 ? options.threads : ThreadsByCores();
  for (int i = 0; i < num_threads; ++i) {
    threads_.push_back(std::make_shared<IoThread>(options.sweep_interval));
    threads_.back()->on_closed = [this] { OnClosed(); };
  }
  accept_retry_.emplace(threads_[0]->io);
}

Status TcpListener::Listen(std::vector<tcp::endpoint> endpoints) {
  Status status;
  for (tcp::endpoint& endpoint : endpoints) {
    if (port_ != 0) endpoint.port(static_cast<unsigned short>(port_));
    status = ListenOn(endpoint);
    // It serves both families; where there is no IPv6, the next one is tried.
    if (endpoint.address().is_unspecified() && status.ok()) break;
  }
  return ports_.empty() ? status : Status::Ok();
}

Status TcpListener::ListenOn(const tcp::endpoint& endpoint) {
  auto& acceptor = ports_.emplace_back(threads_[0]->io).acceptor;
  ErrorCode ec;
  acceptor.open(endpoint.protocol(), ec);
  if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec && endpoint.address() == asio::ip::address_v6::any()) {
    acceptor.set_option(asio::ip::v6_only(false), ec);
  }
  const int on = 1;
  if (!ec && options_.reuse_port &&
      ::setsockopt(acceptor.native_handle(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0) {
    ec.assign(errno, boost::system::system_category());
  }
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(kBacklog, ec);
  if (ec) {
    ports_.pop_back();
    return Unavailable(ec.message());
  }
  port_ = ToTcp(acceptor.local_endpoint(ec)).port();
  return Status::Ok();
}

Status TcpListener::ListenOnFile(const std::string& path) {
  auto& acceptor = ports_.emplace_back(threads_[0]->io).acceptor;
  ErrorCode ec;
  acceptor.open({AF_UNIX, 0}, ec);
  if (ec) return Unavailable(ec.message());
  ASSIGN_OR_RETURN(file_, SocketFile::Listen(acceptor.native_handle(), path, kBacklog));
  return Status::Ok();
}

void TcpListener::Run() {
  for (Port& port : ports_) Accept(port);
  for (const auto& thread : threads_) {
    work_.push_back(asio::make_work_guard(thread->io));
    asio::post(thread->io, [thread] { thread->Sweep(); });
    running_.emplace_back([thread, name = options_.name + " I/O"] {
      NameThisThread(name);
      while (true) {
        try {
          thread->io.run();
          return;
        } catch (const std::exception& e) {  // such as bad_alloc; what was to be done is lost
          logging::Error("I/O thread caught an exception", {{"error", e.what()}});
        }
      }
    });
  }
}

void TcpListener::Accept(Port& port) {
  const size_t place = next_thread_++ % threads_.size();
  port.acceptor.async_accept(threads_[place]->io, port.peer,
                             [this, &port, place](ErrorCode ec, Socket socket) {
                               OnAccept(port, ec, place, std::move(socket));
                             });
}

void TcpListener::OnAccept(Port& port, ErrorCode ec, size_t place, Socket socket) {
  if (!port.acceptor.is_open()) return;
  if (ec) return OnAcceptFailed(port, ec);
  try {
    Begin(port, place, std::move(socket));
  } catch (const std::exception& e) {  // such as bad_alloc; others are accepted
    logging::Error("a connection is lost to an exception", {{"error", e.what()}});
    OnClosed();
  }
  Accept(port);
}

void TcpListener::Begin(const Port& port, size_t place, Socket socket) {
  bool is_full = false;
  {
    const std::lock_guard lock(mutex_);
    is_full = ++num_connections_ > options_.max_connections;
  }
  const auto& thread = threads_[place];
  auto connection = make_(thread, std::move(socket), ClientOf(port.peer));
  if (is_full) {
    MakeRoom(connection, place, 0, {});
  } else {
    asio::post(thread->io, [connection] { connection->Start(); });
  }
}

// Mostly for want of descriptors: some connections make room for newcomers.
void TcpListener::OnAcceptFailed(Port& port, ErrorCode ec) {
  const int64_t now_ns = Clock::System().NowNs();
  if (last_warning_ns_ == 0 || now_ns - last_warning_ns_ > kWarningNs) {
    last_warning_ns_ = now_ns;
    logging::Warning("a connection cannot be accepted; if descriptors are short, raise `ulimit -n`",
                     {{"listener", options_.name}, {"reason", ec.message()}});
  }
  if (ec.value() == EMFILE || ec.value() == ENFILE) {
    for (int i = 0; i < kMaxFreed; ++i) FreeDescriptor(0, {});
  }
  accept_retry_->expires_after(kAcceptRetry);
  accept_retry_->async_wait([this, &port](ErrorCode wait_ec) {
    if (!wait_ec) Accept(port);
  });
}

// Asks one thread after the other, from the newcomer's, for the connection that is to give way.
void TcpListener::MakeRoom(const std::shared_ptr<Connection>& newcomer, size_t place,
                           size_t num_asked, Room best) {
  if (num_asked < threads_.size()) {
    const size_t asked = (place + num_asked) % threads_.size();
    asio::post(threads_[asked]->io, [=, this, best = std::move(best)]() mutable {
      FindRoom(*threads_[asked], asked, newcomer->client(), best);
      MakeRoom(newcomer, place, num_asked + 1, std::move(best));
    });
  } else if (best.IsFound()) {
    const size_t asked = best.place;
    asio::post(threads_[asked]->io, [this, newcomer, place, best = std::move(best)] {
      TakeRoom(newcomer, place, best);
    });
  } else {
    asio::post(threads_[place]->io, [this, newcomer, thread = threads_[place]] {
      if (thread->draining) return newcomer->Start();
      if (NumTooMany() > kMaxRefused) return newcomer->Close();
      newcomer->Refuse("too many connections: the limit is " +
                       std::to_string(options_.max_connections));
    });
  }
}

// On the thread of `room`.
void TcpListener::TakeRoom(const std::shared_ptr<Connection>& newcomer, size_t place,
                           const Room& room) {
  const auto gives_way = room.Waiting();
  if (gives_way != nullptr && NumTooMany() > 0) gives_way->Close();
  // That one has begun a request meanwhile, or those that were refused are too many as well.
  if (NumTooMany() > 0) return MakeRoom(newcomer, place, 0, {});
  asio::post(threads_[place]->io, [newcomer] { newcomer->Start(); });
}

// The same for a newcomer of whom nothing is known.
void TcpListener::FreeDescriptor(size_t num_asked, Room best) {
  if (num_asked < threads_.size()) {
    asio::post(threads_[num_asked]->io, [=, this, best = std::move(best)]() mutable {
      FindRoom(*threads_[num_asked], num_asked, asio::ip::address(), best);
      FreeDescriptor(num_asked + 1, std::move(best));
    });
  } else if (best.IsFound()) {
    asio::post(threads_[best.place]->io, [best] {
      if (const auto gives_way = best.Waiting()) gives_way->Close();
    });
  }
}

int TcpListener::NumTooMany() {
  const std::lock_guard lock(mutex_);
  return num_connections_ - options_.max_connections;
}

void TcpListener::OnClosed() {
  const std::lock_guard lock(mutex_);
  if (--num_connections_ == 0) none_left_.notify_all();
}

void TcpListener::ForEachConnection(void (Connection::*action)()) {
  for (const auto& thread : threads_) {
    asio::post(thread->io, [thread, action] {
      thread->draining = true;
      const std::vector<std::shared_ptr<Connection>> connections(thread->connections.begin(),
                                                                 thread->connections.end());
      for (const auto& connection : connections) (connection.get()->*action)();
    });
  }
}

// What is waited for, once a second (docs/operations.md, "The end").
void TcpListener::WaitUntilNoneIsLeft(std::chrono::milliseconds drain) {
  constexpr std::chrono::milliseconds kReport(1000);
  const auto none_is_left = [this] { return num_connections_ == 0; };
  std::unique_lock lock(mutex_);
  while (drain.count() > 0 && !none_is_left()) {
    const int num_left = num_connections_;
    lock.unlock();
    logging::Info("Timeout " + std::to_string((drain.count() + 999) / 1000) + ": Found " +
                  std::to_string(num_left) + " " + options_.name + " service connections");
    lock.lock();
    none_left_.wait_for(lock, std::min(drain, kReport), none_is_left);
    drain -= std::min(drain, kReport);
  }
}

void TcpListener::Disconnect(std::chrono::milliseconds drain) {
  if (running_.empty() || std::exchange(is_disconnected_, true)) return;
  file_.reset();
  asio::post(threads_[0]->io, [this] {
    ErrorCode ignored;
    for (Port& port : ports_) port.acceptor.close(ignored);
    accept_retry_->cancel();
  });
  ForEachConnection(&Connection::Drain);
  WaitUntilNoneIsLeft(drain);
  ForEachConnection(&Connection::Close);
}

void TcpListener::Stop(std::chrono::milliseconds drain) {
  if (running_.empty() || std::exchange(stopped_, true)) return;
  Disconnect(drain);
  for (const auto& thread : threads_) {
    asio::post(thread->io, [thread] { thread->StopSweep(); });
  }
  work_.clear();
  for (auto& thread : running_) thread.join();
  running_.clear();
}

}  // namespace inflight::tcp_listener
