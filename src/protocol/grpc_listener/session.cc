// SPDX-License-Identifier: Apache-2.0
#include "protocol/grpc_listener/session.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace inflight::grpc_listener {
namespace {

constexpr uint32_t kStreamWindow = 1 << 20;      // bytes that a client may send ahead, of a call
constexpr int32_t kConnectionWindow = 16 << 20;  // and of all
constexpr uint32_t kMaxFrameBytes = 64 * 1024;
constexpr uint32_t kMaxHeadBytes = 16 * 1024;
constexpr size_t kBytesOfAField = 32;   // besides its texts, RFC 9113, section 6.5.2
constexpr size_t kBytesOfACall = 1024;  // besides its head, about
constexpr int kResetsAtOnce = 1000;
constexpr int kResetsPerSecond = 500;

struct Options {
  Options() {
    CHECK(nghttp2_option_new(&options) == 0);
    nghttp2_option_set_no_auto_window_update(options, 1);
    nghttp2_option_set_no_closed_streams(options, 1);
    // Clients of gRPC may send metadata with blanks at their ends.
    nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(options, 1);
    nghttp2_option_set_stream_reset_rate_limit(options, kResetsAtOnce, kResetsPerSecond);
  }
  ~Options() { nghttp2_option_del(options); }
  nghttp2_option* options = nullptr;
};

Status CaughtInCall(const std::exception& e) {
  logging::Error("a gRPC call failed", {{"error", e.what()}});
  return Caught("request failed", e);
}

// Exceptions do not pass through nghttp2, which is C: the call that one concerns ends, or, where
// there is none, the connection.
template <typename Do>
int Guarded(Stream* stream, Do act) {
  try {
    act();
    return 0;
  } catch (const std::exception& e) {
    if (stream == nullptr) return NGHTTP2_ERR_CALLBACK_FAILURE;
    try {
      stream->Fail(CaughtInCall(e));
      return 0;
    } catch (const std::exception&) {
      return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
  }
}

}  // namespace

struct Session::Callbacks {
  static Stream* Of(nghttp2_session* session, int32_t id) {
    return static_cast<Stream*>(nghttp2_session_get_stream_user_data(session, id));
  }

  static int OnBeginHeaders(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    return Guarded(nullptr, [&] {
      auto* self = static_cast<Session*>(user);
      const int32_t id = frame->hd.stream_id;
      const auto stream = std::make_shared<Stream>(*self, self->thread_.lock(), id);
      self->streams_.emplace(id, stream);
      nghttp2_session_set_stream_user_data(session, id, stream.get());
    });
  }

  // Trailers of clients say nothing.
  static int OnHeader(nghttp2_session* session, const nghttp2_frame* frame, const uint8_t* name,
                      size_t name_size, const uint8_t* value, size_t value_size, uint8_t, void*) {
    Stream* stream = Of(session, frame->hd.stream_id);
    if (stream == nullptr || frame->hd.type != NGHTTP2_HEADERS ||
        frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
      return 0;
    }
    Head& head = stream->head();
    head.num_bytes += name_size + value_size + kBytesOfAField;
    if (head.num_bytes > kMaxHeadBytes) return 0;
    return Guarded(stream, [&] {
      head.Add({reinterpret_cast<const char*>(name), name_size},
               {reinterpret_cast<const char*>(value), value_size});
    });
  }

