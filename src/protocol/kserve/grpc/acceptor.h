// SPDX-License-Identifier: Apache-2.0
// Accepts the connections of the gRPC port and hands them to gRPC. Its own listener has no bound,
// and stops for good when the process is out of descriptors.
//
// gRPC does not tell when a connection ends. Each has a second descriptor here, on which the system
// tells that both directions are shut down: gRPC does that before it closes its own, and it ends
// the calls of a connection that is shut down from here.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "inflight/status.h"
#include "protocol/kserve/grpc/connection_table.h"

namespace inflight::kserve_grpc {

struct AcceptorOptions {
  std::string address;  // a host, an IP address, or gRPC's `ipv4:1.2.3.4` and `ipv6:[::1]`
  int port = 0;         // 0 = one is picked
  bool reuse_port = false;
  // A further one takes the place of one of the client that has most, where that has more than its
  // own (connection_table.h), or is closed.
  int max_connections = 16384;
};

// Threads: its own accepts; the rest is for one thread.
class Acceptor {
 public:
  // Owns the socket, which does not block. Called by the acceptor's thread.
  using HandOver = std::function<void(int socket)>;

  // Listens. kUnavailable: the address cannot be bound or there is no such host.
  static Result<std::unique_ptr<Acceptor>> Listen(const AcceptorOptions& options);
  ~Acceptor();  // after gRPC has shut down

  int port() const { return port_; }
  void Start(HandOver hand_over);
  void Stop();  // closes the port; connections stay. Idempotent

 private:
  struct Newcomer {
    int socket = -1;
    sockaddr_storage peer{};
  };

  explicit Acceptor(int max_connections);

  Status ListenOn(sockaddr_storage address, socklen_t size, bool reuse_port);
  void Run();
  void Watch(int socket, uint32_t events) const;
  void AcceptSome(int listener);
  bool Accept(int listener);  // false: nobody waits, or no more can be taken now
  void Admit(const Newcomer& newcomer);
  void Resume();
  void Evict(int socket);
  void Forget(int socket);
  void OnOutOfDescriptors();

  const size_t max_connections_;
  HandOver hand_over_;
  int port_ = 0;
  int epoll_ = -1;
  int wake_ = -1;  // an eventfd
  std::vector<int> listeners_;
  std::unordered_set<int> sockets_;  // second descriptors, also of those that are shut down
  ConnectionTable table_;            // without those
  bool is_paused_ = false;           // waits for descriptors
  std::optional<Newcomer> waiting_;  // for its second one
  int64_t last_warning_ns_ = 0;
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

}  // namespace inflight::kserve_grpc
