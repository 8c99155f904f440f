// SPDX-License-Identifier: Apache-2.0
#include "comm/door.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

#include "base/log.h"

namespace inflight::comm {
namespace {

constexpr std::chrono::seconds kPatience{5};
constexpr size_t kMaxVisitors = 64;

}  // namespace

Door::Said Door::Hear(Visitor& visitor) {
  const auto all = WritableBytesOf(visitor.hello);
  while (visitor.bytes < all.size()) {
    const auto rest = all.subspan(visitor.bytes);
    const ssize_t got = recv(visitor.socket.get(), rest.data(), rest.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return Said::kMore;
    if (got <= 0) return Said::kWrong;
    visitor.bytes += static_cast<size_t>(got);
    const size_t known = std::min(visitor.bytes, kMagic.size());
    if (!std::equal(kMagic.begin(), kMagic.begin() + known, visitor.hello.magic.begin()))
      return Said::kWrong;
  }
  return Said::kAll;
}

void Door::LetIn() {
  while (true) {
    auto socket = Accept(listener_);
    if (!socket.ok()) return;  // of whoever has gone again poll will not speak
    visitors_.push_back({.socket = *std::move(socket),
                         .patience = std::chrono::steady_clock::now() + kPatience,
                         .hello = {}});
    visitors_.back().hello.magic = {};
    if (visitors_.size() > kMaxVisitors) visitors_.pop_front();
  }
}

std::optional<Arrival> Door::HearAll() {
  for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
    const Said said = Hear(*visitor);
    if (said == Said::kMore && std::chrono::steady_clock::now() < visitor->patience) {
      ++visitor;
      continue;
    }
    const sockaddr_in6 from = PeerOf(visitor->socket);
    if (said == Said::kAll) {
      Arrival arrival{.socket = std::move(visitor->socket), .hello = visitor->hello, .from = from};
      visitors_.erase(visitor);
      return arrival;
    }
    logging::Warning("a stranger on the port where ranks meet is turned away",
                     {{"from", ToText(from)}});
    visitor = visitors_.erase(visitor);
  }
  return std::nullopt;
}

Result<std::optional<Arrival>> Door::Wait(std::span<const int> others, Deadline deadline) {
  std::vector<pollfd> polled;
  while (true) {
    if (auto arrival = HearAll()) return arrival;
    polled.clear();
    polled.push_back({.fd = listener_.get(), .events = POLLIN, .revents = 0});
    for (const int other : others) polled.push_back({.fd = other, .events = POLLIN, .revents = 0});
    Deadline until = deadline;
    for (const Visitor& visitor : visitors_) {
      polled.push_back({.fd = visitor.socket.get(), .events = POLLIN, .revents = 0});
      until = std::min(until, visitor.patience);
    }
    const int ready = poll(polled.data(), polled.size(), MillisecondsUntil(until));
    if (ready < 0 && errno != EINTR)
      return Internal("poll: " + std::generic_category().message(errno));
    if (ready > 0) {
      if (polled[0].revents != 0) LetIn();
      for (size_t i = 1; i <= others.size(); ++i)
        if (polled[i].revents != 0) return std::optional<Arrival>();
    }
    if (std::chrono::steady_clock::now() >= deadline) return HearAll();
  }
}

}  // namespace inflight::comm
