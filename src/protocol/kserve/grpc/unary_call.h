// SPDX-License-Identifier: Apache-2.0
// How unary RPCs are served, whatever their messages: is the API open to the client, parse, handle,
// write.
#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>

#include "protocol/kserve/grpc/access.h"
#include "protocol/kserve/grpc/grpc_status.h"
#include "protocol/kserve/grpc/message_bytes.h"

namespace inflight::kserve_grpc {

// An RPC as gRPC hands it over: it owns all three until the RPC has ended.
struct UnaryCall {
  ::grpc::CallbackServerContext* context;
  const ::grpc::ByteBuffer* request;
  ::grpc::ByteBuffer* response;

  // The request's bytes, which are then freed with the result. gRPC does not look at them again.
  ::grpc::ByteBuffer TakeRequest() const;

  // Ends the RPC; `response` is sent with an OK status alone, and must be written then.
  ::grpc::ServerUnaryReactor* Finish(const ::grpc::Status& status) const;
};

// What the calls of a server have in common. Threads: constant.
class UnaryCalls {
 public:
  using Reactor = ::grpc::ServerUnaryReactor;

  // `access` outlives the calls.
  UnaryCalls(const Access& access, int64_t max_message_bytes)
      : access_(access), max_message_bytes_(max_message_bytes) {}

  // Answers at once: `handle` fills the response and returns the status.
  template <typename Request, typename Response, typename Handle>
  Reactor* Answer(const UnaryCall& call, kserve::Api api, Handle handle) const {
    Request request;
    if (Reactor* refused = Open(call, api, request)) return refused;
    Response response;
    const Status status = handle(request, response);
    return call.Finish(status.ok() ? WriteMessage(response, *call.response) : ToGrpcStatus(status));
  }

  // Parses the request. Null, or the answer to a client who may not use the API or sent no message.
  Reactor* Open(const UnaryCall& call, kserve::Api api,
                google::protobuf::MessageLite& request) const;

  // The answer to a client who may not use the API; null for one who may.
  Reactor* Refuse(const UnaryCall& call, kserve::Api api) const;

 private:
  const Access& access_;
  const int64_t max_message_bytes_;
};

}  // namespace inflight::kserve_grpc
