// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/parse_failure.h"

#include <string_view>

#include "grpc_service.grpc.pb.h"
#include "health.grpc.pb.h"

namespace inflight::kserve_grpc {
namespace {

using ::grpc::experimental::InterceptionHookPoints;
using ::grpc::experimental::Interceptor;
using ::grpc::experimental::InterceptorBatchMethods;
using ::grpc::experimental::ServerRpcInfo;

bool HasMethod(const google::protobuf::FileDescriptor& file, std::string_view path) {
  const auto& service = *file.service(0);
  const std::string prefix = "/" + service.full_name() + "/";
  return path.starts_with(prefix) &&
         service.FindMethodByName(std::string(path.substr(prefix.size()))) != nullptr;
}

bool IsOurs(std::string_view path) {
  return HasMethod(*::inference::ModelInferRequest::descriptor()->file(), path) ||
         HasMethod(*::grpc::health::v1::HealthCheckRequest::descriptor()->file(), path);
}

// Our own methods never answer UNIMPLEMENTED without saying what is.
class ParseFailureInterceptor final : public Interceptor {
 public:
  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const ::grpc::Status status = methods->GetSendStatus();
      if (status.error_code() == ::grpc::StatusCode::UNIMPLEMENTED &&
          status.error_message().empty()) {
        methods->ModifySendStatus({::grpc::StatusCode::INTERNAL, "Unable to parse request"});
      }
    }
    methods->Proceed();
  }
};

class ParseFailureFactory final : public ::grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    const bool is_unary = info->type() == ServerRpcInfo::Type::UNARY;
    return is_unary && IsOurs(info->method()) ? new ParseFailureInterceptor : nullptr;
  }
};

}  // namespace

std::unique_ptr<::grpc::experimental::ServerInterceptorFactoryInterface> MakeParseFailureFactory() {
  return std::make_unique<ParseFailureFactory>();
}

}  // namespace inflight::kserve_grpc