  static int OnFrame(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
    auto* self = static_cast<Session*>(user);
    const bool is_ack = (frame->hd.flags & NGHTTP2_FLAG_ACK) != 0;
    if (frame->hd.type == NGHTTP2_PING && is_ack) self->keepalive_.OnPingAnswered();
    if (frame->hd.type == NGHTTP2_PING && !is_ack) self->OnPing();
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
    Stream* stream = Of(session, frame->hd.stream_id);
    if (stream == nullptr) return 0;
    return Guarded(stream, [&] {
      if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        self->OnHead(*stream);
      }
      if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) stream->OnHalfClose();
    });
  }

  static int OnData(nghttp2_session* session, uint8_t, int32_t id, const uint8_t* data, size_t size,
                    void*) {
    nghttp2_session_consume_connection(session, size);
    Stream* stream = Of(session, id);
    if (stream == nullptr) return 0;
    return Guarded(stream, [&] { stream->OnData({reinterpret_cast<const char*>(data), size}); });
  }

  static int OnSent(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
    static_cast<Session*>(user)->keepalive_.OnDataSent();
    const Stream* stream = Of(session, frame->hd.stream_id);
    const bool is_end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (is_end && stream != nullptr && !stream->is_half_closed()) {  // it need not send the rest
      nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, stream->id(), NGHTTP2_NO_ERROR);
    }
    return 0;
  }

  static int OnStreamClose(nghttp2_session*, int32_t id, uint32_t error, void* user) {
    return Guarded(nullptr, [&] { static_cast<Session*>(user)->OnStreamClosed(id, error); });
  }

  static const nghttp2_session_callbacks* All() {
    static const nghttp2_session_callbacks* const all = [] {
      nghttp2_session_callbacks* made = nullptr;
      CHECK(nghttp2_session_callbacks_new(&made) == 0);
      nghttp2_session_callbacks_set_on_begin_headers_callback(made, OnBeginHeaders);
      nghttp2_session_callbacks_set_on_header_callback(made, OnHeader);
      nghttp2_session_callbacks_set_on_frame_recv_callback(made, OnFrame);
      nghttp2_session_callbacks_set_on_data_chunk_recv_callback(made, OnData);
      nghttp2_session_callbacks_set_on_frame_send_callback(made, OnSent);
      nghttp2_session_callbacks_set_on_stream_close_callback(made, OnStreamClose);
      return made;
    }();
    return all;
  }
};

Session::Session(const SessionContext& context, const std::shared_ptr<SessionThread>& thread,
                 std::string client, std::shared_ptr<AccountShare> share, Time now)
    : context_(context),
      thread_(thread),
      client_(std::move(client)),
      share_(std::move(share)),
      head_charge_(share_),
      now_(now),
      keepalive_(context.options.keepalive, now),
      resets_left_(kResetsAtOnce),
      resets_counted_at_(now) {
  static const Options options;
  if (nghttp2_session_server_new2(&session_, Callbacks::All(), this, options.options) != 0) {
    throw std::bad_alloc();
  }
  std::vector<nghttp2_settings_entry> settings = {
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindow},
      {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, kMaxFrameBytes},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kMaxHeadBytes}};
  if (const auto& max = context.options.max_concurrent_streams) {
    settings.push_back({NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, static_cast<uint32_t>(*max)});
  }
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
  nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kConnectionWindow);
}

Session::~Session() { nghttp2_session_del(session_); }

bool Session::Receive(std::string_view bytes, Time now) {
  now_ = now;
  keepalive_.OnReceived(now);
  const ssize_t taken = nghttp2_session_mem_recv(
      session_, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  return taken >= 0;
}

void Session::OnHead(Stream& stream) {
  const Head& head = stream.head();
  if (head.num_bytes > kMaxHeadBytes) {
    return stream.Fail(ResourceExhausted("the metadata of the call takes " +
                                         std::to_string(head.num_bytes) + " bytes, at most " +
                                         std::to_string(kMaxHeadBytes) + " are allowed"));
  }
  num_head_bytes_ += head.num_bytes + kBytesOfACall;
  if (const Status room = head_charge_.Reserve(num_head_bytes_); !room.ok()) {
    return stream.Fail(ResourceExhausted(room.message()));
  }
  stream.OnHeadComplete();
}

// Streams that end early are cheap for clients, and cost the server a call each ("rapid reset",
// CVE-2023-44487, and those that it is made to reset itself, CVE-2025-8671).
void Session::OnStreamClosed(int32_t id, uint32_t error) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  const std::shared_ptr<Stream> stream = found->second;
  told_next_.push_back(stream);  // first: where there is no memory the connection closes with it
  ended_.push_back(stream);
  streams_.erase(found);
  stream->OnClosed();
  if (streams_.empty()) {
    num_head_bytes_ = 0;
    head_charge_.Release();
  }
  if (error == NGHTTP2_NO_ERROR) return;
  const double seconds = std::chrono::duration<double>(now_ - resets_counted_at_).count();
  resets_counted_at_ = now_;
  resets_left_ = std::min<double>(kResetsAtOnce, resets_left_ + seconds * kResetsPerSecond) - 1;
  if (resets_left_ < 0) nghttp2_session_terminate_session(session_, NGHTTP2_ENHANCE_YOUR_CALM);
}

