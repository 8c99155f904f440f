// SPDX-License-Identifier: Apache-2.0
#include "protocol/grpc_listener/rpc.h"

namespace inflight::grpc_listener {

const std::string* Rpc::FindMetadata(std::string_view name) const {
  for (const auto& [key, value] : metadata()) {
    if (key == name) return &value;
  }
  return nullptr;
}

}  // namespace inflight::grpc_listener
