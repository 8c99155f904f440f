// SPDX-License-Identifier: Apache-2.0
#include "protocol/grpc_client/grpc_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "base/clock.h"
#include "base/percent_encoding.h"
#include "inflight/status.h"
#include "protocol/grpc_listener/wire.h"

namespace inflight::grpc_client {
namespace {

using grpc_listener::kPrefixBytes;

constexpr int32_t kWindowBytes = 256 << 20;  // that the server may send ahead
constexpr size_t kMaxOutBytes = 256 * 1024;
constexpr int64_t kExpiryNs = 100'000'000;  // between two looks at deadlines
constexpr time_t kHandshakeSeconds = 10;
constexpr int kCancelled = static_cast<int>(StatusCode::kCancelled);
constexpr int kUnknown = static_cast<int>(StatusCode::kUnknown);
constexpr int kDeadlineExceeded = static_cast<int>(StatusCode::kDeadlineExceeded);
constexpr int kUnavailable = static_cast<int>(StatusCode::kUnavailable);

int64_t NowNs() { return Clock::System().NowNs(); }

nghttp2_nv Field(std::string_view name, std::string_view value) {
  return {reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
          reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(),
          NGHTTP2_NV_FLAG_NONE};
}

void AppendFramed(std::string& out, std::string_view message) {
  const auto prefix =
      grpc_listener::MakePrefix(/*is_compressed=*/false, static_cast<uint32_t>(message.size()));
  out.append(prefix.data(), prefix.size()).append(message);
}

// Of the message whose prefix `bytes` begin with.
size_t LengthOf(std::string_view bytes) {
  grpc_listener::Prefix prefix;
  std::copy_n(bytes.begin(), prefix.size(), prefix.begin());
  return grpc_listener::LengthOf(prefix);
}

}  // namespace

struct GrpcClient::Call {
  CallId id;
  int32_t stream_id;
  GrpcListener* listener;
  int64_t deadline_ns;
  std::string out;  // messages that are to be sent
  size_t num_sent = 0;
  bool has_ended = false;  // no further messages are sent
  bool is_deferred = false;
  std::string in;
  std::optional<int> code;
  std::string message, http_status;
  bool is_closed = false;  // for HTTP/2
};

struct GrpcClient::Callbacks {
  static Call* Of(nghttp2_session* session, int32_t stream_id) {
    return static_cast<Call*>(nghttp2_session_get_stream_user_data(session, stream_id));
  }

  static int OnHeader(nghttp2_session* session, const nghttp2_frame* frame, const uint8_t* name,
                      size_t name_size, const uint8_t* value, size_t value_size, uint8_t, void*) {
    Call* call = Of(session, frame->hd.stream_id);
    if (call == nullptr) return 0;
    const std::string_view key(reinterpret_cast<const char*>(name), name_size);
    const std::string text(reinterpret_cast<const char*>(value), value_size);
    if (key == "grpc-status") call->code = std::atoi(text.c_str());
    if (key == "grpc-message") call->message = PercentDecode(text);
    if (key == ":status") call->http_status = text;
    return 0;
  }

  static int OnData(nghttp2_session* session, uint8_t, int32_t stream_id, const uint8_t* data,
                    size_t size, void* user) {
    if (Call* call = Of(session, stream_id)) {
      static_cast<GrpcClient*>(user)->Receive(*call, {reinterpret_cast<const char*>(data), size});
    }
    return 0;
  }

  static int OnStreamClose(nghttp2_session* session, int32_t stream_id, uint32_t error,
                           void* user) {
    Call* call = Of(session, stream_id);
    if (call == nullptr) return 0;
    call->is_closed = true;
    GrpcEnd end = {.code = call->code.value_or(kUnknown),
                   .message = call->message,
                   .is_from_server = call->code.has_value()};
    if (!call->code) {
      end.message = "HTTP " + call->http_status + ", " + nghttp2_http2_strerror(error);
    }
    static_cast<GrpcClient*>(user)->ended_.emplace_back(call->id, std::move(end));
    return 0;
  }

