// SPDX-License-Identifier: Apache-2.0
#include <google/protobuf/util/json_util.h>

#include "base/status_macros.h"
#include "bench/tensors/server_calls.h"
#include "grpc_service.pb.h"
#include "protocol/grpc_client/grpc_client.h"

namespace inflight::bench {
namespace {

using grpc_client::CallOnce;
using grpc_client::GrpcAnswer;
using grpc_client::GrpcClient;
constexpr int64_t kTimeoutMs = 30'000;

class GrpcCalls : public ServerCalls {
 public:
  GrpcCalls(const std::string& host, int port) : client_(host, port) {}

  Result<std::string> ModelMetadata(const std::string& model, const std::string& version) override {
    inference::ModelMetadataRequest request;
    request.set_name(model);
    request.set_version(version);
    inference::ModelMetadataResponse response;
    RETURN_IF_ERROR(Call("ModelMetadata", request, response));
    return ToJson(response);
  }
  Result<std::string> ModelConfig(const std::string& model, const std::string& version) override {
    inference::ModelConfigRequest request;
    request.set_name(model);
    request.set_version(version);
    inference::ModelConfigResponse response;
    RETURN_IF_ERROR(Call("ModelConfig", request, response));
    return ToJson(response.config());
  }
  Result<std::string> Statistics(const std::string& model, const std::string& version) override {
    inference::ModelStatisticsRequest request;
    request.set_name(model);
    request.set_version(version);
    inference::ModelStatisticsResponse response;
    RETURN_IF_ERROR(Call("ModelStatistics", request, response));
    return ToJson(response);
  }
  Status RegisterSharedMemory(const std::string& name, int64_t byte_size) override {
    inference::SystemSharedMemoryRegisterRequest request;
    request.set_name(name);
    request.set_key("/" + name);
    request.set_byte_size(static_cast<uint64_t>(byte_size));
    inference::SystemSharedMemoryRegisterResponse response;
    return Call("SystemSharedMemoryRegister", request, response);
  }
  Status UnregisterSharedMemory(const std::string& name) override {
    inference::SystemSharedMemoryUnregisterRequest request;
    request.set_name(name);
    inference::SystemSharedMemoryUnregisterResponse response;
    return Call("SystemSharedMemoryUnregister", request, response);
  }

 private:
  Status Call(const char* method, const google::protobuf::Message& request,
              google::protobuf::Message& response) {
    const GrpcAnswer answer =
        CallOnce(client_, std::string("/inference.GRPCInferenceService/") + method,
                 request.SerializeAsString(), kTimeoutMs);
    if (answer.end.code != 0) return Unavailable(answer.end.ToString());
    return response.ParseFromString(answer.message)
               ? Status::Ok()
               : Unavailable(std::string(method) + ": the answer is no such message");
  }

  static std::string ToJson(const google::protobuf::Message& message) {
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    std::string json;
    (void)google::protobuf::util::MessageToJsonString(message, &json, options);
    return json;
  }

  GrpcClient client_;
};

}  // namespace

Result<std::unique_ptr<ServerCalls>> CreateGrpcCalls(const std::string& host, int port) {
  std::unique_ptr<ServerCalls> calls = std::make_unique<GrpcCalls>(host, port);
  return calls;
}

}  // namespace inflight::bench
