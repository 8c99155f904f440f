// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/infer_message.h"

namespace inflight::kserve_grpc {

ParseFailure ParseInferMessage(const serving::Server& server,
                               const grpc_listener::RpcMessage& bytes, int64_t max_bytes,
                               MemoryCharge& charge, ::inference::ModelInferRequest& message) {
  return ParseMessage(bytes, max_bytes, charge, message, [&](const PartCount& parts) {
    const auto& [name, version, id] = parts.first_texts;
    // Without a name, it may be no such message at all.
    if (name.empty() || server.FindModel(name, version).ok()) return true;
    message.set_model_name(name);
    message.set_model_version(version);
    message.set_id(id);
    return false;
  });
}

}  // namespace inflight::kserve_grpc
