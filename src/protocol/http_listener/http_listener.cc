// SPDX-License-Identifier: Apache-2.0
#include "protocol/http_listener/http_listener.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>  // before Boost 1.74 under C++20
#include <vector>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/thread_name.h"
#include "protocol/http_listener/connection.h"
#include "protocol/http_listener/make_room.h"

namespace inflight::http_listener {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr int kBacklog = 4096;
constexpr int kMaxRejected = 256;  // at a time; further ones are closed without an answer
constexpr std::chrono::milliseconds kAcceptRetry{100};  // after running out of descriptors

int ThreadsByCores() {
  const unsigned cores = std::thread::hardware_concurrency();
  return cores <= 2 ? 1 : cores <= 8 ? 2 : 4;
}

// An IP address as it is or in the forms of Triton and of gRPC: [::1], ipv6:[::1], ipv4:127.0.0.1.
asio::ip::address ParseAddress(std::string_view text, ErrorCode& ec) {
  for (const std::string_view scheme : {"ipv4:", "ipv6:"})
    if (text.starts_with(scheme)) text.remove_prefix(scheme.size());
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  return asio::ip::make_address(std::string(text), ec);
}

class Listener : public HttpListener {
 public:
  Listener(HttpHandler& handler, const ListenerOptions& options) : options_(options) {
    if (options_.memory == nullptr) options_.memory = MemoryAccount::Make({});
    const int num_threads = options.threads > 0 ? options.threads : ThreadsByCores();
    for (int i = 0; i < num_threads; ++i) {
      threads_.push_back(std::make_shared<IoThread>(handler, options_));
      threads_.back()->on_closed = [this] { OnClosed(); };
    }
    acceptor_.emplace(threads_[0]->io);
    accept_retry_.emplace(threads_[0]->io);
  }

  ~Listener() override { Stop(std::chrono::milliseconds(0)); }

  Status Listen();
  void Run();

  int port() const override { return port_; }
  void Stop(std::chrono::milliseconds drain) override;

 private:
  void Accept();
  // `place`: of the connection's thread.
  void OnAccept(ErrorCode ec, size_t place, tcp::socket socket);
  void MakeRoom(const std::shared_ptr<Connection>& newcomer, size_t place, size_t num_asked,
                Room best);
  void TakeRoom(const std::shared_ptr<Connection>& newcomer, size_t place, const Room& room);
  int NumTooMany();  // connections
  void OnClosed();
  void ForEachConnection(void (Connection::*action)());

  ListenerOptions options_;
  std::vector<std::shared_ptr<IoThread>> threads_;
  std::vector<asio::executor_work_guard<asio::io_context::executor_type>> work_;
  std::vector<std::thread> running_;
  std::optional<tcp::acceptor> acceptor_;  // of the first thread
  std::optional<asio::steady_timer> accept_retry_;
  tcp::endpoint peer_;  // of the connection that is accepted next
  size_t next_thread_ = 0;
  int port_ = 0;

