// SPDX-License-Identifier: Apache-2.0
// gRPC's threads give back the memory that they hold free (base/idle_memory.h). They run nothing of
// ours between two calls, and what a hostile peer sends beyond a limit comes to no call: so when
// the process has grown or shrunk, calls through an in-process channel have each of them do it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "health.grpc.pb.h"

namespace inflight::kserve_grpc {

// Threads: its own, which looks each second. Ends before the server does.
class ThreadMemory {
 public:
  explicit ThreadMemory(::grpc::Server& server);
  ~ThreadMemory();
  ThreadMemory(const ThreadMemory&) = delete;
  ThreadMemory& operator=(const ThreadMemory&) = delete;

 private:
  void Run();
  void VisitThreads();

  const std::unique_ptr<::grpc::health::v1::Health::Stub> health_;
  std::mutex mutex_;
  std::condition_variable stops_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace inflight::kserve_grpc
