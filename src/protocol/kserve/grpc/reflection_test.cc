// SPDX-License-Identifier: Apache-2.0
// What server reflection answers to each kind of request. Expected are the descriptors that
// protobuf made of the files in src/proto.
#include "protocol/kserve/grpc/reflection.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grpc_service.pb.h"
#include "health.pb.h"

namespace inflight::kserve_grpc {
namespace {

using ::grpc::health::v1::HealthCheckRequest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kInvalidArgument = 3, kNotFound = 5;  // gRPC's numbers
constexpr char kService[] = "inference.GRPCInferenceService";

Reflection::Response AnswerTo(const Reflection::Request& request) {
  static const Reflection reflection({kService});
  Reflection::Response response;
  reflection.Answer(request, response);
  return response;
}

Reflection::Response AnswerToSymbol(const std::string& symbol) {
  Reflection::Request request;
  request.set_file_containing_symbol(symbol);
  return AnswerTo(request);
}

std::vector<std::string> FileNames(const Reflection::Response& response) {
  std::vector<std::string> names;
  for (const std::string& bytes : response.file_descriptor_response().file_descriptor_proto()) {
    google::protobuf::FileDescriptorProto file;
    EXPECT_TRUE(file.ParseFromString(bytes));
    names.push_back(file.name());
  }
  return names;
}

TEST(ReflectionTest, TheServicesAreListed) {
  const Reflection reflection({kService, "grpc.health.v1.Health"});
  Reflection::Request request;
  request.set_list_services("*");
  Reflection::Response response;
  reflection.Answer(request, response);
  const auto& services = response.list_services_response().service();
  ASSERT_EQ(services.size(), 2);
  EXPECT_EQ(services[0].name(), kService);
  EXPECT_EQ(services[1].name(), "grpc.health.v1.Health");
}

TEST(ReflectionTest, AFileComesFirstAndWithAllThatItImports) {
  Reflection::Request request;
  request.set_file_by_filename("grpc_service.proto");
  const Reflection::Response response = AnswerTo(request);
  EXPECT_THAT(FileNames(response), ElementsAre("grpc_service.proto", "model_config.proto"));
  google::protobuf::FileDescriptorProto expected;
  ::inference::ServerLiveRequest::descriptor()->file()->CopyTo(&expected);
  EXPECT_EQ(response.file_descriptor_response().file_descriptor_proto(0),
            expected.SerializeAsString());
  request.set_file_by_filename("model_config.proto");
  EXPECT_THAT(FileNames(AnswerTo(request)), ElementsAre("model_config.proto"));
}

TEST(ReflectionTest, SymbolsOfEachKindLeadToTheirFile) {
  for (const char* symbol : {
           "inference.GRPCInferenceService",
           "inference.GRPCInferenceService.ModelInfer",
           "inference.ModelInferRequest",
           "inference.ModelInferRequest.InferInputTensor",
           "inference.ModelInferRequest.model_name",
           "inference.InferParameter.parameter_choice",
       }) {
    EXPECT_THAT(FileNames(AnswerToSymbol(symbol)),
                ElementsAre("grpc_service.proto", "model_config.proto"))
        << symbol;
  }
  for (const char* symbol :
       {"inference.ModelConfig", "inference.DataType", "inference.TYPE_STRING"}) {
    EXPECT_THAT(FileNames(AnswerToSymbol(symbol)), ElementsAre("model_config.proto")) << symbol;
  }
}

TEST(ReflectionTest, WhatNothingIsCalledIsNotFound) {
  for (const char* symbol :
       {"", ".", "inference.", "inference.Nope", ".inference.ModelConfig", "inference.ModelConfig.",
        "inference.ModelConfig.nope", "ModelConfig", "INFERENCE.MODELCONFIG"}) {
    const auto error = AnswerToSymbol(symbol).error_response();
    EXPECT_EQ(error.error_code(), kNotFound) << symbol;
    EXPECT_THAT(error.error_message(), HasSubstr("'" + std::string(symbol) + "'"));
  }
  for (const char* name :
       {"", "nope.proto", "src/proto/model_config.proto", "../model_config.proto"}) {
    Reflection::Request request;
    request.set_file_by_filename(name);
    const auto error = AnswerTo(request).error_response();
    EXPECT_EQ(error.error_code(), kNotFound) << name;
    EXPECT_THAT(error.error_message(), HasSubstr("'" + std::string(name) + "'"));
  }
}

TEST(ReflectionTest, OtherFilesOfTheProcessAreNotTold) {
  for (const auto* other : {HealthCheckRequest::descriptor(), Reflection::Request::descriptor(),
                            google::protobuf::FileDescriptorProto::descriptor()}) {
    EXPECT_EQ(AnswerToSymbol(other->full_name()).error_response().error_code(), kNotFound);
    Reflection::Request request;
    request.set_file_by_filename(other->file()->name());
    EXPECT_EQ(AnswerTo(request).error_response().error_code(), kNotFound);
  }
}

TEST(ReflectionTest, MessagesHaveNoExtensions) {
  Reflection::Request request;
  request.set_all_extension_numbers_of_type("inference.ModelConfig");
  const auto numbers = AnswerTo(request).all_extension_numbers_response();
  EXPECT_EQ(numbers.base_type_name(), "inference.ModelConfig");
  EXPECT_EQ(numbers.extension_number_size(), 0);
  request.mutable_file_containing_extension()->set_containing_type("inference.ModelConfig");
  for (const int number : {0, 1, -1, 1000}) {
    request.mutable_file_containing_extension()->set_extension_number(number);
    const auto error = AnswerTo(request).error_response();
    EXPECT_EQ(error.error_code(), kNotFound);
    EXPECT_THAT(error.error_message(), HasSubstr("no extension of the number"));
  }
}

TEST(ReflectionTest, ExtensionsOfNoMessageAreNotFound) {
  // A service and a field are names, but not of messages.
  for (const char* type : {"", "inference.Nope", kService, "inference.ModelConfig.name"}) {
    Reflection::Request request;
    request.set_all_extension_numbers_of_type(type);
    const Reflection::Response response = AnswerTo(request);
    EXPECT_EQ(response.error_response().error_code(), kNotFound) << type;
    EXPECT_FALSE(response.has_all_extension_numbers_response());
    request.mutable_file_containing_extension()->set_containing_type(type);
    EXPECT_EQ(AnswerTo(request).error_response().error_code(), kNotFound) << type;
  }
}

TEST(ReflectionTest, ARequestForNothingIsInvalid) {
  Reflection::Request request;
  request.set_host("a host");
  const auto error = AnswerTo(request).error_response();
  EXPECT_EQ(error.error_code(), kInvalidArgument);
  EXPECT_THAT(error.error_message(), HasSubstr("list_services, file_by_filename"));
}

TEST(ReflectionTest, TheRequestComesBackWithTheAnswer) {
  Reflection::Request request;
  request.set_host("a host");
  for (const char* symbol : {"inference.ModelConfig", "nope"}) {
    request.set_file_containing_symbol(symbol);
    const Reflection::Response response = AnswerTo(request);
    EXPECT_EQ(response.valid_host(), "a host");
    EXPECT_EQ(response.original_request().SerializeAsString(), request.SerializeAsString());
  }
}

}  // namespace
}  // namespace inflight::kserve_grpc
