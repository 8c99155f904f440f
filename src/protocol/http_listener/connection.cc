// SPDX-License-Identifier: Apache-2.0
#include "protocol/http_listener/connection.h"

#include <algorithm>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <exception>
#include <iterator>
#include <limits>
#include <span>

#include "base/clock.h"
#include "base/letter_case.h"
#include "base/log.h"
#include "protocol/http_listener/exchange.h"
#include "protocol/http_listener/framing.h"
#include "protocol/http_listener/raw_values.h"

namespace inflight::http_listener {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr size_t kReadBytes = 4 * 1024;           // of a read; so much is not charged
constexpr size_t kMaxPipelinedBytes = 64 * 1024;  // read ahead of the running request
constexpr size_t kMaxReadBytes = 64 * 1024;       // that one read adds to a body, about
constexpr size_t kMaxRecordBytes = 16 * 1024;     // of TLS
constexpr int64_t kNsPerBodyByte = 1'000'000'000 / (64 * 1024);
constexpr std::chrono::seconds kLinger{2};  // for a client that still sends after its last answer

constexpr int kNoContent = 204;
constexpr int kNotModified = 304;
constexpr size_t kHeadBytes = 256;  // of most answers, at most

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

std::string_view Reason(int status) {
  if (status == 405) return "Not Allowed";  // as Triton says it
  const beast::string_view reason = http::obsolete_reason(static_cast<http::status>(status));
  return {reason.data(), reason.size()};
}

std::string FormatHead(int status, const Headers& headers) {
  std::string head;
  head.reserve(kHeadBytes);
  head.append("HTTP/1.1 ");
  head.append(std::to_string(status)).append(" ").append(Reason(status)).append("\r\n");
  for (const auto& [name, value] : headers) {
    head.append(name).append(": ").append(value).append("\r\n");
  }
  return head;
}

void JoinInto(HttpResponse& response, std::string& bytes) {
  bytes.append(response.body);
  for (const Segment& segment : response.segments) {
    bytes.append(reinterpret_cast<const char*>(segment.data.data()), segment.data.size());
  }
  response.body.clear();
  response.segments.clear();
}

bool IsDisconnect(const boost::system::error_code& ec) {
  return ec == http::error::end_of_stream || ec == http::error::partial_message ||
         ec.category() == asio::error::get_system_category() ||
         ec.category() == asio::error::get_misc_category() ||
         ec.category() == asio::error::get_ssl_category() ||
         ec.category() == asio::ssl::error::get_stream_category();
}

}  // namespace

HttpResponse Overloaded(const std::string& reason) {
  return {.status = 503,
          .headers = {{"Content-Type", "application/json"}},
          .body = R"({"error":")" + reason + "\"}"};
}

Connection::Connection(std::shared_ptr<const ListenerContext> context,
                       std::shared_ptr<IoThread> thread, tcp_listener::Socket socket,
                       asio::ip::address client)
    : tcp_listener::Connection(context->connection, std::move(thread), std::move(socket),
                               std::move(client)),
      context_(std::move(context)),
      buffer_(kMaxPipelinedBytes + kReadBytes + context_->options.max_header_bytes) {
  on_chunk_ = [this](uint64_t size, beast::string_view, ErrorCode& ec) {
    if (size > 0 && ++num_chunks_ > context_->options.max_chunks) ec = http::error::bad_chunk;
  };
}

void Connection::Start() {
  head_started_ns_ = Clock::System().NowNs();
  if (!Join()) return;
  reading_head_or_body_ = true;  // or the handshake before it
  ExpireAfter(read_deadline_, context_->options.header_timeout);
  Open();
}

void Connection::Lose(const std::exception& error) {
  logging::Error("an HTTP connection is lost to an exception", {{"error", error.what()}});
  Close();
}

void Connection::OnOpen() {
  reading_head_or_body_ = false;
  ReadRequest();
}

void Connection::Refuse(const std::string& reason) {
  head_started_ns_ = Clock::System().NowNs();
  if (!Join()) return;
  if (context_->connection.tls != nullptr) return Close();  // a handshake would cost more than it
  Reject(Overloaded(reason));
}

void Connection::Drain() {
  if (IsIdle()) Close();
}

