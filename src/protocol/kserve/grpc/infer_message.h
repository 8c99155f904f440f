// SPDX-License-Identifier: Apache-2.0
// The bytes of an inference request, for a model that there is.
#pragma once

#include <cstdint>

#include "base/memory_account.h"
#include "grpc_service.pb.h"
#include "protocol/kserve/grpc/message_bytes.h"
#include "serving/server/server.h"

namespace inflight::kserve_grpc {

// As ParseMessage. A message for a model that there is not gets the names by which that is told,
// and no more.
ParseFailure ParseInferMessage(const serving::Server& server,
                               const grpc_listener::RpcMessage& bytes, int64_t max_bytes,
                               MemoryCharge& charge, ::inference::ModelInferRequest& message);

}  // namespace inflight::kserve_grpc
