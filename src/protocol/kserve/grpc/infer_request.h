// SPDX-License-Identifier: Apache-2.0
// ModelInferRequest -> serving::Request.
#pragma once

#include <memory>

#include "base/memory_account.h"
#include "grpc_service.pb.h"
#include "inflight/status.h"
#include "serving/core/request.h"
#include "serving/memory/shared_memory.h"

namespace inflight::kserve_grpc {

struct InferRequest {
  serving::Request request;
  bool enable_empty_final = false;  // a stream shall answer also a completion without outputs
};

// Tensors sent raw share the message's memory and keep the message alive; typed contents are
// packed into memory of their own, and so is what lies in shared memory. What only the model's
// configuration can tell (names, types, shapes, sizes) is left to serving::Server::Infer. An error
// is what the client is told; rules and texts: docs/reference/protocol/grpc.md. `received_ns`:
// monotonic.
// What is packed anew or copied from shared memory is added to `charge` before it is.
Result<InferRequest> ParseInferRequest(
    const std::shared_ptr<const ::inference::ModelInferRequest>& message,
    const serving::ClientRegions& regions, int64_t received_ns, MemoryCharge charge = {});

}  // namespace inflight::kserve_grpc