void Connection::OnClosed() {
  body_charge_.Release();
  buffer_charge_.Release();
  if (const auto exchange = std::move(exchange_)) exchange->MarkGone();
}

// What the request log says of the request; none where that is off.
std::optional<LoggedRequest> Connection::Logged() const {
  if (!context_->options.request_log) return std::nullopt;
  return LoggedRequest{.method = request_.method,
                       .path = std::string(request_.path()),
                       .client = client_name(),
                       .started_ns = head_started_ns_};
}

void Connection::Reject(HttpResponse response) {
  if (const auto logged = request_.method.empty() ? std::nullopt : Logged())
    LogRequest(*logged, response.status, /*has_failed=*/true);
  response.close = true;
  parser_.reset();  // with what came of the body, which nobody waits for any more
  body_charge_.Release();
  SendWhole(std::move(response));
}

// --- Reading -------------------------------------------------------------------------------------

void Connection::ReadRequest() {
  if (thread().draining) return Close();
  if (buffer_.size() > 0) return ReadHead();
  ShrinkBuffer();
  ExpireAfter(read_deadline_, context_->options.idle_timeout);
  ReadAhead();
}

void Connection::ReadHead() {
  reading_head_or_body_ = true;
  is_head_ = false;
  head_started_ns_ = Clock::System().NowNs();
  ++thread().num_done;
  num_chunks_ = 0;
  num_head_bytes_ = 0;
  parser_.emplace();
  parser_->eager(false);  // it stops behind the head
  parser_->header_limit(static_cast<uint32_t>(context_->options.max_header_bytes));
  parser_->body_limit(std::numeric_limits<uint64_t>::max());  // OnHead sets it
  parser_->on_chunk_header(on_chunk_);
  ExpireAfter(read_deadline_, context_->options.header_timeout);
  ParseHead();
}

void Connection::ParseHead() {
  ErrorCode ec;
  const asio::const_buffer bytes = buffer_.data();
  const size_t num_parsed = parser_->put(bytes, ec);
  if (!ec && context_->options.keeps_raw_values)  // all fields are parsed at once
    raw_head_.assign(static_cast<const char*>(bytes.data()), num_parsed);
  buffer_.consume(num_parsed);
  num_head_bytes_ += num_parsed;
  if (ec != http::error::need_more) return OnHead(ec);
  if (const Status room = ChargeRead(); !room.ok()) return Reject(Overloaded(room.message()));
  if (buffer_charge_.bytes() > 0) share()->SetWaiting(true);
  OnStream([this](auto& stream) {
    stream.async_read_some(buffer_.prepare(NextReadBytes()),
                           [self = self()](ErrorCode read_ec, size_t bytes) {
                             self->Guarded([&] { self->OnHeadBytes(read_ec, bytes); });
                           });
  });
}

void Connection::OnHeadBytes(ErrorCode ec, size_t bytes) {
  if (is_closed()) return;
  if (ec) return FailRequest(ec);
  buffer_.commit(bytes);
  ParseHead();
}