void Session::OnPing() {
  if (keepalive_.AllowsPing(now_, HasCalls())) return;
  static constexpr std::string_view kWhy = "too_many_pings";  // clients of gRPC look for it
  nghttp2_submit_goaway(
      session_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session_),
      NGHTTP2_ENHANCE_YOUR_CALM, reinterpret_cast<const uint8_t*>(kWhy.data()), kWhy.size());
  is_failed_ = true;
}

void Session::TellReactors() {
  while (!told_next_.empty()) {
    const std::shared_ptr<Stream> stream = std::move(told_next_.front());
    told_next_.pop_front();
    TellReactor(*stream);
  }
}

void Session::TellReactor(Stream& stream) {
  try {
    while (stream.TellReactor()) {
    }
  } catch (const std::exception& e) {
    stream.Abandon(CaughtInCall(e));
  }
}

bool Session::Send(std::string& out, size_t max_bytes) {
  while (out.size() < max_bytes) {
    out.reserve(out.size() + kMaxSentFrameBytes);  // a frame that has no room is not taken
    const uint8_t* data = nullptr;
    const ssize_t count = nghttp2_session_mem_send(session_, &data);
    if (count < 0) return false;
    if (count > 0) {
      out.append(reinterpret_cast<const char*>(data), static_cast<size_t>(count));
    } else if (told_next_.empty()) {
      break;
    }
    if (count == 0) TellReactors();
  }
  being_flushed_.insert(being_flushed_.end(), std::make_move_iterator(ended_.begin()),
                        std::make_move_iterator(ended_.end()));
  ended_.clear();
  return true;
}

void Session::OnFlushed() {
  for (const auto& stream : std::exchange(being_flushed_, {})) stream->OnFlushed();
}

void Session::GoAway() {
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE,
                        nghttp2_session_get_last_proc_stream_id(session_), NGHTTP2_NO_ERROR,
                        nullptr, 0);
}

void Session::Close() {
  for (const auto& [id, stream] : std::exchange(streams_, {})) {
    stream->OnClosed();
    TellReactor(*stream);
    stream->OnFlushed();
  }
  TellReactors();
  OnFlushed();
  for (const auto& stream : std::exchange(ended_, {})) stream->OnFlushed();
  head_charge_.Release();
}

bool Session::IsOver() const {
  return is_failed_ ||
         (nghttp2_session_want_read(session_) == 0 && nghttp2_session_want_write(session_) == 0);
}

bool Session::OnDue(Time now) {
  now_ = now;
  if (now >= next_deadline_) ExpireCalls(now);
  if (const auto thread = thread_.lock(); thread && thread->num_lost.exchange(0) > 0)
    EndLostCalls();
  if (now < keepalive_.due()) return true;
  switch (keepalive_.Next(now, HasCalls())) {
    case Keepalive::Action::kNone:
      return true;
    case Keepalive::Action::kPing:
      nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr);
      return true;
    case Keepalive::Action::kGoAway:
      GoAway();
      return true;
    case Keepalive::Action::kClose:
      return false;
  }
  return true;
}

void Session::EndLostCalls() {
  for (const auto& [id, stream] : streams_) {
    if (stream->is_lost()) {
      stream->Abandon(NoMemoryFor("the request"));
    }
  }
}

void Session::ExpireCalls(Time now) {
  next_deadline_ = Time::max();
  for (const auto& [id, stream] : streams_) {
    if (stream->deadline() <= now) stream->OnExpired();
    AddDeadline(stream->deadline());
  }
}

}  // namespace inflight::grpc_listener
