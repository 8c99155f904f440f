// SPDX-License-Identifier: Apache-2.0
// A server over gRPC for calls of several threads: a client on a thread of its own.
#pragma once

#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "protocol/grpc_client/grpc_client.h"
#include "shadow/grpc_call.h"

namespace inflight::shadow {

class GrpcCaller {
 public:
  using Task = std::function<void(grpc_client::GrpcClient& client)>;

  explicit GrpcCaller(const GrpcAddress& server);
  ~GrpcCaller() { Stop(); }

  // Runs on the thread, in the order of the posts. Any thread.
  void Post(Task task);
  // Ends the thread: listeners of calls that run are told nothing any more. Tasks may still be
  // posted, and do not run.
  void Stop();

 private:
  void Run();

  grpc_client::GrpcClient client_;
  std::mutex mutex_;
  std::vector<Task> tasks_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace inflight::shadow
