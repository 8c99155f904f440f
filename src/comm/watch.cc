// SPDX-License-Identifier: Apache-2.0
#include "comm/watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/thread_boundary.h"
#include "base/thread_name.h"

namespace inflight::comm {
namespace {

constexpr std::chrono::milliseconds kLongestBeat{250};

void Raise(const Descriptor& event) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event.get(), &one, sizeof one);
}

}  // namespace

Status RankIsGone(int rank, std::string_view reason) {
  return Unavailable(fmt::format("rank {} is gone: {}", rank, reason));
}

Status MeaningOf(const Notice& notice, int from) {
  const int about = static_cast<int>(notice.rank);
  switch (notice.kind) {
    case Notice::kLeft:
      return Cancelled(fmt::format("rank {} has left the group", from));
    case Notice::kGone:
      return RankIsGone(about, fmt::format("rank {} says so", from));
    case Notice::kAborted:
      return Unavailable(fmt::format("rank {} has ended the group", about));
    default:
      return Status::Ok();
  }
}

Result<Notice> Control::Read() {
  const auto all = WritableBytesOf(notice);
  while (bytes < all.size()) {
    const auto rest = all.subspan(bytes);
    const ssize_t got = recv(socket.get(), rest.data(), rest.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return DeadlineExceeded("not all has come");
    if (got < 0) return Unavailable(std::generic_category().message(errno));
    if (got == 0) return Unavailable("the connection is closed");
    bytes += static_cast<size_t>(got);
  }
  bytes = 0;
  return notice;
}

Watch::Watch(int rank, std::vector<Control> controls, std::chrono::milliseconds silence,
             std::string name)
    : rank_(rank),
      silence_(silence),
      beat_(std::min(kLongestBeat, silence / 4)),
      name_(std::move(name)),
      over_event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      stop_event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      notice_{.kind = Notice::kLeft, .rank = static_cast<uint32_t>(rank)} {
  CHECK(over_event_.ok() && stop_event_.ok());
  for (Control& control : controls)
    peers_.push_back({.control = std::move(control), .last_heard = {}});
  // Signals are for the program's own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Watch::~Watch() {
  Raise(stop_event_);
  thread_.join();
  TellAll(last_notice());
}

Status Watch::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

Notice Watch::last_notice() const {
  const std::lock_guard lock(mutex_);
  return notice_;
}

void Watch::End(const Status& reason, const Notice& notice) {
  // Without memory for the reason the group ends all the same.
  Status told = StatusOf([&] { return name_.empty() ? reason : reason.WithPrefix(name_); });
  const std::lock_guard lock(mutex_);
  if (over()) return;
  status_ = std::move(told);
  notice_ = notice;
  over_.store(true, std::memory_order_release);
  Raise(over_event_);
}

void Watch::TellAll(const Notice& notice) {
  for (const Peer& peer : peers_) {
    if (peer.left) continue;
    // Of a peer that has stopped reading the system takes no more at some time: silence finds it.
    send(peer.control.socket.get(), &notice, sizeof notice, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

void Watch::Heed(Peer& peer, const Notice& notice) {
  peer.last_heard = std::chrono::steady_clock::now();
  const Status meaning = StatusOf([&] { return MeaningOf(notice, peer.control.rank); });
  if (notice.kind == Notice::kLeft) {
    peer.left = true;
  } else if (!meaning.ok()) {
    End(meaning, notice);
  }
}

void Watch::ReadNotices(Peer& peer) {
  while (!peer.left && !over()) {
    const auto notice = peer.control.Read();
    if (notice.ok()) {
      Heed(peer, *notice);
    } else if (notice.status().code() == StatusCode::kDeadlineExceeded) {
      return;
    } else {
      return End(StatusOf([&] { return RankIsGone(peer.control.rank, notice.status().message()); }),
                 {.kind = Notice::kGone, .rank = static_cast<uint32_t>(peer.control.rank)});
    }
  }
}

void Watch::FindSilent() {
  const auto now = std::chrono::steady_clock::now();
  for (const Peer& peer : peers_) {
    if (peer.left || now - peer.last_heard < silence_) continue;
    return End(StatusOf([&] {
                 return RankIsGone(peer.control.rank,
                                   fmt::format("it has said nothing for {} ms", silence_.count()));
               }),
               {.kind = Notice::kGone, .rank = static_cast<uint32_t>(peer.control.rank)});
  }
}

void Watch::Run() {
  NameThisThread("rank-watch");
  const auto now = std::chrono::steady_clock::now();
  for (Peer& peer : peers_) peer.last_heard = now;
  next_beat_ = now;
  while (!over() && !is_stopping_) RunTurn("rank-watch", [this] { Turn(); });
  if (over()) TellAll(last_notice());
}

// What it reads and does not come to heed stays in the sockets.
void Watch::Turn() {
  polled_.assign({{.fd = stop_event_.get(), .events = POLLIN, .revents = 0},
                  {.fd = over_event_.get(), .events = POLLIN, .revents = 0}});
  for (const Peer& peer : peers_)
    polled_.push_back(
        {.fd = peer.left ? -1 : peer.control.socket.get(), .events = POLLIN, .revents = 0});
  poll(polled_.data(), polled_.size(), MillisecondsUntil(next_beat_));
  is_stopping_ = polled_[0].revents != 0;
  if (is_stopping_) return;
  if (const auto now = std::chrono::steady_clock::now(); now >= next_beat_) {
    TellAll({.kind = Notice::kBeat, .rank = static_cast<uint32_t>(rank_)});
    next_beat_ = now + beat_;
    is_silence_due_ = true;
  }
  for (size_t i = 0; i < peers_.size(); ++i)
    if (polled_[i + 2].revents != 0) ReadNotices(peers_[i]);
  if (std::exchange(is_silence_due_, false)) FindSilent();
}

}  // namespace inflight::comm
