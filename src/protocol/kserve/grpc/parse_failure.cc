// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/parse_failure.h"

#include <string>
#include <unordered_set>

#include "grpc_service.grpc.pb.h"
#include "health.grpc.pb.h"

namespace inflight::kserve_grpc {
namespace {

using ::grpc::experimental::InterceptionHookPoints;
using ::grpc::experimental::Interceptor;
using ::grpc::experimental::InterceptorBatchMethods;
using ::grpc::experimental::ServerRpcInfo;

// Of our unary methods but ModelInfer.
std::unordered_set<std::string> TypedMethods() {
  std::unordered_set<std::string> paths;
  for (const auto* file : {::inference::ModelInferRequest::descriptor()->file(),
                           ::grpc::health::v1::HealthCheckRequest::descriptor()->file()}) {
    const auto& service = *file->service(0);
    for (int i = 0; i < service.method_count(); ++i) {
      const auto& method = *service.method(i);
      if (method.client_streaming() || method.server_streaming()) continue;
      if (method.name() == "ModelInfer") continue;
      paths.insert("/" + service.full_name() + "/" + method.name());
    }
  }
  return paths;
}

// Our own methods never answer UNIMPLEMENTED without saying what is.
class ParseFailureInterceptor final : public Interceptor {
 public:
  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const ::grpc::Status status = methods->GetSendStatus();
      if (status.error_code() == ::grpc::StatusCode::UNIMPLEMENTED &&
          status.error_message().empty()) {
        methods->ModifySendStatus(NoMessage());
      }
    }
    methods->Proceed();
  }
};

class ParseFailureFactory final : public ::grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    return typed_methods_.contains(info->method()) ? new ParseFailureInterceptor : nullptr;
  }

 private:
  const std::unordered_set<std::string> typed_methods_ = TypedMethods();
};

}  // namespace

::grpc::Status NoMessage() { return {::grpc::StatusCode::INTERNAL, "Unable to parse request"}; }

std::unique_ptr<::grpc::experimental::ServerInterceptorFactoryInterface> MakeParseFailureFactory() {
  return std::make_unique<ParseFailureFactory>();
}

}  // namespace inflight::kserve_grpc
