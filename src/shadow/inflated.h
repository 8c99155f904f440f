// SPDX-License-Identifier: Apache-2.0
// Messages of gRPC as they were before their client compressed them.
#pragma once

#include <cstddef>
#include <string>

#include "inflight/status.h"
#include "protocol/grpc_listener/rpc.h"

namespace inflight::shadow {

// Nothing is nothing in any coding. kInvalidArgument for what is no such coding; kResourceExhausted
// beyond `max_bytes`.
Result<std::string> Inflated(std::string bytes, grpc_listener::Coding coding, size_t max_bytes);

}  // namespace inflight::shadow
