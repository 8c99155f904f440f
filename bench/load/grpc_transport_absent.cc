// SPDX-License-Identifier: Apache-2.0
// Load over gRPC in a build without it (-DINFLIGHT_SERVER=OFF).
#include "bench/load/load.h"

namespace inflight::bench {

Result<std::unique_ptr<LoadTransport>> CreateGrpcTransport(const LoadOptions&,
                                                           const std::vector<LoadPrompt>&) {
  return Unimplemented(
      "--protocol grpc: this build has no gRPC; configure with -DINFLIGHT_SERVER=ON");
}

}  // namespace inflight::bench
