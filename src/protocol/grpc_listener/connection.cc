// SPDX-License-Identifier: Apache-2.0
#include "protocol/grpc_listener/connection.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <exception>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace inflight::grpc_listener {
namespace {

namespace asio = boost::asio;

// Of what is read and written at a time: the least, which is not charged, and the most, where the
// account has room for it.
constexpr size_t kLeastReadBytes = 4 * 1024;
constexpr size_t kMaxReadBytes = 256 * 1024;
constexpr size_t kLeastWriteBytes = 16 * 1024;
constexpr size_t kMaxWriteBytes = 256 * 1024;
constexpr std::chrono::seconds kHandshake{10};

}  // namespace

Connection::Connection(std::shared_ptr<const ListenerContext> context,
                       std::shared_ptr<tcp_listener::IoThread> thread, tcp_listener::Socket socket,
                       asio::ip::address client)
    : tcp_listener::Connection(context->connection, std::move(thread), std::move(socket),
                               std::move(client)),
      context_(std::move(context)),
      in_(kLeastReadBytes),
      deadline_timer_(tcp_listener::Connection::thread().io) {}

void Connection::Start() {
  thread_id_ = std::this_thread::get_id();
  last_received_ns_ = Clock::System().NowNs();
  if (!Join()) return;
  Guarded([&] {
    const auto now = SteadyNow();
    session_ = std::make_unique<Session>(context_->session, self(), client_name(), share(), now);
    in_charge_ = MemoryCharge(share());
    out_charge_ = MemoryCharge(share());
    handshake_deadline_ = now + kHandshake;
    Open();
  });
}

void Connection::OnOpen() {
  handshake_deadline_ = Deadline::max();
  ReadSome();
  Flush();
}

// HTTP/2 has no words for it before the client has spoken.
void Connection::Refuse(const std::string&) {
  if (Join()) Close();
}

void Connection::Drain() {
  if (is_closed()) return;
  if (session_ == nullptr) return Close();
  session_->GoAway();
  GoOn();
}

// Tasks that are left see a session that is still there, and calls that end with it.
void Connection::OnClosed() {
  deadline_timer_.cancel();
  std::vector<std::function<void()>> mail;
  {
    const std::lock_guard lock(mail_mutex_);
    is_mail_closed_ = true;
    mail.swap(mail_);
  }
  for (const auto& task : mail) {
    try {
      task();
    } catch (const std::exception& e) {  // such as bad_alloc: that call ends all the same
      logging::Error("a task of a gRPC call is lost", {{"error", e.what()}});
    }
  }
  if (session_ != nullptr) session_->Close();
}

bool Connection::IsThis() const { return std::this_thread::get_id() == thread_id_; }

bool Connection::Post(std::function<void()> task) {
  const std::lock_guard lock(mail_mutex_);
  if (is_mail_closed_) return false;
  if (!is_mail_posted_) {
    asio::post(thread().io, [self = self()] { self->OnMail(); });
    is_mail_posted_ = true;
  }
  mail_.push_back(std::move(task));
  return true;
}

void Connection::OnMail() {
  std::vector<std::function<void()>> mail;
  {
    const std::lock_guard lock(mail_mutex_);
    is_mail_posted_ = false;
    mail.swap(mail_);
  }
  if (is_closed()) return;
  Guarded([&] {
    for (const auto& task : mail) task();
    GoOn();
  });
}

// What was to be done for its calls cannot be told any more: they end with the connection.
template <typename Do>
void Connection::Guarded(Do act) {
  try {
    act();
  } catch (const std::exception& e) {  // such as bad_alloc
    logging::Error("a gRPC connection is lost to an exception", {{"error", e.what()}});
    Close();
  }
}

void Connection::ReadSome() {
  OnStream([this](auto& stream) {
    stream.async_read_some(asio::buffer(in_), [self = self()](ErrorCode ec, size_t bytes) {
      self->OnRead(ec, bytes);
    });
  });
}

// To that of an idle connection.
void Connection::ShrinkRead() {
  in_ = std::vector<char>(kLeastReadBytes);
  in_charge_.Release();
}

void Connection::OnRead(ErrorCode ec, size_t bytes) {
  if (is_closed()) return;
  if (ec == asio::error::operation_aborted) {  // by Flush
    return Guarded([&] {
      ShrinkRead();
      ReadSome();
    });
  }
  if (ec) return Close();
  const int64_t now_ns = Clock::System().NowNs();
  last_received_ns_ = now_ns;
  Guarded([&] {
    if (!session_->Receive({in_.data(), bytes}, SteadyNow())) return Close();
    GoOn();
    if (is_closed()) return;
    if (!session_->HasCalls()) {
      if (in_.size() > kLeastReadBytes) ShrinkRead();
    } else if (bytes == in_.size() && bytes < kMaxReadBytes && in_charge_.Resize(2 * bytes).ok()) {
      in_.resize(2 * bytes);
    }
    ReadSome();
  });
}

void Connection::GoOn() {
  if (is_closed()) return;
  session_->TellReactors();
  ArmDeadline();
  Flush();
}

// What is to be sent next. False: the connection is to be closed.
bool Connection::Gather() {
  out_.clear();
  if (!session_->Send(out_, kLeastWriteBytes)) return false;
  if (out_.size() < kLeastWriteBytes) return true;
  constexpr size_t kMost = kMaxWriteBytes + kMaxSentFrameBytes;
  if (!out_charge_.Reserve(kMost).ok()) return true;  // by little and little then
  out_.reserve(kMost);
  return session_->Send(out_, kMaxWriteBytes);
}

void Connection::Flush() {
  if (is_closed() || writing_ || handshake_deadline_ != Deadline::max()) return;
  if (!Gather()) return Close();
  if (out_.empty()) {
    if (out_charge_.bytes() > 0 || !session_->HasCalls()) out_ = {};
    out_charge_.Release();
    if (!session_->HasCalls() && in_.size() > kLeastReadBytes) {
      ErrorCode ignored;
      socket().cancel(ignored);  // OnRead goes on with a smaller buffer
    }
    session_->OnFlushed();
    share()->SetWaiting(session_->IsWaiting());
    if (session_->IsOver()) Close();
    return;
  }
  writing_ = true;
  share()->SetWaiting(true);
  OnStream([this](auto& stream) {
    asio::async_write(stream, asio::buffer(out_),
                      [self = self()](ErrorCode ec, size_t) { self->OnWritten(ec); });
  });
}

void Connection::OnWritten(ErrorCode ec) {
  if (is_closed()) return;
  if (ec) return Close();
  writing_ = false;
  ++thread().num_done;
  Guarded([&] {
    session_->OnFlushed();
    GoOn();
  });
}

bool Connection::IsDue(Deadline now) const {
  return handshake_deadline_ <= now ||
         (session_ != nullptr && (session_->due() <= now || num_lost > 0));
}

void Connection::OnDue(Deadline now) {
  if (is_closed()) return;
  Guarded([&] {
    if (handshake_deadline_ <= now || !session_->OnDue(now)) return Close();
    GoOn();
  });
}

// The sweep is too coarse for deadlines of calls.
void Connection::ArmDeadline() {
  if (session_->next_deadline() >= armed_for_) return;
  armed_for_ = session_->next_deadline();
  deadline_timer_.expires_at(armed_for_);
  deadline_timer_.async_wait([self = self()](ErrorCode ec) {
    if (ec || self->is_closed()) return;
    self->armed_for_ = Deadline::max();
    self->OnDue(SteadyNow());
  });
}

}  // namespace inflight::grpc_listener
