// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/raw_service.h"

#include <grpcpp/impl/codegen/server_callback_handlers.h>

#include <utility>

namespace inflight::kserve_grpc {

using ::grpc::internal::RpcMethod;

void RawService::AddUnary(const char* path, std::function<Reactor*(const UnaryCall&)> answer) {
  Add(path, RpcMethod::NORMAL_RPC,
      new ::grpc::internal::CallbackUnaryHandler<Bytes, Bytes>(
          [answer = std::move(answer)](Context* context, const Bytes* request, Bytes* response) {
            return answer({context, request, response});
          }));
}

void RawService::AddStream(const char* path, std::function<StreamReactor*(Context*)> start) {
  Add(path, RpcMethod::BIDI_STREAMING,
      new ::grpc::internal::CallbackBidiHandler<Bytes, Bytes>(std::move(start)));
}

// gRPC owns what is made here.
void RawService::Add(const char* path, RpcMethod::RpcType type,
                     ::grpc::internal::MethodHandler* handler) {
  AddMethod(new ::grpc::internal::RpcServiceMethod(path, type, nullptr));
  MarkMethodRawCallback(num_methods_++, handler);
}

}  // namespace inflight::kserve_grpc
