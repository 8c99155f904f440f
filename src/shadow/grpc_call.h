// SPDX-License-Identifier: Apache-2.0
// Calls of gRPC as lines of a file, to two servers, and their answers as answers over HTTP, which
// are compared (docs/shadow.md, "Over gRPC").
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inflight/status.h"
#include "protocol/grpc_client/grpc_client.h"
#include "shadow/both_servers.h"

namespace inflight::shadow {

struct RecordedCall {
  std::string path;  // "/inference.GRPCInferenceService/ModelInfer"
  grpc_client::Metadata metadata;
  std::vector<std::string> messages;  // serialized; at least one
};

// kInvalidArgument says what of the line is wrong.
Result<RecordedCall> ParseRecordedCall(const std::string& line);

// The line that is read back as the call; empty for a call of another service.
std::string WriteRecordedCall(const RecordedCall& call);

// Whether its answer is a stream.
bool IsStream(const std::string& path);

// A host and a port, behind "grpc://", or over TLS "grpcs://".
struct GrpcAddress {
  std::string host;
  int port = 0;
  bool is_tls = false;
};
bool IsGrpcUrl(std::string_view url);
Result<GrpcAddress> ParseGrpcUrl(std::string_view url);

// An answer of one response is its JSON, one of a stream is an event for each response; the status
// is gRPC's number. Raw contents stand as `data` of their outputs, of a stream's text outputs as
// members of the event.
http_client::Answer AnswerOf(const std::string& path, const std::vector<std::string>& responses,
                             const grpc_client::GrpcEnd& end);

// The call's answer of a server that responded with `responses`, or whose connection failed.
Result<http_client::Answer> AnswerOrFailure(const std::string& path,
                                            const std::vector<std::string>& responses,
                                            const grpc_client::GrpcEnd& end);

// Asks both at the same time and waits for their answers; `options` says how long. A server that
// cannot be reached, breaks off or is too slow gives none.
Outcome CallBoth(grpc_client::GrpcClient& old_server, grpc_client::GrpcClient& new_server,
                 const RecordedCall& call, const ShadowOptions& options);

}  // namespace inflight::shadow
