// SPDX-License-Identifier: Apache-2.0
// `inflight serve` of a build without gRPC (-DINFLIGHT_GRPC=OFF).
#include "grpc_front_end.h"

namespace inflight::tool {

Result<std::unique_ptr<GrpcFrontEnd>> StartGrpc(serving::Server&, const ServeOptions&) {
  return Unimplemented("this build has no gRPC; pass --allow-grpc=false");
}

}  // namespace inflight::tool
