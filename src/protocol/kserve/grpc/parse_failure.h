// SPDX-License-Identifier: Apache-2.0
// What a client is told when the bytes of its call are no message.
#pragma once

#include <grpcpp/support/server_interceptor.h>
#include <grpcpp/support/status.h>

#include <memory>

namespace inflight::kserve_grpc {

::grpc::Status NoMessage();  // INTERNAL `Unable to parse request`

// gRPC's callback API answers UNIMPLEMENTED without a text, as if there were no such method; with
// this, unary methods of our services answer INTERNAL `Unable to parse request`, as recorded from a
// Triton server. Inference is left alone: it is served raw and parses for itself.
std::unique_ptr<::grpc::experimental::ServerInterceptorFactoryInterface> MakeParseFailureFactory();

}  // namespace inflight::kserve_grpc
