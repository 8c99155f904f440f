// SPDX-License-Identifier: Apache-2.0
// Accepts the connections of the gRPC port and hands them to gRPC. Its own listener has no bound,
// and stops for good when the process is out of descriptors.
//
// gRPC does not tell when a connection ends. It shuts down both directions before it closes a
// socket, and that the system tells to whoever watches; where the close comes first, Sweep sees it.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
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
  ~Acceptor();

  int port() const { return port_; }
  void Start(HandOver hand_over);
  void Stop();  // closes the port; connections stay. Idempotent

 private:
  explicit Acceptor(int max_connections);

  Status ListenOn(sockaddr_storage address, socklen_t size, bool reuse_port);
  void Run();
  void Watch(int socket, uint32_t events) const;
  void AcceptSome(int listener);
  bool Accept(int listener);  // false: nobody waits, or no more can be taken now
  void Admit(int socket, const ConnectionTable::Peer& peer);
  void Evict(int socket);
  void Forget(int socket);
  void Sweep();
  void OnOutOfDescriptors();

  const size_t max_connections_;
  HandOver hand_over_;
  int port_ = 0;
  int epoll_ = -1;
  int wake_ = -1;  // an eventfd
  std::vector<int> listeners_;
  int reserve_ = -1;       // a descriptor to evict with when there is no other
  ConnectionTable table_;  // of sockets that gRPC owns
  int64_t last_sweep_ns_ = 0;
  bool is_paused_ = false;  // waits for descriptors
  int64_t last_warning_ns_ = 0;
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

}  // namespace inflight::kserve_grpc
