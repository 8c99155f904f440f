// SPDX-License-Identifier: Apache-2.0
#include "protocol/grpc_listener/stream.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "protocol/grpc_listener/session.h"

namespace inflight::grpc_listener {
namespace {

constexpr char kAccepted[] = "identity, deflate, gzip";
constexpr size_t kLargeBytes = 256 * 1024;  // of a message; parsing more keeps others waiting

nghttp2_nv Field(std::string_view name, std::string_view value) {
  return {reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
          reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(),
          NGHTTP2_NV_FLAG_NONE};
}

// What nghttp2 found no memory for was not done, and would never be told: a call without an end.
void Require(int result) {
  if (result == NGHTTP2_ERR_NOMEM) throw std::bad_alloc();
}

// nghttp2 resets a stream that cannot be filled.
ssize_t FillFrame(nghttp2_session*, int32_t, uint8_t* out, size_t size, uint32_t* flags,
                  nghttp2_data_source* source, void*) {
  try {
    return static_cast<Stream*>(source->ptr)->Fill(out, size, flags);
  } catch (const std::exception&) {
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  }
}

}  // namespace

void Head::Add(std::string_view name, std::string_view value) {
  if (name == ":method") {
    method = value;
  } else if (name == ":path") {
    path = value;
  } else if (name == "content-type") {
    content_type = value;
  } else if (name == "grpc-timeout") {
    timeout = value;
  } else if (name == "grpc-encoding") {
    encoding = value;
  } else if (name == "grpc-accept-encoding") {
    accepted_codings = ParseAcceptedCodings(value);
  } else if (!name.starts_with(':') && name != "te") {
    metadata.emplace_back(name, value);
  }
}

Stream::Stream(Session& session, std::shared_ptr<SessionThread> thread, int32_t id)
    : session_(&session),
      thread_(std::move(thread)),
      id_(id),
      client_(session.client_),
      share_(session.share_),
      out_charge_(share_) {}

// --- from any thread ---

void Stream::Post(std::function<void()> task) {
  try {
    thread_->Post(std::move(task));
  } catch (const std::bad_alloc&) {
    Lose();
  }
}

// What was to happen cannot be told to the I/O thread, which ends the call when it looks
// (Session::OnDue): that takes no memory.
void Stream::Lose() {
  {
    const std::lock_guard lock(mutex_);
    is_finished_late_ = true;
    if (!is_gone_) {
      if (!is_lost_.exchange(true)) ++thread_->num_lost;
      return;
    }
  }
  TellDone();
}

void Stream::Read() {
  const auto read = [this] {
    reads_ = true;
    Tell();
  };
  if (thread_->IsThis()) return read();
  Post([self = shared_from_this(), read] { read(); });
}

void Stream::Write(std::string message) {
  if (!thread_->IsThis()) {
    return Post([self = shared_from_this(), shared = std::make_shared<std::string>(std::move(
                                                message))] { self->Write(std::move(*shared)); });
  }
  if (is_over_ || end_) return;
  if (const Status room = out_charge_.Resize(message.size()); !room.ok()) {
    return Fail(ResourceExhausted(room.message()));
  }
  CHECK(!writes_);
  writes_ = true;
  out_ = std::move(message);
  num_sent_ = 0;
  CountWaiting();
  if (!has_head_) return SubmitHead();
  Resume();
}

void Stream::Finish(Status status, std::string message) {
  if (thread_->IsThis()) return DoFinish(std::move(status), std::move(message));
  try {
    const auto both =
        std::make_shared<std::pair<Status, std::string>>(std::move(status), std::move(message));
    if (thread_->Post([self = shared_from_this(), both] {
          self->DoFinish(std::move(both->first), std::move(both->second));
        })) {
      return;
    }
  } catch (const std::bad_alloc&) {
    return Lose();
  }
  {
    const std::lock_guard lock(mutex_);
    if (!is_gone_) {
      is_finished_late_ = true;
      return;
    }
  }
  TellDone();
}

// --- on the I/O thread ---

void Stream::CountWaiting() {
  const bool waits =
      !is_over_ && ((reader_ && reader_->IsWithinMessage()) || num_sent_ < out_.size());
  if (std::exchange(is_waiting_, waits) == waits || session_ == nullptr) return;
  session_->num_waiting_ += waits ? 1 : -1;
}

void Stream::OnHeadComplete() {
  if (session_->context_.options.request_log)
    logged_ = LoggedRequest{.method = "gRPC",
                            .path = head_.path,
                            .client = client_,
                            .started_ns = Clock::System().NowNs()};
  Coding coding = Coding::kIdentity;
  if (head_.method != "POST" || !head_.content_type.starts_with("application/grpc")) {
    const char* status = head_.method != "POST" ? "405" : "415";
    const nghttp2_nv fields[] = {Field(":status", status)};
    Require(nghttp2_submit_response(session_->session_, id_, fields, 1, nullptr));
    has_ended_ = is_over_ = true;
    return;
  }
  if (!head_.encoding.empty()) {
    const auto parsed = ParseCoding(head_.encoding);
    if (!parsed) {
      return Fail(Unimplemented("grpc-encoding: got '" + head_.encoding +
                                "', supported are identity, gzip and deflate"));
    }
    coding = *parsed;
  }
  if (!head_.timeout.empty()) {
    const auto timeout = ParseTimeout(head_.timeout);
    if (!timeout) {
      return Fail(Internal("grpc-timeout: got '" + head_.timeout +
                           "', it has up to 8 digits and a unit of H M S m u n"));
    }
    deadline_ = session_->now_ + std::chrono::duration_cast<Time::duration>(*timeout);
    session_->AddDeadline(deadline_);
  }
  reader_.emplace(share_, coding, session_->context_.options.max_message_bytes);
  Tell();
}

void Stream::OnData(std::string_view bytes) {
  num_unconsumed_ += bytes.size();
  if (!is_over_ && !end_ && reader_) {
    if (Status status = reader_->Add(bytes); !status.ok()) Fail(std::move(status));
  }
  // What waits behind a message holds the window, so that no more comes than fits into it.
  if (is_over_ || !reader_ || !reader_->HasBacklog()) {
    nghttp2_session_consume_stream(session_->session_, id_, std::exchange(num_unconsumed_, 0));
  }
  if (reads_ && reader_ && reader_->HasMessage()) Tell();
  CountWaiting();
}

void Stream::OnHalfClose() {
  is_half_closed_ = true;
  Tell();
}

void Stream::OnExpired() {
  deadline_ = Time::max();
  if (!is_over_ && !end_) Fail(DeadlineExceeded("Deadline Exceeded"));
}

void Stream::OnClosed() {
  if (!is_over_ && !has_ended_) is_cancelled_ = true;
  is_over_ = true;
  deadline_ = Time::max();
  out_ = {};
  out_charge_.Release();
  reader_.reset();
  CountWaiting();
  session_ = nullptr;
}

void Stream::OnFlushed() {
  is_sent_ = true;
  if (is_finished_) TellDone();
}

void Stream::OnMessageSent() {
  is_written_ = true;
  out_ = {};
  num_sent_ = 0;
  out_charge_.Release();
  Tell();
}

// A reactor may end the call in any of its methods.
bool Stream::TellReactor() {
  const auto reactor = reactor_;
  if (std::exchange(is_cancelled_, false) && reactor != nullptr) {
    reactor->OnCancel();
    if (is_finished_ && session_ == nullptr) TellDone();
    return true;
  }
  if (session_ == nullptr) SetGone();
  if (is_over_ || end_) return false;
  if (reactor == nullptr) {
    reactor_ = session_->context_.handler.Start(shared_from_this());
    return true;
  }
  if (std::exchange(is_written_, false)) {
    writes_ = false;
    reactor->OnWritten();
    return true;
  }
  if (!reads_) return false;
  if (reader_->HasMessage()) {
    GiveMessage(reactor);
    return true;
  }
  if (!is_half_closed_) return false;
  reads_ = false;
  reactor->OnHalfClose();
  return true;
}

void Stream::GiveMessage(const std::shared_ptr<RpcReactor>& reactor) {
  reads_ = false;
  read_started_ns_ = reader_->started_ns();
  Status status;
  RpcMessage message = reader_->Take(status);
  if (!reader_->HasBacklog() && num_unconsumed_ > 0) {
    nghttp2_session_consume_stream(session_->session_, id_, std::exchange(num_unconsumed_, 0));
  }
  if (message.coding == Coding::kIdentity && message.bytes.size() <= kLargeBytes) {
    reactor->OnMessage(std::move(message));
  } else {
    session_->context_.run_elsewhere([self = shared_from_this(), reactor,
                                      shared = std::make_shared<RpcMessage>(std::move(message))] {
      try {
        reactor->OnMessage(std::move(*shared));
      } catch (const std::bad_alloc&) {
        self->Lose();
      } catch (const std::exception& e) {
        self->Post([self, status = Internal(e.what())] { self->Abandon(status); });
      }
    });
  }
  if (!status.ok()) Fail(std::move(status));
  CountWaiting();
}

void Stream::SetGone() {
  {
    const std::lock_guard lock(mutex_);
    is_gone_ = true;
    is_finished_ = is_finished_ || is_finished_late_;
  }
  if (is_finished_) TellDone();
}

void Stream::Abandon(Status status) {
  Fail(std::move(status));
  is_finished_ = true;
  if (session_ == nullptr || is_sent_) TellDone();
}

void Stream::DoFinish(Status status, std::string message) {
  is_finished_ = true;
  if (is_over_ || IsEndOnItsWay()) {  // nothing is to be sent, or the listener's own end
    if (session_ == nullptr || is_sent_) TellDone();
    return;
  }
  if (!message.empty()) {
    if (const Status room = out_charge_.Resize(message.size()); !room.ok()) {
      message = {};
      status = ResourceExhausted(room.message());
    } else {
      out_ = std::move(message);
      num_sent_ = 0;
    }
  }
  end_ = std::move(status);
  CountWaiting();
  if (!has_head_ && out_.empty()) return SubmitOnlyTrailers();
  if (!has_head_) return SubmitHead();
  Resume();
}

void Stream::Fail(Status status) {
  if (is_over_ || IsEndOnItsWay()) return;
  is_cancelled_ = reactor_ != nullptr;
  end_ = std::move(status);
  reader_.reset();
  CountWaiting();
  Tell();
  if (!has_head_) {
    SubmitOnlyTrailers();
  } else if (num_sent_ == 0 || num_sent_ == out_.size()) {
    out_ = {};
    num_sent_ = 0;
    Resume();
  } else {  // within a message, where no status fits
    Require(nghttp2_submit_rst_stream(session_->session_, NGHTTP2_FLAG_NONE, id_, NGHTTP2_CANCEL));
  }
}

void Stream::Resume() {
  if (!is_deferred_) return;
  Require(nghttp2_session_resume_data(session_->session_, id_));
  is_deferred_ = false;
}

void Stream::SubmitHead() {
  const nghttp2_nv fields[] = {Field(":status", "200"), Field("content-type", "application/grpc"),
                               Field("grpc-accept-encoding", kAccepted),
                               Field("grpc-encoding", NameOf(response_coding_))};
  const nghttp2_data_provider data = {.source = {.ptr = this}, .read_callback = FillFrame};
  const size_t num_fields = response_coding_ == Coding::kIdentity ? 3 : 4;
  Require(nghttp2_submit_response(session_->session_, id_, fields, num_fields, &data));
  has_head_ = true;
}

void Stream::SubmitTrailers() {
  const std::string code = std::to_string(static_cast<int>(end_->code()));
  const std::string message = PercentEncode(end_->message());
  const nghttp2_nv fields[] = {Field("grpc-status", code), Field("grpc-message", message)};
  Require(nghttp2_submit_trailer(session_->session_, id_, fields, message.empty() ? 1 : 2));
  has_ended_ = true;
}

void Stream::SubmitOnlyTrailers() {
  const std::string code = std::to_string(static_cast<int>(end_->code()));
  const std::string message = PercentEncode(end_->message());
  const nghttp2_nv fields[] = {Field(":status", "200"), Field("content-type", "application/grpc"),
                               Field("grpc-accept-encoding", kAccepted), Field("grpc-status", code),
                               Field("grpc-message", message)};
  Require(
      nghttp2_submit_response(session_->session_, id_, fields, message.empty() ? 4 : 5, nullptr));
  has_head_ = has_ended_ = true;
}

ssize_t Stream::Fill(uint8_t* out, size_t size, uint32_t* flags) {
  const size_t count = std::min(size, out_.size() - num_sent_);
  std::memcpy(out, out_.data() + num_sent_, count);
  num_sent_ += count;
  if (num_sent_ < out_.size()) return static_cast<ssize_t>(count);
  if (end_) {
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    SubmitTrailers();
  } else if (count == 0) {
    is_deferred_ = true;
    return NGHTTP2_ERR_DEFERRED;
  }
  if (writes_ && !is_written_ && count > 0) OnMessageSent();
  CountWaiting();
  return static_cast<ssize_t>(count);
}

void Stream::Tell() {
  if (session_ != nullptr) session_->told_next_.push_back(shared_from_this());
}

void Stream::TellDone() {
  const auto reactor = std::exchange(reactor_, nullptr);
  if (reactor == nullptr) return;
  reactor->OnDone();
  if (!logged_) return;
  const StatusCode code = end_ ? end_->code() : StatusCode::kCancelled;
  LogRequest(*logged_, static_cast<int>(code), code != StatusCode::kOk);
}

}  // namespace inflight::grpc_listener
