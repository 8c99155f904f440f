// SPDX-License-Identifier: Apache-2.0
// The RPCs of GRPCInferenceService and of the standard health check, over a serving::Server. The
// table in inference_service.cc says of each method which API it belongs to and what answers it;
// docs/reference/protocol/grpc.md lists the same methods.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string_view>
#include <vector>

#include "base/memory_account.h"
#include "base/worker_pool.h"
#include "protocol/kserve/grpc/access.h"
#include "protocol/kserve/grpc/active_calls.h"
#include "protocol/kserve/grpc/raw_service.h"
#include "protocol/kserve/grpc/stream_call.h"
#include "protocol/kserve/grpc/unary_call.h"
#include "serving/server/server.h"

namespace inflight::kserve_grpc {

// What the methods share. Threads: constant but for the pools, which are thread-safe.
struct ServiceContext {
  serving::Server& server;
  ActiveCalls& calls;
  const StreamLimits limits;
  const Access& access;
  const std::shared_ptr<MemoryAccount> memory;  // charged with what calls take
  const grpc_compression_level compression;     // of responses to inference
  WorkerPool writer{1, "grpc-writer"};          // of streams
  // Loads take their time. Last, as its tasks use the above.
  WorkerPool model_control{server.model_load_threads(), "grpc-control"};
};

// Threads: gRPC calls from several; the referred objects outlive all calls.
class InferenceService final : public RawService {
 public:
  InferenceService(serving::Server& server, ActiveCalls& calls, StreamLimits limits,
                   const Access& access, std::shared_ptr<MemoryAccount> memory,
                   grpc_compression_level compression);

  // "/inference.GRPCInferenceService/ServerLive", ...: all methods that are answered.
  static std::vector<std::string_view> Paths();

 private:
  ServiceContext context_;
};

}  // namespace inflight::kserve_grpc
