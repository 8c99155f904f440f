// SPDX-License-Identifier: Apache-2.0
// The gRPC listener: KServe v2 over a serving::Server.
//
// Runs on the I/O threads of grpc_listener/ (1 to 4, by cores). They parse messages; they never
// wait for a model.
#pragma once

#include <cstdint>
#include <memory>

#include "inflight/status.h"
#include "protocol/kserve/grpc/grpc_options.h"
#include "serving/server/server.h"

namespace inflight::kserve_grpc {

class GrpcServer {
 public:
  // Listens and serves from here on. `server` outlives the result. kUnavailable when the address
  // cannot be bound, kInvalidArgument names an option out of range.
  static Result<std::unique_ptr<GrpcServer>> Start(serving::Server& server,
                                                   const GrpcOptions& options);
  ~GrpcServer();  // Stop(0) unless it was stopped

  int port() const;

  // From the call on, new inference requests get UNAVAILABLE. Waits until those in progress are
  // done, at most `drain_ms`; cancels the rest and closes the port. Idempotent.
  void Stop(int64_t drain_ms);

 private:
  class Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace inflight::kserve_grpc
