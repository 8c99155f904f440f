// SPDX-License-Identifier: Apache-2.0
// One ModelInfer RPC.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "base/memory_account.h"
#include "protocol/kserve/grpc/active_calls.h"
#include "serving/server/server.h"

namespace inflight::kserve_grpc {

// What the metadata of a call says.
struct CallMetadata {
  serving::Parameters parameters;  // go to the model before those of the request with their names
  serving::TraceContext trace;
  std::shared_ptr<AccountShare> share;  // of the client; null: counts for nobody
};

// Starts the RPC; gRPC owns what is returned, and `response` until then. A cancelled or expired
// call cancels the request; the RPC itself ends with the model's final response in any case.
::grpc::ServerUnaryReactor* StartInferCall(serving::Server& server, ActiveCalls& calls,
                                           CallMetadata metadata, int64_t max_message_bytes,
                                           ::grpc::ByteBuffer request,
                                           ::grpc::ByteBuffer& response);

}  // namespace inflight::kserve_grpc
