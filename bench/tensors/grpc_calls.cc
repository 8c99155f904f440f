// SPDX-License-Identifier: Apache-2.0
#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>

#include "base/status_macros.h"
#include "bench/tensors/server_calls.h"
#include "grpc_service.grpc.pb.h"

namespace inflight::bench {
namespace {

class GrpcCalls : public ServerCalls {
 public:
  explicit GrpcCalls(const std::string& target)
      : stub_(inference::GRPCInferenceService::NewStub(
            grpc::CreateChannel(target, grpc::InsecureChannelCredentials()))) {}

  Result<std::string> ModelMetadata(const std::string& model, const std::string& version) override {
    inference::ModelMetadataRequest request;
    request.set_name(model);
    request.set_version(version);
    inference::ModelMetadataResponse response;
    RETURN_IF_ERROR(Call(&inference::GRPCInferenceService::Stub::ModelMetadata, request, response));
    return ToJson(response);
  }
  Result<std::string> ModelConfig(const std::string& model, const std::string& version) override {
    inference::ModelConfigRequest request;
    request.set_name(model);
    request.set_version(version);
    inference::ModelConfigResponse response;
    RETURN_IF_ERROR(Call(&inference::GRPCInferenceService::Stub::ModelConfig, request, response));
    return ToJson(response.config());
  }
  Result<std::string> Statistics(const std::string& model, const std::string& version) override {
    inference::ModelStatisticsRequest request;
    request.set_name(model);
    request.set_version(version);
    inference::ModelStatisticsResponse response;
    RETURN_IF_ERROR(
        Call(&inference::GRPCInferenceService::Stub::ModelStatistics, request, response));
    return ToJson(response);
  }
  Status RegisterSharedMemory(const std::string& name, int64_t byte_size) override {
    inference::SystemSharedMemoryRegisterRequest request;
    request.set_name(name);
    request.set_key("/" + name);
    request.set_byte_size(static_cast<uint64_t>(byte_size));
    inference::SystemSharedMemoryRegisterResponse response;
    return Call(&inference::GRPCInferenceService::Stub::SystemSharedMemoryRegister, request,
                response);
  }
  Status UnregisterSharedMemory(const std::string& name) override {
    inference::SystemSharedMemoryUnregisterRequest request;
    request.set_name(name);
    inference::SystemSharedMemoryUnregisterResponse response;
    return Call(&inference::GRPCInferenceService::Stub::SystemSharedMemoryUnregister, request,
                response);
  }

 private:
  template <typename Method, typename Request, typename Response>
  Status Call(Method method, const Request& request, Response& response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    const grpc::Status status = ((*stub_).*method)(&context, request, &response);
    if (status.ok()) return Status::Ok();
    return Unavailable("gRPC " + std::to_string(status.error_code()) + ": " +
                       status.error_message());
  }

  static std::string ToJson(const google::protobuf::Message& message) {
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    std::string json;
    (void)google::protobuf::util::MessageToJsonString(message, &json, options);
    return json;
  }

  std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
};

}  // namespace

Result<std::unique_ptr<ServerCalls>> CreateGrpcCalls(const std::string& host, int port) {
  std::unique_ptr<ServerCalls> calls =
      std::make_unique<GrpcCalls>(host + ":" + std::to_string(port));
  return calls;
}

}  // namespace inflight::bench
