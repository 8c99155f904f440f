// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/acceptor.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/idle_memory.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/thread_name.h"

namespace inflight::kserve_grpc {
namespace {

constexpr int kBacklog = 4096;
constexpr int kMaxAccepted = 64;  // before ends are looked at
constexpr int kMaxEvicted = 16;   // for want of descriptors, at a time
constexpr int kRetryMs = 20;      // after that
constexpr int kMaxQuiet = 3;      // seconds in which memory is looked for
constexpr int64_t kSweepNs = 100'000'000;
constexpr int64_t kWarningNs = 10'000'000'000;

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
};

Status SystemError(const char* what) {
  return Unavailable(std::string(what) + ": " + std::strerror(errno));
}

Address AnyAddress() {
  Address any;
  auto& v6 = reinterpret_cast<sockaddr_in6&>(any.bytes);
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = in6addr_any;
  any.size = sizeof v6;
  return any;
}

std::string HostOf(std::string_view text) {
  for (const std::string_view scheme : {"ipv4:", "ipv6:"}) {
    if (text.starts_with(scheme)) text.remove_prefix(scheme.size());
  }
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  return std::string(text);
}

bool IsAny(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

Result<std::vector<Address>> Resolve(const std::string& host) {
  std::vector<Address> addresses;
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) return Unavailable("'" + host + "': " + gai_strerror(error));
  if (IsAny(host)) addresses.push_back(AnyAddress());
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    Address address;
    std::memcpy(&address.bytes, info->ai_addr, info->ai_addrlen);
    address.size = info->ai_addrlen;
    addresses.push_back(address);
  }
  freeaddrinfo(found);
  return addresses;
}

void SetPort(sockaddr_storage& address, int port) {
  const auto number = htons(static_cast<uint16_t>(port));
  if (address.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = number;
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = number;
  }
}

int PortOf(int listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

ConnectionTable::Peer PeerOf(const sockaddr_storage& address) {
  ConnectionTable::Peer peer;
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    std::memcpy(peer.client.data(), &v6.sin6_addr, 16);
    peer.port = v6.sin6_port;
  } else {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    peer.client[10] = peer.client[11] = 0xff;  // ::ffff:1.2.3.4
    std::memcpy(&peer.client[12], &v4.sin_addr, 4);
    peer.port = v4.sin_port;
  }
  return peer;
}

std::optional<ConnectionTable::Peer> PeerOf(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return std::nullopt;
  return PeerOf(address);
}

int OpenReserve() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

bool IsOutOfDescriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

bool SetOn(int socket, int level, int option) {
  const int on = 1;
  return setsockopt(socket, level, option, &on, sizeof on) == 0;
}

}  // namespace

Result<std::unique_ptr<Acceptor>> Acceptor::Listen(const AcceptorOptions& options) {
  std::unique_ptr<Acceptor> acceptor(new Acceptor(options.max_connections));
  if (acceptor->epoll_ < 0 || acceptor->wake_ < 0) return SystemError("epoll");
  const std::string host = HostOf(options.address);
  ASSIGN_OR_RETURN(std::vector<Address> addresses, Resolve(host));
  Status status;
  for (Address& address : addresses) {
    SetPort(address.bytes, acceptor->port_ == 0 ? options.port : acceptor->port_);
    status = acceptor->ListenOn(address.bytes, address.size, options.reuse_port);
    // 0.0.0.0 and :: are both families, as gRPC has it; where there is no IPv6, what there is.
    if (IsAny(host) && status.ok()) break;
  }
  if (acceptor->listeners_.empty()) return status;
  return acceptor;
}

