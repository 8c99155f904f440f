// SPDX-License-Identifier: Apache-2.0
#include "protocol/tcp_listener/connection.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <exception>

#include "base/log.h"

namespace inflight::tcp_listener {
namespace {

namespace asio = boost::asio;

constexpr size_t kTlsBytes = 96 * 1024;  // of a connection, about: buffers of both directions

}  // namespace

Connection::Connection(ConnectionContext context, std::shared_ptr<IoThread> thread, Socket socket,
                       asio::ip::address client)
    : context_(std::move(context)),
      thread_(std::move(thread)),
      socket_(std::move(socket)),
      client_(std::move(client)),
      client_name_(client_.to_string()) {}

bool Connection::Join() {
  thread_->connections.insert(shared_from_this());
  if (thread_->draining) Close();
  return !is_closed_;
}

void Connection::Open() {
  ErrorCode ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);  // a Unix socket has no such
  socket_.non_blocking(true, ignored);  // also where it is written to without a task
  if (context_.tls == nullptr) return OnOpen();
  tls_charge_ = MemoryCharge(share());
  if (!tls_charge_.Resize(kTlsBytes).ok()) return Close();  // nothing can be said without it
  tls_context_ = context_.tls->current();
  tls_ = std::make_unique<Tls>(socket_, *tls_context_);
  tls_->async_handshake(asio::ssl::stream_base::server, [self = shared_from_this()](ErrorCode ec) {
    if (self->is_closed_) return;
    ec ? self->Close() : self->OnOpen();
  });
}

void Connection::Close() {
  if (is_closed_) return;
  const auto self = shared_from_this();
  is_closed_ = true;
  ++thread_->num_done;
  ErrorCode ignored;
  socket_.close(ignored);
  thread_->connections.erase(self);
  try {
    OnClosed();
  } catch (const std::exception& e) {  // such as bad_alloc: it is closed all the same
    logging::Error("the end of a connection is told to nobody", {{"error", e.what()}});
  }
  thread_->on_closed();
}

const std::shared_ptr<AccountShare>& Connection::share() {
  if (share_ == nullptr) {
    share_ = context_.memory->NewConnection(client_name_,
                                            [thread = thread_, connection = weak_from_this()] {
                                              asio::post(thread->io, [connection] {
                                                if (const auto found = connection.lock())
                                                  found->Close();
                                              });
                                            });
  }
  return share_;
}

}  // namespace inflight::tcp_listener
