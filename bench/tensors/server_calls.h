// SPDX-License-Identifier: Apache-2.0
// The calls a load generator makes beside the load itself. Answers are JSON texts of the HTTP
// protocol's shape, over gRPC too, where 64-bit integers are texts. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "inflight/status.h"

namespace inflight::bench {

class ServerCalls {
 public:
  virtual ~ServerCalls() = default;
  // `version` empty: the server chooses.
  virtual Result<std::string> ModelMetadata(const std::string& model,
                                            const std::string& version) = 0;
  virtual Result<std::string> ModelConfig(const std::string& model, const std::string& version) = 0;
  // Of one model, or of all where `model` is empty.
  virtual Result<std::string> Statistics(const std::string& model, const std::string& version) = 0;
  virtual Status RegisterSharedMemory(const std::string& name, int64_t byte_size) = 0;
  virtual Status UnregisterSharedMemory(const std::string& name) = 0;
};

std::unique_ptr<ServerCalls> CreateHttpCalls(const std::string& host, int port);
// kUnimplemented in a build without gRPC.
Result<std::unique_ptr<ServerCalls>> CreateGrpcCalls(const std::string& host, int port);

}  // namespace inflight::bench