  static ssize_t Fill(nghttp2_session* session, int32_t stream_id, uint8_t* out, size_t size,
                      uint32_t* flags, nghttp2_data_source*, void*) {
    if (Of(session, stream_id) == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;  // ended
    Call& call = *Of(session, stream_id);
    const size_t count = std::min(size, call.out.size() - call.num_sent);
    std::copy_n(call.out.data() + call.num_sent, count, out);
    call.num_sent += count;
    if (call.num_sent < call.out.size()) return static_cast<ssize_t>(count);
    call.out.clear();
    call.num_sent = 0;
    if (call.has_ended) {
      *flags |= NGHTTP2_DATA_FLAG_EOF;
    } else if (count == 0) {
      call.is_deferred = true;
      return NGHTTP2_ERR_DEFERRED;
    }
    return static_cast<ssize_t>(count);
  }
};

GrpcClient::GrpcClient(std::string host, int port, bool is_tls)
    : host_(std::move(host)),
      port_(port),
      is_tls_(is_tls),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

GrpcClient::GrpcClient(Descriptor connected_socket)
    : host_("localhost"),
      port_(0),
      is_tls_(false),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      socket_(std::move(connected_socket)) {
  StartSession();
}

GrpcClient::~GrpcClient() { nghttp2_session_del(session_); }

bool GrpcClient::Connect() {
  if (session_ != nullptr) return true;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host_.c_str(), std::to_string(port_).c_str(), &hints, &found) != 0) return false;
  for (const addrinfo* at = found; at != nullptr && !socket_.ok(); at = at->ai_next) {
    Descriptor made(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (made.ok() && connect(made.get(), at->ai_addr, at->ai_addrlen) == 0) {
      socket_ = std::move(made);
    }
  }
  freeaddrinfo(found);
  if (!socket_.ok()) return false;
  const int on = 1;
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (is_tls_ && !ShakeHands()) {
    tls_ = nullptr;
    socket_ = {};
    return false;
  }
  StartSession();
  if (tls_ == nullptr || Take({})) return true;  // what came behind the handshake
  nghttp2_session_del(std::exchange(session_, nullptr));
  tls_ = nullptr;
  socket_ = {};
  return false;
}

// Waits for the server, as connecting does.
bool GrpcClient::ShakeHands() {
  const timeval limit = {.tv_sec = kHandshakeSeconds, .tv_usec = 0};
  setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  tls_ = std::make_unique<TlsPipe>(host_);
  std::string out;
  std::string plain;
  while (true) {
    const TlsPipe::State state = tls_->Shake(&out);
    while (!out.empty()) {
      const ssize_t taken = send(socket_.get(), out.data(), out.size(), MSG_NOSIGNAL);
      if (taken < 0) {
        connect_error_ = ", TLS: the connection was closed";
        return false;
      }
      out.erase(0, static_cast<size_t>(taken));
    }
    if (state == TlsPipe::State::kReady) return true;
    std::array<char, 16 * 1024> buffer;
    const ssize_t count = state == TlsPipe::State::kFailed
                              ? -1
                              : recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (count <= 0) {
      connect_error_ = ", TLS: " + tls_->error();
      return false;
    }
    tls_->Receive({buffer.data(), static_cast<size_t>(count)}, &plain);  // Shake goes on with it
  }
}

void GrpcClient::StartSession() {
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_session_callbacks_new(&callbacks);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, Callbacks::OnHeader);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, Callbacks::OnData);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, Callbacks::OnStreamClose);
  nghttp2_session_client_new(&session_, callbacks, this);
  nghttp2_session_callbacks_del(callbacks);
  const nghttp2_settings_entry window = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kWindowBytes};
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, &window, 1);
  nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kWindowBytes);
}

void GrpcClient::Disconnect(const std::string& why) {
  nghttp2_session_del(std::exchange(session_, nullptr));
  socket_ = {};
  tls_ = nullptr;
  out_.clear();
  for (const auto& [id, call] : calls_) ended_.emplace_back(id, GrpcEnd{kUnavailable, why});
}

