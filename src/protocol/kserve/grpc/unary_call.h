// SPDX-License-Identifier: Apache-2.0
// How unary RPCs are served, whatever their messages: parse, handle, write.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>

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

  // Of the client: what handling the call takes is charged to it.
  std::shared_ptr<AccountShare> share;

  // Ends the RPC; `response` is sent with an OK status alone, and must be written then.
  ::grpc::ServerUnaryReactor* Finish(const ::grpc::Status& status) const;
};

// Parses the request. Null, or the answer to a client whose bytes are no such message.
::grpc::ServerUnaryReactor* Parse(const UnaryCall& call, int64_t max_message_bytes,
                                  google::protobuf::Message& request);

// Answers at once: `handle` fills the response and returns the status.
template <typename Request, typename Response, typename Handle>
::grpc::ServerUnaryReactor* Answer(const UnaryCall& call, int64_t max_message_bytes,
                                   Handle handle) {
  Request request;
  if (auto* refused = Parse(call, max_message_bytes, request)) return refused;
  Response response;
  const Status status = handle(request, response);
  return call.Finish(status.ok() ? WriteMessage(response, *call.response) : ToGrpcStatus(status));
}

}  // namespace inflight::kserve_grpc
