// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/reflection.h"

#include <google/protobuf/descriptor.pb.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace inflight::kserve_grpc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

constexpr char kDescribed[] = " in the files that describe this server's services";

Status NoType(const char* field, const std::string& name) {
  return NotFound(std::string(field) + ": no message is called '" + name + "'" + kDescribed);
}

}  // namespace

Reflection::Reflection(std::vector<std::string> services) : services_(std::move(services)) {
  for (const std::string& name : services_) {
    const auto* service = DescriptorPool::generated_pool()->FindServiceByName(name);
    CHECK(service != nullptr);
    Describe(*service->file());
  }
}

void Reflection::Describe(const FileDescriptor& generated) {
  if (pool_.FindFileByName(generated.name()) != nullptr) return;
  for (int i = 0; i < generated.dependency_count(); ++i) Describe(*generated.dependency(i));
  google::protobuf::FileDescriptorProto description;
  generated.CopyTo(&description);
  const FileDescriptor* file = pool_.BuildFile(description);
  CHECK(file != nullptr);
  auto& all = *files_[file].mutable_file_descriptor_proto();
  *all.Add() = description.SerializeAsString();
  for (int i = 0; i < file->dependency_count(); ++i) {
    for (const std::string& imported : files_.at(file->dependency(i)).file_descriptor_proto()) {
      if (std::find(all.begin(), all.end(), imported) == all.end()) *all.Add() = imported;
    }
  }
}

void Reflection::Answer(const Request& request, Response& response) const {
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  if (const Status status = Find(request, response); !status.ok()) {
    auto& error = *response.mutable_error_response();
    error.set_error_code(static_cast<int>(status.code()));
    error.set_error_message(status.message());
  }
}

Status Reflection::Find(const Request& request, Response& response) const {
  switch (request.message_request_case()) {
    case Request::kListServices: {
      auto& list = *response.mutable_list_services_response();
      for (const std::string& name : services_) list.add_service()->set_name(name);
      return Status::Ok();
    }
    case Request::kFileByFilename: {
      const std::string& name = request.file_by_filename();
      const FileDescriptor* file = pool_.FindFileByName(name);
      if (file == nullptr) {
        return NotFound("file_by_filename: no file '" + name +
                        "' describes this server's services");
      }
      *response.mutable_file_descriptor_response() = files_.at(file);
      return Status::Ok();
    }
    case Request::kFileContainingSymbol: {
      const std::string& name = request.file_containing_symbol();
      const FileDescriptor* file = pool_.FindFileContainingSymbol(name);
      if (file == nullptr) {
        return NotFound("file_containing_symbol: nothing is called '" + name + "'" + kDescribed);
      }
      *response.mutable_file_descriptor_response() = files_.at(file);
      return Status::Ok();
    }
    case Request::kFileContainingExtension:
      return FindExtension(request.file_containing_extension(),
                           *response.mutable_file_descriptor_response());
    case Request::kAllExtensionNumbersOfType:
      return ListExtensions(request.all_extension_numbers_of_type(),
                            *response.mutable_all_extension_numbers_response());
    case Request::MESSAGE_REQUEST_NOT_SET:
      break;
  }
  return InvalidArgument(
      "the request asks nothing that is known; it has one of list_services, file_by_filename, "
      "file_containing_symbol, file_containing_extension and all_extension_numbers_of_type");
}

Status Reflection::FindExtension(const ::grpc::reflection::v1::ExtensionRequest& asked,
                                 Files& out) const {
  const std::string& name = asked.containing_type();
  const Descriptor* type = pool_.FindMessageTypeByName(name);
  if (type == nullptr) return NoType("file_containing_extension", name);
  const FieldDescriptor* extension = pool_.FindExtensionByNumber(type, asked.extension_number());
  if (extension == nullptr) {
    return NotFound("file_containing_extension: '" + name + "' has no extension of the number " +
                    std::to_string(asked.extension_number()));
  }
  out = files_.at(extension->file());
  return Status::Ok();
}

Status Reflection::ListExtensions(const std::string& type,
                                  ::grpc::reflection::v1::ExtensionNumberResponse& out) const {
  const Descriptor* found = pool_.FindMessageTypeByName(type);
  if (found == nullptr) return NoType("all_extension_numbers_of_type", type);
  std::vector<const FieldDescriptor*> extensions;
  pool_.FindAllExtensions(found, &extensions);
  out.set_base_type_name(type);
  for (const FieldDescriptor* extension : extensions) out.add_extension_number(extension->number());
  return Status::Ok();
}

}  // namespace inflight::kserve_grpc
