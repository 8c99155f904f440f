// SPDX-License-Identifier: Apache-2.0
// A gRPC service made of rows in place of a generated class: messages are raw (message_bytes.h),
// and a function answers each method. Uses of grpc::Service what generated code uses.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>

#include <functional>

#include "protocol/kserve/grpc/unary_call.h"

namespace inflight::kserve_grpc {

class RawService : public ::grpc::Service {
 public:
  using Bytes = ::grpc::ByteBuffer;
  using Context = ::grpc::CallbackServerContext;
  using Reactor = ::grpc::ServerUnaryReactor;
  using StreamReactor = ::grpc::ServerBidiReactor<Bytes, Bytes>;

 protected:
  // `path` is "/package.Service/Method" and outlives the service.
  void AddUnary(const char* path, std::function<Reactor*(const UnaryCall&)> answer);
  void AddStream(const char* path, std::function<StreamReactor*(Context*)> start);

 private:
  void Add(const char* path, ::grpc::internal::RpcMethod::RpcType type,
           ::grpc::internal::MethodHandler* handler);

  int num_methods_ = 0;
};

}  // namespace inflight::kserve_grpc