  std::mutex mutex_;
  std::condition_variable none_left_;
  int num_connections_ = 0;
  bool stopped_ = false;
};

Status Listener::Listen() {
  const std::string where = options_.address + ":" + std::to_string(options_.port);
  ErrorCode ec;
  const auto address = ParseAddress(options_.address, ec);
  if (ec)
    return InvalidArgument(options_.name + " address '" + options_.address + "' is no IP address");
  if (options_.port < 0 || options_.port > 65535) {
    return InvalidArgument(options_.name + " port: got " + std::to_string(options_.port) +
                           ", should be 0 (any) to 65535");
  }
  const tcp::endpoint endpoint(address, static_cast<unsigned short>(options_.port));
  acceptor_->open(endpoint.protocol(), ec);
  if (!ec) acceptor_->set_option(tcp::acceptor::reuse_address(true), ec);
  const int on = 1;
  if (!ec && options_.reuse_port &&
      ::setsockopt(acceptor_->native_handle(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0)
    ec.assign(errno, boost::system::system_category());
  if (!ec) acceptor_->bind(endpoint, ec);
  if (!ec) acceptor_->listen(kBacklog, ec);
  if (ec) return Unavailable(options_.name + " cannot listen on " + where + ": " + ec.message());
  port_ = acceptor_->local_endpoint(ec).port();
  return Status::Ok();
}

void Listener::Run() {
  Accept();
  for (const auto& thread : threads_) {
    work_.push_back(asio::make_work_guard(thread->io));
    asio::post(thread->io, [thread] { thread->Sweep(); });
    running_.emplace_back([thread, name = options_.name + " I/O"] {
      NameThisThread(name);
      while (true) {
        try {
          thread->io.run();
          return;
        } catch (const std::exception& e) {  // such as bad_alloc; that connection is lost
          logging::Error("I/O thread caught an exception", {{"error", e.what()}});
        }
      }
    });
  }
}

void Listener::Accept() {
  const size_t place = next_thread_++ % threads_.size();
  acceptor_->async_accept(
      threads_[place]->io, peer_,
      [this, place](ErrorCode ec, tcp::socket socket) { OnAccept(ec, place, std::move(socket)); });
}

void Listener::OnAccept(ErrorCode ec, size_t place, tcp::socket socket) {
  if (!acceptor_->is_open()) return;
  if (ec) {
    logging::Warning("accept failed", {{"listener", options_.name}, {"reason", ec.message()}});
    accept_retry_->expires_after(kAcceptRetry);
    accept_retry_->async_wait([this](ErrorCode wait_ec) {
      if (!wait_ec) Accept();
    });
    return;
  }
  bool is_full = false;
  {
    const std::lock_guard lock(mutex_);
    is_full = ++num_connections_ > options_.max_connections;
  }
  const auto& thread = threads_[place];
  auto connection = std::make_shared<Connection>(thread, std::move(socket), peer_.address());
  if (is_full) {
    MakeRoom(connection, place, 0, {});
  } else {
    asio::post(thread->io, [connection] { connection->Start(); });
  }
  Accept();
}

// Asks one thread after the other, from the newcomer's, for the connection that is to give way.
void Listener::MakeRoom(const std::shared_ptr<Connection>& newcomer, size_t place, size_t num_asked,
                        Room best) {
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
      if (NumTooMany() > kMaxRejected) return newcomer->Close();
      newcomer->Reject(Overloaded("too many connections: the limit is " +
                                  std::to_string(options_.max_connections)));
    });
  }
}

// On the thread of `room`.
void Listener::TakeRoom(const std::shared_ptr<Connection>& newcomer, size_t place,
                        const Room& room) {
  const auto gives_way = room.Waiting();
  if (gives_way != nullptr && NumTooMany() > 0) gives_way->Close();
  // That one has begun a request meanwhile, or those that were rejected are too many as well.
  if (NumTooMany() > 0) return MakeRoom(newcomer, place, 0, {});
  asio::post(threads_[place]->io, [newcomer] { newcomer->Start(); });
}

int Listener::NumTooMany() {
  const std::lock_guard lock(mutex_);
  return num_connections_ - options_.max_connections;
}

void Listener::OnClosed() {
  const std::lock_guard lock(mutex_);
  if (--num_connections_ == 0) none_left_.notify_all();
}

void Listener::ForEachConnection(void (Connection::*action)()) {
  for (const auto& thread : threads_) {
    asio::post(thread->io, [thread, action] {
      thread->draining = true;
      const std::vector<Connection*> connections(thread->connections.begin(),
                                                 thread->connections.end());
      for (Connection* connection : connections) (connection->*action)();
    });
  }
}

void Listener::Stop(std::chrono::milliseconds drain) {
  if (running_.empty() || std::exchange(stopped_, true)) return;
  asio::post(threads_[0]->io, [this] {
    ErrorCode ignored;
    acceptor_->close(ignored);
    accept_retry_->cancel();
  });
  ForEachConnection(&Connection::Drain);
  {
    std::unique_lock lock(mutex_);
    none_left_.wait_for(lock, drain, [this] { return num_connections_ == 0; });
  }
  ForEachConnection(&Connection::Close);
  for (const auto& thread : threads_) {
    asio::post(thread->io, [thread] { thread->StopSweep(); });
  }
  work_.clear();
  for (auto& thread : running_) thread.join();
  running_.clear();
}

}  // namespace

Result<std::unique_ptr<HttpListener>> HttpListener::Start(HttpHandler& handler,
                                                          const ListenerOptions& options) {
  try {
    auto listener = std::make_unique<Listener>(handler, options);
    RETURN_IF_ERROR(listener->Listen());
    listener->Run();
    return std::unique_ptr<HttpListener>(std::move(listener));
  } catch (const std::exception& e) {
    return Unavailable(options.name + " listener: " + e.what());
  }
}

}  // namespace inflight::http_listener
