// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <optional>
#include <system_error>

#include "base/status_macros.h"

namespace inflight::comm {
namespace {

constexpr int kSocketFlags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
constexpr unsigned char kV4Mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

std::string Reason(int error) { return std::generic_category().message(error); }

Status Failed(std::string_view what, int error) {
  return Unavailable(fmt::format("{}: {}", what, Reason(error)));
}

void SendAtOnce(const Descriptor& socket) {
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

sockaddr_in6 AsV6(const sockaddr_storage& address) {
  sockaddr_in6 result = {};
  if (address.ss_family == AF_INET6) {
    std::memcpy(&result, &address, sizeof result);
    return result;
  }
  sockaddr_in v4 = {};
  std::memcpy(&v4, &address, sizeof v4);
  result.sin6_family = AF_INET6;
  result.sin6_port = v4.sin_port;
  std::memcpy(&result.sin6_addr.s6_addr[0], &kV4Mapped[0], sizeof kV4Mapped);
  std::memcpy(&result.sin6_addr.s6_addr[12], &v4.sin_addr, sizeof v4.sin_addr);
  return result;
}

Status WaitFor(const Descriptor& socket, short event, Deadline deadline) {
  while (true) {
    pollfd one{.fd = socket.get(), .events = event, .revents = 0};
    const int ready = poll(&one, 1, MillisecondsUntil(deadline));
    if (ready > 0) return Status::Ok();
    if (ready == 0) return DeadlineExceeded("the deadline has passed");
    if (errno != EINTR) return Failed("poll", errno);
  }
}

// The address of IPv4 that `host` is written as, where it is one of loopback.
std::optional<in_addr> LoopbackV4(const std::string& host) {
  in_addr v4 = {};
  if (host == "localhost") v4.s_addr = htonl(INADDR_LOOPBACK);
  if (host != "localhost" && inet_pton(AF_INET, host.c_str(), &v4) != 1) return std::nullopt;
  if ((ntohl(v4.s_addr) >> 24) != 127) return std::nullopt;
  return v4;
}

// A socket that listens at `address`, or why not.
Result<Descriptor> ListenAt(const sockaddr* address, socklen_t size) {
  Descriptor socket(::socket(address->sa_family, kSocketFlags, 0));
  if (!socket.ok()) return Failed("socket", errno);
  const int on = 1;
  const int off = 0;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->sa_family == AF_INET6)
    setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(socket.get(), address, size) != 0) return Failed("bind", errno);
  if (listen(socket.get(), SOMAXCONN) != 0) return Failed("listen", errno);
  return socket;
}

Result<Descriptor> ConnectAt(const sockaddr* address, socklen_t size, Deadline deadline) {
  Descriptor socket(::socket(address->sa_family, kSocketFlags, 0));
  if (!socket.ok()) return Failed("socket", errno);
  if (connect(socket.get(), address, size) != 0) {
    if (errno != EINPROGRESS) return Failed("connect", errno);
    RETURN_IF_ERROR(WaitFor(socket, POLLOUT, deadline));
    int error = 0;
    socklen_t bytes = sizeof error;
    getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error != 0) return Failed("connect", error);
  }
  SendAtOnce(socket);
  return socket;
}

}  // namespace

int MillisecondsUntil(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, INT_MAX));
}

Result<Descriptor> Listen(const std::string& host, int port) {
  sockaddr_in6 v6 = {};  // any address
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(static_cast<uint16_t>(port));
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_port = v6.sin6_port;
  if (host == "::1") v6.sin6_addr = in6addr_loopback;
  if (const auto loopback = LoopbackV4(host)) {
    v4.sin_addr = *loopback;
  } else {
    auto socket = ListenAt(reinterpret_cast<const sockaddr*>(&v6), sizeof v6);
    if (socket.ok() || host == "::1") return socket;  // else the system may have no IPv6
  }
  return ListenAt(reinterpret_cast<const sockaddr*>(&v4), sizeof v4);
}

sockaddr_in6 PeerOf(const Descriptor& socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return AsV6(address);
}

int PortOf(const Descriptor& socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(AsV6(address).sin6_port);
}

std::string ToText(const sockaddr_in6& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) {
    inet_ntop(AF_INET, &address.sin6_addr.s6_addr[12], &text[0], sizeof text);
    return fmt::format("{}:{}", &text[0], ntohs(address.sin6_port));
  }
  inet_ntop(AF_INET6, &address.sin6_addr, &text[0], sizeof text);
  return fmt::format("[{}]:{}", &text[0], ntohs(address.sin6_port));
}

bool IsLoopback(const sockaddr_in6& address) {
  if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) return address.sin6_addr.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&address.sin6_addr);
}

Result<Descriptor> ConnectTo(const std::string& host, int port, Deadline deadline) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) return Unavailable(fmt::format("{}: {}", host, gai_strerror(error)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  Status last = Unavailable(host + ": has no address");
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    auto socket = ConnectAt(at->ai_addr, at->ai_addrlen, deadline);
    if (socket.ok()) return socket;
    last = socket.status();
  }
  return last;
}

Result<Descriptor> ConnectTo(const sockaddr_in6& address, Deadline deadline) {
  if (!IN6_IS_ADDR_V4MAPPED(&address.sin6_addr))
    return ConnectAt(reinterpret_cast<const sockaddr*>(&address), sizeof address, deadline);
  sockaddr_in v4 = {};  // what a system without IPv6 takes too
  v4.sin_family = AF_INET;
  v4.sin_port = address.sin6_port;
  std::memcpy(&v4.sin_addr, &address.sin6_addr.s6_addr[12], sizeof v4.sin_addr);
  return ConnectAt(reinterpret_cast<const sockaddr*>(&v4), sizeof v4, deadline);
}

Result<Descriptor> Accept(const Descriptor& listener) {
  Descriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket.ok()) return Failed("accept", errno);
  SendAtOnce(socket);
  return socket;
}

Status WriteAll(const Descriptor& socket, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      RETURN_IF_ERROR(WaitFor(socket, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return Failed("send", errno);
    }
  }
  return Status::Ok();
}

Status ReadAll(const Descriptor& socket, std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t got = recv(socket.get(), bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<size_t>(got));
    } else if (got == 0) {
      return Unavailable("the connection is closed");
    } else if (errno == EAGAIN) {
      RETURN_IF_ERROR(WaitFor(socket, POLLIN, deadline));
    } else if (errno != EINTR) {
      return Failed("recv", errno);
    }
  }
  return Status::Ok();
}

}  // namespace inflight::comm