GrpcClient::CallId GrpcClient::Start(const std::string& path, std::string_view message,
                                     bool is_only, GrpcListener& listener, int64_t deadline_ns,
                                     const Metadata& metadata) {
  const CallId id = ++last_id_;
  auto& call = *calls_.emplace(id, std::make_unique<Call>()).first->second;
  call = {.id = id,
          .stream_id = 0,
          .listener = &listener,
          .deadline_ns = deadline_ns,
          .out = {},
          .has_ended = is_only};
  connect_error_.clear();
  if (!Connect()) {
    ended_.emplace_back(id, GrpcEnd{kUnavailable, "cannot connect to " + host_ + connect_error_});
    return id;
  }
  AppendFramed(call.out, message);
  const std::string authority = host_ + ":" + std::to_string(port_);
  std::vector<nghttp2_nv> fields = {
      Field(":method", "POST"),       Field(":scheme", is_tls_ ? "https" : "http"),
      Field(":path", path),           Field(":authority", authority),
      Field("te", "trailers"),        Field("content-type", "application/grpc"),
      Field("user-agent", "inflight")};
  for (const auto& [name, value] : metadata) fields.push_back(Field(name, value));
  const nghttp2_data_provider data = {.source = {.ptr = nullptr}, .read_callback = Callbacks::Fill};
  call.stream_id =
      nghttp2_submit_request(session_, nullptr, fields.data(), fields.size(), &data, &call);
  if (call.stream_id < 0) ended_.emplace_back(id, GrpcEnd{kUnavailable, "no stream is left"});
  return id;
}

void GrpcClient::Write(CallId id, std::string_view message) {
  Call* call = Find(id);
  if (call == nullptr || session_ == nullptr) return;
  AppendFramed(call->out, message);
  if (std::exchange(call->is_deferred, false)) {
    nghttp2_session_resume_data(session_, call->stream_id);
  }
}

void GrpcClient::EndWrites(CallId id) {
  Call* call = Find(id);
  if (call == nullptr || session_ == nullptr) return;
  call->has_ended = true;
  if (std::exchange(call->is_deferred, false)) {
    nghttp2_session_resume_data(session_, call->stream_id);
  }
}

void GrpcClient::Cancel(CallId id) {
  if (Find(id) != nullptr) ended_.emplace_back(id, GrpcEnd{kCancelled, "cancelled"});
}

bool GrpcClient::Poll(int64_t until_ns) {
  has_told_ = false;
  is_woken_ = false;
  while (true) {
    Tell();
    const int64_t now_ns = NowNs();
    if (now_ns >= next_expiry_ns_) Expire(now_ns);
    if (session_ != nullptr && !Send()) Disconnect("the connection was lost");
    if (!ended_.empty()) continue;
    if (has_told_ || is_woken_ || now_ns >= until_ns) return has_told_;
    const int64_t timeout_ns = std::min(until_ns, next_expiry_ns_) - now_ns;
    if (!Receive(std::max<int64_t>(timeout_ns, 0))) Disconnect("the connection was lost");
  }
}

void GrpcClient::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

void GrpcClient::PollOnce() {
  Tell();
  Expire(NowNs());
  if (session_ != nullptr && !(Send() && Receive(0))) Disconnect("the connection was lost");
  Tell();
}

void GrpcClient::Tell() {
  for (const auto& [id, end] : std::exchange(ended_, {})) End(id, end);
}