Acceptor::Acceptor(int max_connections)
    : max_connections_(static_cast<size_t>(max_connections)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      reserve_(OpenReserve()) {}

Acceptor::~Acceptor() {
  Stop();
  for (const int own : {reserve_, wake_, epoll_}) {
    if (own >= 0) close(own);
  }
}

Status Acceptor::ListenOn(sockaddr_storage address, socklen_t size, bool reuse_port) {
  const int listener =
      socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
  if (listener < 0) return SystemError("socket");
  const int off = 0;
  if (address.ss_family == AF_INET6 &&
      IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<sockaddr_in6&>(address).sin6_addr)) {
    setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  const bool is_open = SetOn(listener, SOL_SOCKET, SO_REUSEADDR) &&
                       (!reuse_port || SetOn(listener, SOL_SOCKET, SO_REUSEPORT)) &&
                       bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                       listen(listener, kBacklog) == 0;
  if (!is_open) {
    Status status = SystemError("bind");
    close(listener);
    return status;
  }
  listeners_.push_back(listener);
  port_ = PortOf(listener);
  return Status::Ok();
}

void Acceptor::Start(HandOver hand_over) {
  hand_over_ = std::move(hand_over);
  Watch(wake_, EPOLLIN);
  for (const int listener : listeners_) Watch(listener, EPOLLIN);
  thread_ = std::thread([this] {
    NameThisThread("grpc-accept");
    Run();
  });
}

void Acceptor::Stop() {
  is_stopping_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
  if (thread_.joinable()) thread_.join();
  for (const int listener : listeners_) close(listener);
  listeners_.clear();
}

// gRPC makes a connection's memory on this thread and frees it on others: it is given back some
// time after connections came or went.
void Acceptor::Run() {
  std::array<epoll_event, kMaxAccepted> events;
  MemoryLook memory_look;
  uint64_t num_events = 0;
  int num_quiet = 0;  // seconds
  while (!is_stopping_) {
    const auto interval_ms = static_cast<int>(kMemoryInterval.count());
    const int timeout_ms = is_paused_ ? kRetryMs : num_quiet < kMaxQuiet ? interval_ms : -1;
    const int count =
        epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), timeout_ms);
    if (is_stopping_) return;
    num_quiet = count == 0 ? num_quiet + 1 : 0;
    num_events += static_cast<uint64_t>(std::max(count, 0));
    memory_look.Look(num_events);
    if (std::exchange(is_paused_, false)) {
      for (const int listener : listeners_) Watch(listener, EPOLLIN);
    }
    std::vector<int> with_newcomers;  // looked at last: they may get the numbers of what has ended
    for (int i = 0; i < count; ++i) {
      const int socket = events[i].data.fd;
      if (std::count(listeners_.begin(), listeners_.end(), socket) > 0) {
        with_newcomers.push_back(socket);
      } else if (socket != wake_) {
        Forget(socket);
      }
    }
    for (const int listener : with_newcomers) AcceptSome(listener);
  }
}

// Beside `events`, the end of both directions.
void Acceptor::Watch(int socket, uint32_t events) const {
  epoll_event event{.events = events, .data = {.fd = socket}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, socket, &event);
}

void Acceptor::AcceptSome(int listener) {
  for (int i = 0; i < kMaxAccepted && !is_paused_; ++i) {
    if (!Accept(listener)) return;
  }
}

bool Acceptor::Accept(int listener) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  const int socket =
      accept4(listener, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (socket >= 0) {
    Admit(socket, PeerOf(peer));
    return true;
  }
  const bool goes_on = errno == EINTR || errno == ECONNABORTED;
  if (IsOutOfDescriptors(errno)) OnOutOfDescriptors();
  return goes_on;
}

void Acceptor::Admit(int socket, const ConnectionTable::Peer& peer) {
  table_.Remove(socket);  // that number was closed, or it could not come again
  if (table_.size() >= max_connections_) Sweep();
  if (table_.size() >= max_connections_) {
    const auto gives_way = table_.GivesWayTo(peer.client);
    if (!gives_way) {
      close(socket);
      return;
    }
    Evict(*gives_way);
  }
  SetOn(socket, IPPROTO_TCP, TCP_NODELAY);
  table_.Add(socket, peer);
  Watch(socket, 0);
  hand_over_(socket);
}

// gRPC sees its end. It may close the socket at any moment, and another may get its number:
// what is shut down is a descriptor of ours, once it is known to be of that connection.
void Acceptor::Evict(int socket) {
  const auto peer = table_.Find(socket);
  Forget(socket);
  int own = fcntl(socket, F_DUPFD_CLOEXEC, 0);
  if (own < 0 && reserve_ >= 0) {
    close(std::exchange(reserve_, -1));
    own = fcntl(socket, F_DUPFD_CLOEXEC, 0);
  }
  if (own >= 0) {
    if (PeerOf(own) == peer) shutdown(own, SHUT_RDWR);
    close(own);
  }
  if (reserve_ < 0) reserve_ = OpenReserve();
}

void Acceptor::Forget(int socket) {
  table_.Remove(socket);
  epoll_ctl(epoll_, EPOLL_CTL_DEL, socket, nullptr);
}

// Forgets what was closed before its end was seen: it is watched no more.
void Acceptor::Sweep() {
  const int64_t now_ns = Clock::System().NowNs();
  if (now_ns - last_sweep_ns_ < kSweepNs) return;
  last_sweep_ns_ = now_ns;
  for (const int socket : table_.sockets()) {
    epoll_event event{.events = 0, .data = {.fd = socket}};
    if (epoll_ctl(epoll_, EPOLL_CTL_MOD, socket, &event) != 0) table_.Remove(socket);
  }
}

void Acceptor::OnOutOfDescriptors() {
  const int64_t now_ns = Clock::System().NowNs();
  if (last_warning_ns_ == 0 || now_ns - last_warning_ns_ > kWarningNs) {
    last_warning_ns_ = now_ns;
    logging::Warning("no descriptor is left for a gRPC connection; raise `ulimit -Hn`",
                     {{"connections", std::to_string(table_.size())}});
  }
  Sweep();
  for (int i = 0; i < kMaxEvicted; ++i) {
    const auto gives_way = table_.GivesWay();
    if (!gives_way) break;
    Evict(*gives_way);
  }
  is_paused_ = true;
  for (const int listener : listeners_) epoll_ctl(epoll_, EPOLL_CTL_DEL, listener, nullptr);
}

}  // namespace inflight::kserve_grpc
