// SPDX-License-Identifier: Apache-2.0
#include "protocol/http_listener/exchange.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <charconv>
#include <new>

namespace inflight::http_listener {
namespace {

constexpr int kClientGone = 499;

// chunk = size in hex CRLF data CRLF       RFC 9112, section 7.1
void AppendChunk(std::string& out, std::string_view bytes) {
  char size[16];
  const auto end = std::to_chars(size, size + sizeof(size), bytes.size(), 16).ptr;
  const size_t length = static_cast<size_t>(end - size) + bytes.size() + 4;
  if (out.capacity() - out.size() < length) {  // before a part of it is there
    out.reserve(std::max(2 * out.capacity(), out.size() + length));
  }
  out.append(size, end).append("\r\n").append(bytes).append("\r\n");
}

}  // namespace

// A state is entered once all that goes with it is done. Where that finds no memory the exchange
// stays what it was, and ends with whoever holds it.

void Exchange::Send(HttpResponse response) {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kOpen) PostResponse(std::move(response));
}

void Exchange::StartStream(int status, const Headers& headers) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kOpen) return;
  pending_ = connection_->StreamHead(status, headers);
  status_ = status;
  ScheduleFlush();
  state_ = State::kStreaming;
}

void Exchange::WriteChunk(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kStreaming || bytes.empty()) return;
  // One that alone is larger says nothing of the client: only what waits behind one does.
  const size_t num_behind = pending_.size() - first_chunk_end_ + bytes.size();
  const size_t most = connection_->context_->options.max_stream_buffer_bytes;
  if (first_chunk_end_ > 0 && num_behind > most) return BreakStream();
  if (!pending_charge_.Reserve(2 * (pending_.size() + bytes.size())).ok()) return BreakStream();
  if (connection_->is_http10_) {
    pending_.append(bytes);
  } else {
    AppendChunk(pending_, bytes);
  }
  if (first_chunk_end_ == 0) first_chunk_end_ = pending_.size();
  ScheduleFlush();
}

void Exchange::Finish() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kStreaming) return;
  if (!connection_->is_http10_) pending_.append("0\r\n\r\n");
  ScheduleFlush();
  state_ = State::kAnswered;
}

void Exchange::OnDisconnect(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kGone) {
      on_disconnect_ = std::move(callback);
      return;
    }
  }
  callback();
}

void Exchange::OnSent(std::function<void()> callback) {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kOpen || state_ == State::kStreaming) on_sent_ = std::move(callback);
}

// Called by a destructor: where no memory is left to post anything, the connection closes when its
// thread looks at it.
void Exchange::Abandon() {
  const std::lock_guard lock(mutex_);
  try {
    if (state_ == State::kOpen) {
      PostResponse(
          {.status = 500, .body = R"({"error":"the request was dropped"})", .close = true});
    } else if (state_ == State::kStreaming) {
      BreakStream();
    }
  } catch (const std::bad_alloc&) {
    connection_->is_lost_ = true;
  }
}

// Tasks are posted with the mutex held: once the state is kGone nothing is posted any more, so that
// the io_context can end.
void Exchange::PostResponse(HttpResponse response) {
  response_charge_ = MemoryCharge(connection_->share());
  const Status status = response_charge_.Resize(response.num_bytes());
  response_ = status.ok() ? std::move(response) : Overloaded(status.message());
  status_ = response_.status;
  boost::asio::post(connection_->thread().io, [self = shared_from_this()] {
    Connection& connection = *self->connection_;
    if (connection.exchange_ != self) return;
    connection.Guarded([&] {
      connection.SendWhole(std::move(self->response_), std::move(self->response_charge_));
    });
  });
  state_ = State::kAnswered;
}

void Exchange::BreakStream() {
  state_ = State::kBroken;
  try {
    boost::asio::post(connection_->thread().io,
                      [connection = connection_] { connection->Close(); });
  } catch (const std::bad_alloc&) {
    connection_->is_lost_ = true;
  }
}

// While a write runs the flag stays set: its completion takes what came meanwhile.
void Exchange::ScheduleFlush() {
  if (flush_scheduled_) return;
  boost::asio::post(connection_->thread().io, [self = shared_from_this()] {
    Connection& connection = *self->connection_;
    if (connection.exchange_ == self) connection.Guarded([&] { connection.FlushStream(); });
  });
  flush_scheduled_ = true;
}

bool Exchange::TakePending(std::string& bytes) {
  const std::lock_guard lock(mutex_);
  bytes.clear();
  std::swap(bytes, pending_);
  first_chunk_end_ = 0;
  flush_scheduled_ = false;
  return state_ == State::kAnswered;
}

void Exchange::MarkDone() {
  std::function<void()> dropped, sent;  // destroyed without the mutex
  int status = 0;
  {
    const std::lock_guard lock(mutex_);
    state_ = State::kGone;
    status = status_;
    dropped.swap(on_disconnect_);
    sent.swap(on_sent_);
  }
  if (sent) sent();
  if (logged_) LogRequest(*logged_, status, status >= 400);
}

void Exchange::MarkGone() {
  std::function<void()> callback, dropped;
  {
    const std::lock_guard lock(mutex_);
    state_ = State::kGone;
    callback.swap(on_disconnect_);
    dropped.swap(on_sent_);
  }
  if (callback) callback();
  if (logged_) LogRequest(*logged_, kClientGone, /*has_failed=*/true);
}

}  // namespace inflight::http_listener