bool GrpcClient::Send() {
  while (true) {
    while (out_.size() < kMaxOutBytes) {
      const uint8_t* data = nullptr;
      const ssize_t count = nghttp2_session_mem_send(session_, &data);
      if (count < 0) return false;
      if (count == 0) break;
      const std::string_view bytes(reinterpret_cast<const char*>(data), static_cast<size_t>(count));
      if (tls_ == nullptr)
        out_.append(bytes);
      else if (!tls_->Send(bytes, &out_))
        return false;
    }
    if (out_.empty()) return true;
    const ssize_t taken =
        send(socket_.get(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (taken < 0) return errno == EAGAIN || errno == EINTR;
    out_.erase(0, static_cast<size_t>(taken));
  }
}

bool GrpcClient::Receive(int64_t timeout_ns) {
  std::array<pollfd, 2> waited = {{{.fd = wake_.get(), .events = POLLIN, .revents = 0},
                                   {.fd = socket_.get(), .events = POLLIN, .revents = 0}}};
  const pollfd& ready = waited[1];
  if (!out_.empty()) waited[1].events |= POLLOUT;
  const timespec timeout = {.tv_sec = timeout_ns / 1'000'000'000,
                            .tv_nsec = timeout_ns % 1'000'000'000};
  ppoll(waited.data(), socket_.ok() ? 2 : 1, &timeout, nullptr);
  if (waited[0].revents != 0) {
    uint64_t num_wakes = 0;
    is_woken_ = read(wake_.get(), &num_wakes, sizeof num_wakes) > 0;
  }
  if (!socket_.ok() || (ready.revents & ~POLLOUT) == 0) return true;
  static thread_local std::array<char, 256 * 1024> buffer;
  const ssize_t count = recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  return count > 0 && Take({buffer.data(), static_cast<size_t>(count)});
}

bool GrpcClient::Take(std::string_view bytes) {
  std::string plain;
  bool is_open = true;
  if (tls_ != nullptr) {
    is_open = tls_->Receive(bytes, &plain);
    bytes = plain;  // what came before the end, too
  }
  const bool is_taken =
      bytes.empty() ||
      nghttp2_session_mem_recv(session_, reinterpret_cast<const uint8_t*>(bytes.data()),
                               bytes.size()) >= 0;
  return is_taken && is_open;
}

void GrpcClient::Receive(Call& call, std::string_view bytes) {
  if (!call.in.empty()) bytes = call.in.append(bytes);
  while (bytes.size() >= kPrefixBytes && bytes.size() >= kPrefixBytes + LengthOf(bytes)) {
    const size_t length = LengthOf(bytes);
    call.listener->OnMessage(bytes.substr(kPrefixBytes, length));
    has_told_ = true;
    bytes.remove_prefix(kPrefixBytes + length);
  }
  call.in = std::string(bytes);
}

void GrpcClient::End(CallId id, const GrpcEnd& end) {
  const auto found = calls_.find(id);
  if (found == calls_.end()) return;
  const std::unique_ptr<Call> call = std::move(found->second);
  calls_.erase(found);
  if (session_ != nullptr && call->stream_id > 0 && !call->is_closed) {  // perhaps not sent yet
    nghttp2_session_set_stream_user_data(session_, call->stream_id, nullptr);
    nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, call->stream_id, NGHTTP2_CANCEL);
  }
  has_told_ = true;
  call->listener->OnEnd(end);
}

void GrpcClient::Expire(int64_t now_ns) {
  next_expiry_ns_ = now_ns + kExpiryNs;
  for (const auto& [id, call] : calls_) {
    if (call->deadline_ns != 0 && now_ns >= call->deadline_ns) {
      ended_.emplace_back(id, GrpcEnd{kDeadlineExceeded, "Deadline Exceeded"});
    }
  }
}

GrpcClient::Call* GrpcClient::Find(CallId id) {
  const auto found = calls_.find(id);
  return found == calls_.end() ? nullptr : found->second.get();
}

GrpcAnswer CallOnce(GrpcClient& client, const std::string& path, std::string_view message,
                    int64_t timeout_ms) {
  struct Waiter : GrpcListener {
    void OnMessage(std::string_view bytes) override { answer.message = bytes; }
    void OnEnd(const GrpcEnd& end) override {
      answer.end = end;
      is_done = true;
    }
    GrpcAnswer answer;
    bool is_done = false;
  } waiter;
  const int64_t deadline_ns = NowNs() + timeout_ms * 1'000'000;
  client.Start(path, message, /*is_only=*/true, waiter, deadline_ns);
  while (!waiter.is_done) client.Poll(NowNs() + 1'000'000'000);
  return std::move(waiter.answer);
}

}  // namespace inflight::grpc_client
