// SPDX-License-Identifier: Apache-2.0
// One ModelInfer RPC.
#pragma once

#include <cstdint>
#include <memory>

#include "protocol/grpc_listener/rpc.h"
#include "protocol/kserve/grpc/active_calls.h"
#include "serving/server/server.h"

namespace inflight::kserve_grpc {

// What the head of a call says.
struct CallMetadata {
  serving::Parameters parameters;  // go to the model before those of the request with their names
  serving::TraceContext trace;
  grpc_listener::Coding coding = grpc_listener::Coding::kIdentity;  // of the response
  std::shared_ptr<const Client> caller;  // by its key; null: nobody who is told from others
};

// Starts the RPC. The referred objects outlive it. A cancelled or expired call cancels the request;
// the RPC itself ends with the model's final response in any case.
std::shared_ptr<grpc_listener::RpcReactor> StartInferCall(serving::Server& server,
                                                          ActiveCalls& calls, CallMetadata metadata,
                                                          int64_t max_message_bytes,
                                                          std::shared_ptr<grpc_listener::Rpc> rpc);

}  // namespace inflight::kserve_grpc
