// SPDX-License-Identifier: Apache-2.0
// The RPCs of GRPCInferenceService, of the standard health check and of server reflection, over a
// serving::Server. The table in inference_service.cc says of each method which API it belongs to
// and what answers it; docs/reference/protocol/grpc.md lists the same methods.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/worker_pool.h"
#include "protocol/grpc_listener/rpc.h"
#include "protocol/kserve/grpc/access.h"
#include "protocol/kserve/grpc/active_calls.h"
#include "protocol/kserve/grpc/reflection.h"
#include "protocol/kserve/grpc/stream_call.h"
#include "protocol/kserve/grpc/unary_call.h"
#include "serving/server/server.h"

namespace inflight::kserve_grpc {

// How much responses to inference are compressed: by which of the algorithms that the client takes.
enum class CompressionLevel { kNone, kLow, kMedium, kHigh };

struct ServiceOptions {
  StreamLimits limits;
  CompressionLevel compression = CompressionLevel::kNone;
  bool with_reflection = false;
};

// What the methods share. Threads: constant but for the pool, which is thread-safe.
struct ServiceContext {
  serving::Server& server;
  ActiveCalls& calls;
  const StreamLimits limits;
  const Access& access;
  const CompressionLevel compression;
  const std::unique_ptr<const Reflection> reflection;  // null: the services describe nothing
  // Loads take their time. Last, as its tasks use the above.
  WorkerPool model_control{server.model_load_threads(), "grpc-control"};
};

// Threads: the listener's I/O threads call it; the referred objects outlive all calls.
class InferenceService final : public grpc_listener::RpcHandler {
 public:
  InferenceService(serving::Server& server, ActiveCalls& calls, const Access& access,
                   const ServiceOptions& options);

  // UNIMPLEMENTED for a path without a row.
  std::shared_ptr<grpc_listener::RpcReactor> Start(std::shared_ptr<Rpc> rpc) override;

  // "/inference.GRPCInferenceService/ServerLive", ...: all methods that are answered, with
  // reflection.
  static std::vector<std::string_view> Paths();

 private:
  ServiceContext context_;
  std::atomic<uint64_t> num_calls_ = 0;  // that the log tells of
};

}  // namespace inflight::kserve_grpc