void Connection::OnHead(ErrorCode ec) {
  if (ec) return FailRequest(ec);
  const auto& head = parser_->get();
  request_ = {};
  request_.method = std::string(head.method_string());
  request_.target = std::string(head.target());
  request_.headers.reserve(static_cast<size_t>(std::distance(head.begin(), head.end())));
  for (const auto& field : head) {
    request_.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  if (context_->options.keeps_raw_values)
    request_.raw_values = RawValues(std::exchange(raw_head_, {}), request_.headers);
  is_head_ = head.method() == http::verb::head;
  if (const auto fault = FindFramingFault(head)) {
    HttpResponse refusal = context_->handler.BadRequest(fault->reason);
    refusal.status = fault->status;
    return Reject(std::move(refusal));
  }
  is_http10_ = head.version() < 11;
  keep_alive_ = parser_->keep_alive();

  const bool brings_much = parser_->content_length().value_or(
                               parser_->is_done() ? 0 : kUnreadBodyBytes + 1) > kUnreadBodyBytes;
  if (brings_much) {
    if (auto refusal = context_->handler.RefuseHead(request_)) return Reject(*std::move(refusal));
  }
  const uint64_t limit = context_->handler.MaxBodyBytes(request_);
  if (const auto length = parser_->content_length(); length && *length > limit) {
    return Reject(context_->handler.BodyTooLarge(request_, *length));
  }
  parser_->body_limit(limit);
  body_charge_ = MemoryCharge(share());
  num_body_bytes_ = 0;
  if (parser_->chunked()) {  // heads of chunks and trailers may fill the buffer within one read
    const Status room = ChargeBuffer(buffer_.max_size());
    if (!room.ok()) return Reject(Overloaded(room.message()));
  }
  ExpireAfter(read_deadline_, context_->options.body_timeout);
  const std::string* expect = request_.FindHeader("Expect");
  if (!parser_->is_done() && !is_http10_ && expect != nullptr &&
      EqualInAnyCase(*expect, "100-continue")) {
    return OnStream([this](auto& stream) {
      asio::async_write(stream, asio::buffer(kContinue),
                        [self = self()](ErrorCode write_ec, size_t) {
                          self->Guarded([&] { write_ec ? self->Close() : self->ReadBody(); });
                        });
    });
  }
  ReadBody();
}

void Connection::ReadBody() {
  if (is_closed()) return;
  if (parser_->is_done()) return Dispatch();
  // What came extends the deadline, which is never further away than body_timeout.
  const size_t size = parser_->get().body().size();
  read_deadline_ = std::min(
      read_deadline_ +
          std::chrono::nanoseconds((size - std::exchange(num_body_bytes_, size)) * kNsPerBodyByte),
      SteadyNow() + context_->options.body_timeout);
  if (const Status status = ChargeBody(); !status.ok()) {
    return Reject(Overloaded(status.message()));
  }
  share()->SetWaiting(true);
  OnStream([this](auto& stream) {
    http::async_read_some(stream, buffer_, *parser_, [self = self()](ErrorCode ec, size_t) {
      self->Guarded([&] { self->OnBody(ec); });
    });
  });
}

void Connection::OnBody(ErrorCode ec) {
  if (is_closed()) return;
  if (ec == http::error::body_limit) {
    return Reject(context_->handler.BodyTooLarge(request_, std::nullopt));
  }
  if (ec == boost::system::errc::not_enough_memory) {
    parser_->get().body() = {};
    return Reject(Overloaded(NoMemoryFor("the body").message()));
  }
  if (ec) return FailRequest(ec);
  ReadBody();
}

// Before the next read, for what the body takes after it, and for a long head beside it.
Status Connection::ChargeBody() {
  std::optional<size_t> length;
  if (const auto announced = parser_->content_length()) length = *announced;
  const size_t capacity = GrowingBody::CapacityFor(parser_->get().body(), kMaxReadBytes, length);
  return body_charge_.Reserve(capacity + (num_head_bytes_ > kReadBytes ? 2 * num_head_bytes_ : 0));
}

// What the buffer has room for, else some more.
size_t Connection::NextReadBytes() const {
  constexpr size_t kLeast = 512;
  const size_t room = buffer_.capacity() - buffer_.size();
  return room >= kLeast ? room : std::min(kReadBytes, buffer_.max_size() - buffer_.size());
}

// Before the next read: a buffer that has no room grows to twice its bytes, or by what is read.
Status Connection::ChargeRead() {
  const size_t size = buffer_.size();
  const size_t needed = size + NextReadBytes();
  return ChargeBuffer(needed <= buffer_.capacity() ? buffer_.capacity()
                                                   : std::max(needed, 2 * size));
}

Status Connection::ChargeBuffer(size_t bytes) {
  if (bytes <= kReadBytes) return Status::Ok();
  if (buffer_charge_.share() == nullptr) buffer_charge_ = MemoryCharge(share());
  return buffer_charge_.Reserve(bytes);
}

// To that of an idle connection, when it is empty and nothing is read into it.
void Connection::ShrinkBuffer() {
  if (buffer_charge_.bytes() == 0 || buffer_.size() > 0) return;
  buffer_.shrink_to_fit();
  buffer_charge_.Release();
}

void Connection::FailRequest(ErrorCode ec) {
  if (IsDisconnect(ec)) return Close();
  std::string reason = "malformed HTTP request: " + ec.message();
  if (num_chunks_ > context_->options.max_chunks) {
    reason = "Chunked request body exceeds maximum of " +
             std::to_string(context_->options.max_chunks) + " chunks";
  } else if (ec == http::error::header_limit) {
    reason = "request head exceeds maximum of " +
             std::to_string(context_->options.max_header_bytes) + " bytes";
  } else if (ec == http::error::buffer_overflow) {
    reason = "the head of a chunk, or the trailers, exceed the maximum of " +
             std::to_string(buffer_.max_size()) + " bytes";
  }
  Reject(context_->handler.BadRequest(reason));
}

void Connection::Dispatch() {
  reading_head_or_body_ = false;
  read_deadline_ = Deadline::max();
  share()->SetWaiting(false);
  auto& body = parser_->get().body();
  if (!body.empty()) {
    request_.body = Charged(std::move(body), std::move(body_charge_));
  }
  body_charge_.Release();  // of a chunked body without bytes
  request_.client = client_name();
  request_.memory = share();
  request_.receive_started_ns = head_started_ns_;
  request_.received_ns = Clock::System().NowNs();
  parser_.reset();
  std::optional<LoggedRequest> logged = Logged();
  if (logged) request_.tally = logged->tally;
  exchange_ = std::make_shared<Exchange>(self(), std::move(logged));
  auto responder = std::make_shared<Responder>(exchange_);
  ShrinkBuffer();
  ReadAhead();
  try {
    context_->handler.Handle(std::move(request_), std::move(responder));
  } catch (const std::exception& e) {  // the dropped responder has answered
    logging::Error("request handler failed", {{"error", e.what()}});
  }
}

// The pending read of an idle or running connection: the next request's first bytes, or the end.
// There is always room for one into an empty buffer; else what has none is read after the answer.
void Connection::ReadAhead() {
  if (!ChargeRead().ok()) return;
  reading_ahead_ = true;
  OnStream([this](auto& stream) {
    stream.async_read_some(buffer_.prepare(NextReadBytes()),
                           [self = self()](ErrorCode ec, size_t bytes) {
                             self->Guarded([&] { self->OnReadAhead(ec, bytes); });
                           });
  });
}

void Connection::OnReadAhead(ErrorCode ec, size_t bytes) {
  reading_ahead_ = false;
  if (is_closed()) return;
  if (lingering_) return ec ? Close() : ReadAhead();  // into the same bytes, read by nobody
  buffer_.commit(bytes);
  const bool interrupted = ec == asio::error::operation_aborted;  // by FinishExchange
  if (ec && !interrupted) return Close();
  if (!exchange_ && !writing_) return ReadHead();
  if (buffer_.size() < kMaxPipelinedBytes) ReadAhead();
}

// --- Writing -------------------------------------------------------------------------------------

void Connection::SendWhole(HttpResponse response, MemoryCharge charge) {
  if (is_closed()) return;
  response_ = std::move(response);
  response_charge_ = std::move(charge);
  if (response_.close || thread().draining) keep_alive_ = false;

  head_ = FormatHead(response_.status, response_.headers);
  if (response_.status != kNoContent && response_.status != kNotModified) {  // RFC 9110, 8.6
    head_.append("Content-Length: ").append(std::to_string(response_.num_bytes())).append("\r\n");
  }
  if (!keep_alive_) {
    head_.append("Connection: close\r\n");
  } else if (is_http10_) {
    head_.append("Connection: keep-alive\r\n");
  }
  head_.append("\r\n");

  if (tls() != nullptr && !is_head_ && head_.size() + response_.num_bytes() <= kMaxRecordBytes) {
    JoinInto(response_, head_);  // TLS writes a buffer at a time, each in a record of its own
  }
  write_buffers_ = {asio::buffer(head_)};
  if (!is_head_) {
    write_buffers_.push_back(asio::buffer(response_.body));
    for (const Segment& segment : response_.segments) {
      write_buffers_.emplace_back(segment.data.data(), segment.data.size());
    }
  }
  last_write_ = true;
  WriteSome();
}

// Called from any thread, by StartStream; reads only what is constant while an exchange runs.
std::string Connection::StreamHead(int status, const Headers& headers) const {
  std::string head = FormatHead(status, headers);
  if (!is_http10_) head.append("Transfer-Encoding: chunked\r\n");
  if (!keep_alive_ || is_http10_) head.append("Connection: close\r\n");
  return head.append("\r\n");
}

void Connection::FlushStream() {
  if (is_closed() || writing_) return;
  last_write_ = exchange_->TakePending(chunks_);
  if (is_http10_) keep_alive_ = false;
  if (chunks_.empty()) {
    if (last_write_) FinishExchange();
    return;
  }
  const size_t num_written = tls() == nullptr ? WriteAtOnce(chunks_) : 0;
  if (num_written == chunks_.size()) {  // what came meanwhile has scheduled a flush of its own
    if (last_write_) FinishExchange();
    return;
  }
  write_buffers_ = {asio::buffer(chunks_) + num_written};
  WriteSome();
}

// Of `bytes` what the system takes without waiting; of a socket that has failed none, so that the
// write behind it tells.
size_t Connection::WriteAtOnce(std::string_view bytes) {
  ErrorCode ec;
  const size_t num_written = socket().write_some(asio::buffer(bytes.data(), bytes.size()), ec);
  return ec ? 0 : num_written;
}

void Connection::WriteSome() {
  writing_ = true;
  share()->SetWaiting(true);
  ExpireAfter(write_deadline_, context_->options.write_timeout);
  OnStream([this](auto& stream) {
    stream.async_write_some(std::span<const asio::const_buffer>(write_buffers_),
                            [self = self()](ErrorCode ec, size_t bytes) {
                              self->Guarded([&] { self->OnWritten(ec, bytes); });
                            });
  });
}

void Connection::OnWritten(ErrorCode ec, size_t bytes) {
  if (is_closed()) return;
  if (ec) return Close();
  auto it = write_buffers_.begin();
  while (it != write_buffers_.end() && bytes >= it->size()) bytes -= (it++)->size();
  write_buffers_.erase(write_buffers_.begin(), it);
  if (!write_buffers_.empty()) {
    write_buffers_.front() += bytes;
    return WriteSome();
  }
  writing_ = false;
  share()->SetWaiting(false);
  write_deadline_ = Deadline::max();
  if (last_write_) return FinishExchange();
  FlushStream();
}

void Connection::FinishExchange() {
  if (exchange_) std::exchange(exchange_, nullptr)->MarkDone();
  ++thread().num_done;
  std::string().swap(chunks_);  // an assignment would keep the room, which nothing is charged for
  std::string().swap(response_.body);
  response_ = {};
  response_charge_.Release();
  if (!keep_alive_ || thread().draining) return Linger();
  if (!reading_ahead_) return ReadRequest();
  if (buffer_.size() == 0) return ExpireAfter(read_deadline_, context_->options.idle_timeout);
  // A pipelined request lies in the buffer, and perhaps its rest will never come: stop waiting for
  // more, and OnReadAhead goes on with what is there.
  ErrorCode ignored;
  socket().cancel(ignored);
}

// Says that no more comes, so that the end of an answer cannot be forged, and reads what the client
// still sends as bytes: they are for nobody.
void Connection::LingerOverTls() {
  if (exchange_) return Close();
  ExpireAfter(read_deadline_, kLinger);
  lingering_ = true;
  tls()->async_shutdown([self = self()](ErrorCode) {
    if (!self->is_closed()) self->DiscardRest();
  });
}

void Connection::DiscardRest() {
  buffer_.consume(buffer_.size());
  socket().async_read_some(buffer_.prepare(kReadBytes), [self = self()](ErrorCode ec, size_t) {
    if (self->is_closed()) return;
    ec ? self->Close() : self->DiscardRest();
  });
}

// Closing at once while the client still sends would make its system throw our answer away.
void Connection::Linger() {
  if (tls() != nullptr) return LingerOverTls();
  ErrorCode ec;
  socket().shutdown(tcp_listener::Socket::shutdown_send, ec);
  if (ec || exchange_) return Close();
  ExpireAfter(read_deadline_, kLinger);
  lingering_ = true;
  if (reading_ahead_) return;
  buffer_.consume(buffer_.size());  // it may be full, and nobody reads it any more
  ReadAhead();
}

void Connection::ExpireAfter(Deadline& deadline, std::chrono::milliseconds duration) {
  deadline = duration.count() == 0 ? Deadline::max() : SteadyNow() + duration;
}

}  // namespace inflight::http_listener
