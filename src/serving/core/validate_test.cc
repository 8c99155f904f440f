// SPDX-License-Identifier: Apache-2.0
// Expected texts are those that a Triton server was recorded to answer.
#include "serving/core/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serving/configuration/model_config.h"

namespace inflight::serving {
namespace {

using ::testing::StartsWith;

::inference::ModelConfig Config(const char* text) { return ParseModelConfig(text)->config; }

const auto& Simple() {
  static const auto config = Config(R"(
    name: "simple" max_batch_size: 8
    input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [16] },
            { name: "INPUT1" data_type: TYPE_INT32 dims: [16] } ]
    output { name: "OUTPUT0" data_type: TYPE_INT32 dims: [16] })");
  return config;
}

Tensor Zeros(std::string name, DataType type, std::vector<int64_t> shape, size_t bytes) {
  return Tensor::FromBytes(std::move(name), type, std::move(shape), std::string(bytes, '\0'));
}

Request Good() {
  Request request;
  request.inputs = {Zeros("INPUT0", DataType::kInt32, {1, 16}, 64),
                    Zeros("INPUT1", DataType::kInt32, {1, 16}, 64)};
  return request;
}

TEST(ValidateRequest, AGoodRequestPasses) {
  EXPECT_TRUE(ValidateRequest(Simple(), Good()).ok());
  Request request = Good();
  request.requested_outputs = {"OUTPUT0"};
  EXPECT_TRUE(ValidateRequest(Simple(), request).ok());
}

TEST(ValidateRequest, MissingInputsAreListed) {
  Request request = Good();
  request.inputs.pop_back();
  request.id = "m1";
  EXPECT_EQ(ValidateRequest(Simple(), request).message(),
            "[request id: m1] expected 2 inputs but got 1 inputs for model 'simple'. Got input(s) "
            "['INPUT0'], but missing required input(s) ['INPUT1']. Please provide all required "
            "input(s).");
}

TEST(ValidateRequest, TooManyInputsMissNothing) {
  Request request = Good();
  request.inputs.push_back(Zeros("INPUT2", DataType::kInt32, {1, 16}, 64));
  EXPECT_EQ(ValidateRequest(Simple(), request).message(),
            "[request id: <id_unknown>] expected 2 inputs but got 3 inputs for model 'simple'. Got "
            "input(s) ['INPUT0','INPUT1','INPUT2'], but missing required input(s) ]. Please "
            "provide all required input(s).");
}

TEST(ValidateRequest, OptionalInputsWidenTheNumber) {
  const auto config = Config(R"(
    name: "multi_io"
    input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [-1] },
            { name: "INPUT1" data_type: TYPE_FP32 dims: [-1] optional: true } ])");
  EXPECT_EQ(ValidateRequest(config, {}).message(),
            "[request id: <id_unknown>] expected number of inputs between 1 and 2 but got 0 inputs "
            "for model 'multi_io'. Got input(s) [], but missing required input(s) ['INPUT0']. "
            "Please provide all required input(s).");
}

TEST(ValidateRequest, UnknownNamesHaveNoRequestId) {
  Request input = Good();
  input.inputs[1].name = "NOPE";
  EXPECT_EQ(ValidateRequest(Simple(), input).message(),
            "unexpected inference input 'NOPE' for model 'simple'");
  Request output = Good();
  output.requested_outputs = {"NOPE"};
  EXPECT_EQ(ValidateRequest(Simple(), output).message(),
            "unexpected inference output 'NOPE' for model 'simple'");
}

TEST(ValidateRequest, DatatypesMustMatch) {
  Request request = Good();
  request.inputs[0].datatype = DataType::kFp32;
  EXPECT_EQ(ValidateRequest(Simple(), request).message(),
            "[request id: <id_unknown>] inference input 'INPUT0' data-type is 'FP32', but model "
            "'simple' expects 'INT32'");
  request.inputs[0].datatype = DataType::kInvalid;
  EXPECT_EQ(ValidateRequest(Simple(), request).message(),
            "[request id: <id_unknown>] inference input 'INPUT0' data-type is '<invalid>', but "
            "model 'simple' expects 'INT32'");
}

TEST(ValidateRequest, ShapesMustMatch) {
  Request request = Good();
  request.inputs[0] = Zeros("INPUT0", DataType::kInt32, {1, 8}, 32);
  EXPECT_EQ(ValidateRequest(Simple(), request).message(),
            "[request id: <id_unknown>] unexpected shape for input 'INPUT0' for model 'simple'. "
            "Expected [-1,16], got [1,8]. NOTE: Setting a non-zero max_batch_size in the model "
            "config requires a batch dimension to be prepended to each input shape. If you want to "
            "specify the full shape including the batch dim in your input dims config, try setting "
            "max_batch_size to zero. See the model configuration docs for more info on "
            "max_batch_size.");
  const auto fixed =
      Config(R"(name: "fixed_nb" input { name: "INPUT0" data_type: TYPE_FP32 dims: [2, 3] })");
  Request unbatched;
  unbatched.inputs = {Zeros("INPUT0", DataType::kFp32, {3, 2}, 24)};
  EXPECT_EQ(ValidateRequest(fixed, unbatched).message(),
            "[request id: <id_unknown>] unexpected shape for input 'INPUT0' for model 'fixed_nb'. "
            "Expected [2,3], got [3,2]. ");
}

