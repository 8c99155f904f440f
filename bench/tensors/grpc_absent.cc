// SPDX-License-Identifier: Apache-2.0
// gRPC in a build without it (-DINFLIGHT_SERVER=OFF).
#include "bench/tensors/infer_requests.h"
#include "bench/tensors/server_calls.h"

namespace inflight::bench {
namespace {

Status NoGrpc() {
  return Unimplemented(
      "--protocol grpc: this build has no gRPC; configure with -DINFLIGHT_SERVER=ON");
}

}  // namespace

Result<std::unique_ptr<ServerCalls>> CreateGrpcCalls(const std::string&, int) { return NoGrpc(); }

Result<std::unique_ptr<LoadTransport>> CreateGrpcInferTransport(const LoadOptions&,
                                                                const ServedModel&,
                                                                const std::vector<Payload>&,
                                                                const Placement*, bool) {
  return NoGrpc();
}

}  // namespace inflight::bench
