// SPDX-License-Identifier: Apache-2.0
// What a client is told that asks which services there are and what their messages are
// (docs/reference/protocol/grpc.md, "Reflection").
//
// Described are the files of the services and what these import; of what else the process has
// messages for, nothing is told.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "inflight/status.h"
#include "reflection.pb.h"

namespace inflight::kserve_grpc {

// Threads: constant once it is made.
class Reflection {
 public:
  using Request = ::grpc::reflection::v1::ServerReflectionRequest;
  using Response = ::grpc::reflection::v1::ServerReflectionResponse;

  // Full names, in the order in which they are told; each is in protobuf's generated pool.
  explicit Reflection(std::vector<std::string> services);

  // What cannot be answered has an error in its response.
  void Answer(const Request& request, Response& response) const;

 private:
  using Files = ::grpc::reflection::v1::FileDescriptorResponse;

  void Describe(const google::protobuf::FileDescriptor& generated);
  Status Find(const Request& request, Response& response) const;
  Status FindExtension(const ::grpc::reflection::v1::ExtensionRequest& asked, Files& out) const;
  Status ListExtensions(const std::string& type,
                        ::grpc::reflection::v1::ExtensionNumberResponse& out) const;

  const std::vector<std::string> services_;
  // Copies of what is described. The generated pool has more, and locks and searches for names that
  // it does not know.
  google::protobuf::DescriptorPool pool_;
  std::unordered_map<const google::protobuf::FileDescriptor*, Files> files_;  // with their imports
};

}  // namespace inflight::kserve_grpc