TEST(ValidateRequest, BatchSizesAreBoundedAndEqual) {
  Request request;
  request.inputs = {Zeros("INPUT0", DataType::kInt32, {9, 16}, 9 * 64),
                    Zeros("INPUT1", DataType::kInt32, {9, 16}, 9 * 64)};
  EXPECT_EQ(ValidateRequest(Simple(), request).message(),
            "[request id: <id_unknown>] inference request batch-size must be <= 8 for 'simple'");
  request.inputs[1] = Zeros("INPUT1", DataType::kInt32, {8, 16}, 8 * 64);
  EXPECT_THAT(ValidateRequest(Simple(), request).message(),
              StartsWith("[request id: <id_unknown>] input 'INPUT0' batch size does not match"));
}

TEST(ValidateRequest, ByteSizesMustMatch) {
  Request request = Good();
  request.inputs[0] = Zeros("INPUT0", DataType::kInt32, {1, 16}, 40);
  EXPECT_EQ(ValidateRequest(Simple(), request).message(),
            "[request id: <id_unknown>] input byte size mismatch for input 'INPUT0' for model "
            "'simple'. Expected 64, got 40");
}

TEST(ValidateRequest, ShapesWhoseSizeOverflowsAreErrors) {
  const auto config =
      Config(R"(name: "m" input { name: "I" data_type: TYPE_FP32 dims: [-1, -1] })");
  Request request;
  const std::string too_large =
      "byte size for tensor 'I' exceeds maximum size of 9223372036854775807";
  request.inputs = {Zeros("I", DataType::kFp32, {int64_t{1} << 40, int64_t{1} << 40}, 4)};
  EXPECT_EQ(ValidateRequest(config, request).message(), too_large);
  request.inputs = {Zeros("I", DataType::kFp32, {int64_t{1} << 62, 1}, 0)};
  EXPECT_EQ(ValidateRequest(config, request).message(), too_large);
}

TEST(ValidateRequest, NegativeDimensionsAreToldInTheOrderOfTheChecks) {
  Request request = Good();
  request.inputs[0] = Zeros("INPUT0", DataType::kInt32, {1, -1}, 64);
  EXPECT_EQ(ValidateRequest(Simple(), request).message(),
            "[request id: <id_unknown>] All input dimensions should be specified for input "
            "'INPUT0' for model 'simple', got [1,-1]");
  request.inputs[0] = Zeros("INPUT0", DataType::kInt32, {1, -2}, 64);
  EXPECT_THAT(ValidateRequest(Simple(), request).message(),
              StartsWith("[request id: <id_unknown>] unexpected shape for input 'INPUT0'"));
  request.inputs[0].datatype = DataType::kFp32;
  EXPECT_THAT(ValidateRequest(Simple(), request).message(),
              StartsWith("[request id: <id_unknown>] inference input 'INPUT0' data-type is"));
  const auto variable =
      Config(R"(name: "m" max_batch_size: 8 input { name: "I" data_type: TYPE_FP32 dims: [-1] })");
  Request one;
  one.inputs = {Zeros("I", DataType::kFp32, {1, -2}, 4)};
  EXPECT_EQ(ValidateRequest(variable, one).message(),
            "tensor 'I' contains an invalid dimension [1,-2]");
  one.inputs = {Zeros("I", DataType::kFp32, {-1, 1}, 4)};
  EXPECT_EQ(ValidateRequest(variable, one).message(),
            "[request id: <id_unknown>] inference request batch-size must be <= 8 for 'm'");
}

TEST(ValidateRequest, WhatIsGivenTwiceComesBeforeItsNumber) {
  Request request = Good();
  request.inputs.push_back(request.inputs[0]);
  EXPECT_EQ(ValidateRequest(Simple(), request).message(),
            "[request id: <id_unknown>] input 'INPUT0' already exists in request");
  request = Good();
  request.requested_outputs = {"OUTPUT0", "OUTPUT0"};
  EXPECT_EQ(ValidateRequest(Simple(), request).message(),
            "[request id: <id_unknown>] output 'OUTPUT0' already exists in request");
}

TEST(ValidateRequest, StringsAreCounted) {
  const auto config = Config(R"(
    name: "id_bytes" max_batch_size: 4 input { name: "INPUT0" data_type: TYPE_STRING dims: [-1] })");
  const auto error = [&](std::string bytes, std::vector<int64_t> shape) {
    Request request;
    request.inputs = {
        Tensor::FromBytes("INPUT0", DataType::kBytes, std::move(shape), std::move(bytes))};
    return ValidateRequest(config, request).message();
  };
  EXPECT_EQ(error(std::string("\1\0\0\0a\1\0\0\0b", 10), {1, 2}), "");
  EXPECT_EQ(error(std::string("\1\0\0\0a\1\0\0\0b", 10), {1, 3}),
            "[request id: <id_unknown>] expected 3 string elements for inference input 'INPUT0' "
            "for model 'id_bytes', got 2");
  EXPECT_EQ(error(std::string("\1\0\0\0a\1\0\0\0b", 10), {1, 1}),
            "[request id: <id_unknown>] unexpected number of string elements 2 for inference input "
            "'INPUT0' for model 'id_bytes', expecting 1");
  EXPECT_EQ(error(std::string("\1\0", 2), {1, 1}),
            "[request id: <id_unknown>] incomplete string length indicator for inference input "
            "'INPUT0' for model 'id_bytes', expecting 4 bytes but only 2 bytes available. Please "
            "make sure the string length indicator is in one buffer.");
}

}  // namespace
}  // namespace inflight::serving
