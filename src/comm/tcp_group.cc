// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp_group.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "base/status_macros.h"

namespace inflight::comm {
namespace {

constexpr Deadline kNever = Deadline::max();

}  // namespace

TcpGroup::TcpGroup(int rank, std::vector<Descriptor> peers, std::unique_ptr<Watch> watch)
    : rank_(rank), peers_(std::move(peers)), watch_(std::move(watch)) {}

TcpGroup::~TcpGroup() {
  if (watch_ == nullptr) return;
  const uint64_t last = AsLength(watch_->last_notice());
  for (const Descriptor& peer : peers_)
    if (peer.ok()) send(peer.get(), &last, sizeof last, MSG_NOSIGNAL | MSG_DONTWAIT);
  watch_ = nullptr;  // before the connections end, which would look like a loss
}

Status TcpGroup::status() const { return watch_ == nullptr ? Status::Ok() : watch_->status(); }

void TcpGroup::Abort(const Status& reason) {
  if (watch_ == nullptr) return;
  watch_->End(reason, {.kind = Notice::kAborted, .rank = static_cast<uint32_t>(rank_)});
}

Status TcpGroup::CheckPeer(int rank) const {
  if (rank >= 0 && rank < size() && rank != rank_) return Status::Ok();
  return InvalidArgument(
      "rank", fmt::format("got {}, must be another than {} and below {}", rank, rank_, size()));
}

Status TcpGroup::Lost(int rank, std::string_view reason) {
  watch_->End(RankIsGone(rank, reason),
              {.kind = Notice::kGone, .rank = static_cast<uint32_t>(rank)});
  return status();
}

Result<bool> TcpGroup::Advance(Outgoing& out) {
  bool any = false;
  while (!out.finished()) {
    std::array<iovec, 2> parts;
    size_t count = 0;
    const auto length = std::as_writable_bytes(std::span(&out.length, 1));
    size_t body_done = 0;
    if (out.done < length.size()) {
      const auto rest = length.subspan(out.done);
      parts[count++] = {.iov_base = rest.data(), .iov_len = rest.size()};
    } else {
      body_done = out.done - length.size();
    }
    if (const auto rest = out.body.subspan(body_done); !rest.empty()) {
      parts[count++] = {.iov_base = const_cast<std::byte*>(rest.data()), .iov_len = rest.size()};
    }
    const msghdr message{.msg_name = nullptr,
                         .msg_namelen = 0,
                         .msg_iov = parts.data(),
                         .msg_iovlen = count,
                         .msg_control = nullptr,
                         .msg_controllen = 0,
                         .msg_flags = 0};
    const ssize_t sent = sendmsg(peers_[out.to].get(), &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return any;
    if (sent < 0) return Lost(out.to, std::generic_category().message(errno));
    out.done += static_cast<size_t>(sent);
    any = true;
  }
  return any;
}

Result<bool> TcpGroup::Advance(Incoming& in) {
  bool any = false;
  while (!in.finished()) {
    const auto rest = in.bytes.subspan(in.done);
    const ssize_t got = recv(peers_[in.from].get(), rest.data(), rest.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return any;
    if (got < 0) return Lost(in.from, std::generic_category().message(errno));
    if (got == 0) return Lost(in.from, "its connection is closed");
    in.done += static_cast<size_t>(got);
    any = true;
  }
  return any;
}

Status TcpGroup::WaitFor(const Outgoing* out, const Incoming* in, Deadline deadline) {
  std::array<pollfd, 3> polled = {{{.fd = watch_->over_fd(), .events = POLLIN, .revents = 0},
                                   {.fd = -1, .events = POLLOUT, .revents = 0},
                                   {.fd = -1, .events = POLLIN, .revents = 0}}};
  if (out != nullptr && !out->finished()) polled[1].fd = peers_[out->to].get();
  if (in != nullptr && !in->finished()) polled[2].fd = peers_[in->from].get();
  const int wait_ms = deadline == kNever ? -1 : MillisecondsUntil(deadline);
  const int ready = poll(polled.data(), polled.size(), wait_ms);
  if (ready < 0 && errno != EINTR)
    return Internal("poll: " + std::generic_category().message(errno));
  // What has come before the group was over is still received.
  if (polled[0].revents != 0 && polled[1].revents == 0 && polled[2].revents == 0)
    return watch_->status();
  if (ready == 0 && std::chrono::steady_clock::now() >= deadline)
    return DeadlineExceeded("no message has begun by the deadline");
  return Status::Ok();
}

// The deadline counts until the first byte has come: a message that has begun is received whole, or
// its sender is lost.
Status TcpGroup::Finish(Outgoing* out, Incoming* in, Deadline deadline) {
  while (true) {
    if (out != nullptr) RETURN_IF_ERROR(Advance(*out).status());
    if (in != nullptr) RETURN_IF_ERROR(Advance(*in).status());
    const bool sent = out == nullptr || out->finished();
    const bool received = in == nullptr || in->finished();
    if (sent && received) return Status::Ok();
    const bool begun = in != nullptr && in->done > 0;
    RETURN_IF_ERROR(WaitFor(out, in, begun ? kNever : deadline));
  }
}

Status TcpGroup::CheckLength(int from, uint64_t length) {
  if ((length & kNoticeBit) != 0) {
    const Notice notice = AsNotice(length);
    Status meaning = MeaningOf(notice, from);
    if (meaning.code() == StatusCode::kCancelled) return meaning;
    if (!meaning.ok()) watch_->End(meaning, notice);
    if (!meaning.ok()) return status();
  }
  if (length <= kMaxMessageBytes) return Status::Ok();
  Abort(DataLoss(fmt::format("rank {} announces a message of {} bytes, at most {} are allowed",
                             from, length, kMaxMessageBytes)));
  return status();
}

Status TcpGroup::Send(int rank, std::span<const std::byte> message) {
  RETURN_IF_ERROR(CheckPeer(rank));
  if (message.size() > kMaxMessageBytes)
    return InvalidArgument("message", fmt::format("got {} bytes, at most {} are allowed",
                                                  message.size(), kMaxMessageBytes));
  if (watch_->over()) return status();
  Outgoing out{.to = rank, .body = message, .length = message.size()};
  return Finish(&out, nullptr, kNever);
}

Result<std::vector<std::byte>> TcpGroup::Receive(int rank, Deadline deadline) {
  RETURN_IF_ERROR(CheckPeer(rank));
  uint64_t length = 0;
  Incoming head{.from = rank, .bytes = std::as_writable_bytes(std::span(&length, 1))};
  RETURN_IF_ERROR(Finish(nullptr, &head, deadline));
  RETURN_IF_ERROR(CheckLength(rank, length));
  std::vector<std::byte> message(length);
  Incoming body{.from = rank, .bytes = message};
  RETURN_IF_ERROR(Finish(nullptr, &body, kNever));
  return message;
}

Status TcpGroup::Exchange(int to, std::span<const std::byte> out, int from,
                          std::span<std::byte> in) {
  RETURN_IF_ERROR(CheckPeer(to));
  RETURN_IF_ERROR(CheckPeer(from));
  if (out.size() > kMaxMessageBytes)
    return InvalidArgument(
        "out", fmt::format("got {} bytes, at most {} are allowed", out.size(), kMaxMessageBytes));
  if (watch_->over()) return status();
  Outgoing outgoing{.to = to, .body = out, .length = out.size()};
  uint64_t length = 0;
  Incoming head{.from = from, .bytes = std::as_writable_bytes(std::span(&length, 1))};
  while (!head.finished()) {
    RETURN_IF_ERROR(Advance(outgoing).status());
    RETURN_IF_ERROR(Advance(head).status());
    if (!head.finished()) RETURN_IF_ERROR(WaitFor(&outgoing, &head, kNever));
  }
  RETURN_IF_ERROR(CheckLength(from, length));
  if (length != in.size()) {
    Abort(DataLoss(
        fmt::format("rank {} sent {} bytes where {} were awaited", from, length, in.size())));
    return status();
  }
  Incoming body{.from = from, .bytes = in};
  return Finish(&outgoing, &body, kNever);
}

}  // namespace inflight::comm
