// SPDX-License-Identifier: Apache-2.0
// The gRPC listener behind an interface that a build without gRPC (-DINFLIGHT_GRPC=OFF) has too.
#pragma once

#include <memory>

#include "serve_options.h"
#include "serving/server/server.h"

namespace inflight::tool {

class GrpcFrontEnd {
 public:
  virtual ~GrpcFrontEnd() = default;
  virtual int port() const = 0;
  virtual void Stop(int64_t drain_ms) = 0;
};

Result<std::unique_ptr<GrpcFrontEnd>> StartGrpc(serving::Server& server,
                                                const ServeOptions& options);

}  // namespace inflight::tool
