// SPDX-License-Identifier: Apache-2.0
// One ServerReflectionInfo RPC: questions about the services, over one stream
// (docs/reference/protocol/grpc.md, "Reflection").
#pragma once

#include <memory>

#include "base/client.h"
#include "protocol/grpc_listener/rpc.h"
#include "protocol/kserve/grpc/active_calls.h"
#include "protocol/kserve/grpc/reflection.h"

namespace inflight::kserve_grpc {

// The next request is read when the response to the last is on its way: for a client that does not
// read, one waits. `caller`: by its key, whose rate each request counts for; null: nobody who is
// told from others. The referred objects outlive the call.
std::shared_ptr<grpc_listener::RpcReactor> StartReflectionCall(
    const Reflection& reflection, ActiveCalls& calls, std::shared_ptr<const Client> caller,
    std::shared_ptr<grpc_listener::Rpc> rpc);

}  // namespace inflight::kserve_grpc
