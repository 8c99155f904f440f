// SPDX-License-Identifier: Apache-2.0
// Conversion between gRPC messages and serving types. Texts are those recorded from a Triton
// server (tests/protocol/recorded: infer, infer_contents, parameters, shared_memory_infer).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "protocol/kserve/grpc/fake_server.h"
#include "protocol/kserve/grpc/infer_request.h"
#include "protocol/kserve/grpc/infer_response.h"
#include "protocol/kserve/grpc/model_messages.h"

namespace inflight::kserve_grpc {
namespace {

const serving::SharedMemory kNoRegions({.clients_may_register = true, .prefixes = {}});

using ::inference::InferTensorContents;
using ::inference::ModelInferRequest;
using serving::DataType;
using ::testing::ElementsAre;

std::shared_ptr<ModelInferRequest> Message() {
  auto message = std::make_shared<ModelInferRequest>();
  message->set_model_name("m");
  return message;
}

ModelInferRequest::InferInputTensor& AddInput(ModelInferRequest& message, const char* datatype,
                                              std::vector<int64_t> shape) {
  auto& input = *message.add_inputs();
  input.set_name("INPUT0");
  input.set_datatype(datatype);
  input.mutable_shape()->Add(shape.begin(), shape.end());
  return input;
}

Result<InferRequest> Parse(const std::shared_ptr<ModelInferRequest>& message) {
  return ParseInferRequest(message, kNoRegions.Of({}), /*received_ns=*/5);
}

std::string ParseError(const std::shared_ptr<ModelInferRequest>& message) {
  const auto parsed = Parse(message);
  return parsed.ok() ? "parsed" : parsed.status().ToString();
}

template <typename T>
std::vector<T> Values(const serving::Tensor& tensor) {
  std::vector<T> values(tensor.data.size() / sizeof(T));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

// --- tensors ---

TEST(InferRequestTest, RawTensorsShareTheMessage) {
  auto message = Message();
  message->set_id("r1");
  message->set_model_version("3");
  AddInput(*message, "INT32", {1, 2});
  message->add_raw_input_contents(std::string("\1\0\0\0\2\0\0\0", 8));
  const char* bytes = message->raw_input_contents(0).data();
  message->add_outputs()->set_name("OUT");
  auto parsed = Parse(message);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  message.reset();  // the tensor keeps it alive

  const serving::Request& request = parsed->request;
  EXPECT_EQ(request.model_name, "m");
  EXPECT_EQ(request.model_version, "3");
  EXPECT_EQ(request.id, "r1");
  EXPECT_EQ(request.received_ns, 5);
  EXPECT_THAT(request.requested_outputs, ElementsAre("OUT"));
  ASSERT_EQ(request.inputs.size(), 1U);
  EXPECT_EQ(request.inputs[0].datatype, DataType::kInt32);
  EXPECT_THAT(request.inputs[0].shape, ElementsAre(1, 2));
  EXPECT_EQ(reinterpret_cast<const char*>(request.inputs[0].data.data()), bytes);
  EXPECT_THAT(Values<int32_t>(request.inputs[0]), ElementsAre(1, 2));
}

TEST(InferRequestTest, SurplusRawEntriesAreIgnoredAndMissingOnesAreNot) {
  auto message = Message();
  AddInput(*message, "INT8", {1});
  message->add_raw_input_contents("a");
  message->add_raw_input_contents("surplus");
  EXPECT_EQ(ParseError(message), "parsed");
  AddInput(*message, "INT8", {1});
  AddInput(*message, "INT8", {1}).set_name("INPUT2");
  EXPECT_EQ(ParseError(message),
            "INVALID_ARGUMENT: unable to find data for input tensor 'INPUT2' for model 'm' in "
            "request.");
}

TEST(InferRequestTest, NoDataAtAllIsAnError) {
  auto message = Message();
  AddInput(*message, "INT32", {1, 0});
  EXPECT_EQ(ParseError(message),
            "INVALID_ARGUMENT: unable to find data for input tensor 'INPUT0' for model 'm' in "
            "request.");
  message->mutable_inputs(0)->mutable_contents();  // present and empty: zero elements
  EXPECT_EQ(ParseError(message), "parsed");
}

TEST(InferRequestTest, ContentsBesideRawAreAnError) {
  auto message = Message();
  AddInput(*message, "INT32", {1}).mutable_contents()->add_int_contents(1);
  message->add_raw_input_contents("abcd");
  EXPECT_EQ(ParseError(message),
            "INVALID_ARGUMENT: contents field must not be specified when using raw_input_contents "
            "for 'INPUT0' for model 'm'");
}

TEST(InferRequestTest, ContentsBecomeLittleEndianBytesOfTheDatatype) {
  auto message = Message();
  const auto add = [&](const char* datatype) -> InferTensorContents& {
    return *AddInput(*message, datatype, {1}).mutable_contents();
  };
  for (bool v : {true, false}) add("BOOL").add_bool_contents(v);
  add("INT16").add_int_contents(-32768);
  add("UINT8").add_uint_contents(300);  // the low byte, as recorded
  add("UINT64").add_uint64_contents(18446744073709551615ULL);
  add("FP64").add_fp64_contents(-2);
  auto& strings = add("BYTES");
  strings.add_bytes_contents("ab");
  strings.add_bytes_contents("");
  const auto parsed = Parse(message);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  const auto& inputs = parsed->request.inputs;
  EXPECT_THAT(Values<uint8_t>(inputs[0]), ElementsAre(1));
  EXPECT_THAT(Values<uint8_t>(inputs[1]), ElementsAre(0));
  EXPECT_THAT(Values<uint8_t>(inputs[2]), ElementsAre(0x00, 0x80));
  EXPECT_THAT(Values<uint8_t>(inputs[3]), ElementsAre(44));
  EXPECT_THAT(Values<uint64_t>(inputs[4]), ElementsAre(18446744073709551615ULL));
  EXPECT_THAT(Values<double>(inputs[5]), ElementsAre(-2.0));
  EXPECT_THAT(Values<uint8_t>(inputs[6]), ElementsAre(2, 0, 0, 0, 'a', 'b', 0, 0, 0, 0));
}

TEST(InferRequestTest, ContentsOfAnotherDatatypeAreNamed) {
  const struct {
    const char* datatype;
    const char* field;
    void (*fill)(InferTensorContents&);
  } cases[] = {
      {"BF16", "FP32", [](InferTensorContents& c) { c.add_fp32_contents(1); }},
      {"FP16", "FP64", [](InferTensorContents& c) { c.add_fp64_contents(1); }},
      {"FP64", "BOOL", [](InferTensorContents& c) { c.add_bool_contents(true); }},
      {"INT8", "FP64", [](InferTensorContents& c) { c.add_fp64_contents(1); }},
      {"BYTES", "INT32", [](InferTensorContents& c) { c.add_int_contents(1); }},
      {"INT32", "UINT32", [](InferTensorContents& c) { c.add_uint_contents(1); }},
      {"INT32", "INT64", [](InferTensorContents& c) { c.add_int64_contents(1); }},
      {"UINT32", "UINT64", [](InferTensorContents& c) { c.add_uint64_contents(1); }},
      {"UINT16", "BYTES", [](InferTensorContents& c) { c.add_bytes_contents("x"); }},
  };
  for (const auto& c : cases) {
    auto message = Message();
    c.fill(*AddInput(*message, c.datatype, {1}).mutable_contents());
    EXPECT_EQ(ParseError(message),
              std::string("INVALID_ARGUMENT: unexpected explicit tensor data for input tensor "
                          "'INPUT0' for model 'm' of type '") +
                  c.field + "', expected datatype '" + c.datatype + "'");
  }
}

TEST(InferRequestTest, TwoPopulatedFieldsAreAnError) {
  auto message = Message();
  auto& contents = *AddInput(*message, "INT32", {1}).mutable_contents();
  contents.add_int_contents(1);
  contents.add_fp32_contents(2);
  EXPECT_EQ(ParseError(message),
            "INVALID_ARGUMENT: unexpected explicit tensor data for input tensor 'INPUT0' for model "
            "'m', binary data was already supplied.");
}

TEST(InferRequestTest, SharedMemoryIsRefusedByRegion) {
  auto message = Message();
  auto& parameters = *AddInput(*message, "INT32", {1}).mutable_parameters();
  parameters["shared_memory_region"].set_string_param("zz");
  EXPECT_EQ(ParseError(message),
            "INVALID_ARGUMENT: 'shared_memory_byte_size' must be specified along with "
            "'shared_memory_region' parameter for tensor 'INPUT0'");
  parameters["shared_memory_byte_size"].set_string_param("4");
  EXPECT_EQ(ParseError(message),
            "INVALID_ARGUMENT: invalid value type for 'shared_memory_byte_size' parameter for "
            "tensor 'INPUT0', expected int64_param.");
  parameters["shared_memory_byte_size"].set_int64_param(4);
  EXPECT_EQ(ParseError(message), "NOT_FOUND: Unable to find shared memory region: 'zz'");
  message->mutable_inputs(0)->mutable_contents();
  EXPECT_EQ(ParseError(message),
            "INVALID_ARGUMENT: unexpected 'content' provided when using shared memory for input "
            "tensor 'INPUT0' for model 'm'");
}

TEST(InferRequestTest, ClassificationIsARuleOfItsOutput) {
  auto message = Message();
  auto& output = *message->add_outputs();
  output.set_name("OUT");
  auto& classification = (*output.mutable_parameters())["classification"];
  classification.set_string_param("2");
  EXPECT_EQ(ParseError(message),
            "INVALID_ARGUMENT: invalid value type for 'classification' parameter, expected "
            "int64_param");
  classification.set_int64_param(-1);
  EXPECT_EQ(ParseError(message),
            "INVALID_ARGUMENT: invalid value for 'classification' parameter, expected >= 0");
  classification.set_int64_param(0);
  EXPECT_EQ(ParseError(message),
            "INVALID_ARGUMENT: invalid value for 'classification' parameter, expected >= 0");
  classification.set_int64_param(2);
  const auto parsed = Parse(message);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->request.output_rules.at("OUT").num_classes, 2U);
}

// --- parameters ---

TEST(InferRequestTest, ParametersFillReservedFieldsAndKeepTheRest) {
  auto message = Message();
  auto& p = *message->mutable_parameters();
  p["sequence_id"].set_int64_param(7);
  p["sequence_start"].set_bool_param(true);
  p["sequence_end"].set_bool_param(true);
  p["priority"].set_uint64_param(2);
  p["timeout"].set_int64_param(1000);
  p["triton_enable_empty_final_response"].set_bool_param(true);
  p["s"].set_string_param("x");
  p["i"].set_int64_param(-1);
  p["b"].set_bool_param(false);
  p["d"].set_double_param(0.25);
  const auto parsed = Parse(message);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  const serving::Request& request = parsed->request;
  EXPECT_EQ(request.sequence_id, 7U);
  EXPECT_TRUE(request.sequence_start && request.sequence_end);
  EXPECT_EQ(request.priority, 2U);
  EXPECT_EQ(request.timeout_us, 1000U);
  EXPECT_TRUE(parsed->enable_empty_final);
  EXPECT_EQ(request.parameters,
            (serving::Parameters{{"b", false}, {"d", 0.25}, {"i", int64_t{-1}}, {"s", "x"}}));
}

TEST(InferRequestTest, NegativeNumbersOfUnsignedParametersWrap) {
  auto message = Message();
  auto& p = *message->mutable_parameters();
  p["sequence_id"].set_int64_param(-1);
  p["timeout"].set_int64_param(-2);
  const auto parsed = Parse(message);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->request.sequence_id, 18446744073709551615U);
  EXPECT_EQ(parsed->request.timeout_us, 18446744073709551614U);
}

TEST(InferRequestTest, ASequenceHasAShortName) {
  auto message = Message();
  auto& id = (*message->mutable_parameters())["sequence_id"];
  id.set_string_param(std::string(128, 's'));
  EXPECT_TRUE(Parse(message).ok());
  id.set_string_param(std::string(129, 's'));
  EXPECT_EQ(ParseError(message),
            "UNIMPLEMENTED: string correlation ID cannot be longer than 128 characters");
}

TEST(InferRequestTest, ASizeInSharedMemoryNeedsItsRegion) {
  auto message = Message();
  auto& input = *message->add_inputs();
  input.set_name("INPUT0");
  input.set_datatype("INT32");
  (*input.mutable_parameters())["shared_memory_byte_size"].set_int64_param(4);
  EXPECT_EQ(ParseError(message),
            "INVALID_ARGUMENT: 'shared_memory_byte_size' can not be specified without "
            "'shared_memory_region' parameter for tensor 'INPUT0'");
}

TEST(InferRequestTest, ParametersOfTheWrongMemberAreNamed) {
  const struct {
    const char* key;
    void (*set)(::inference::InferParameter&);
    const char* text;
  } cases[] = {
      {"sequence_id", [](auto& p) { p.set_uint64_param(5); },
       "invalid value type for 'sequence_id' parameter, expected int64_param or string_param."},
      {"sequence_start", [](auto&) {},
       "invalid value type for 'sequence_start' parameter, expected bool_param."},
      {"sequence_end", [](auto& p) { p.set_string_param("true"); },
       "invalid value type for 'sequence_end' parameter, expected bool_param."},
      {"priority", [](auto& p) { p.set_string_param("1"); },
       "invalid value type for 'priority' parameter, expected int64_param or uint64_param."},
      {"priority", [](auto& p) { p.set_int64_param(-1); },
       "invalid value for 'priority', expected value >= 0."},
      {"timeout", [](auto& p) { p.set_uint64_param(9); },
       "invalid value type for 'timeout' parameter, expected int64_param."},
      {"triton_enable_empty_final_response", [](auto& p) { p.set_int64_param(1); },
       "invalid value type for 'triton_enable_empty_final_response' parameter, expected "
       "bool_param."},
      {"triton_x", [](auto& p) { p.set_bool_param(true); },
       "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following "
       "keys starting with 'triton_' are allowed: triton_enable_empty_final_response"},
      {"a", [](auto& p) { p.set_uint64_param(7); },
       "invalid value type for 'a' parameter, expected int64_param, bool_param, or string_param."},
  };
  for (const auto& c : cases) {
    auto message = Message();
    c.set((*message->mutable_parameters())[c.key]);
    EXPECT_EQ(ParseError(message), std::string("INVALID_ARGUMENT: ") + c.text);
  }
}

TEST(InferRequestTest, SequencesMayBeNamedByText) {
  auto message = Message();
  (*message->mutable_parameters())["sequence_id"].set_string_param("abc");
  const auto parsed = Parse(message);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->request.sequence_name, "abc");
  EXPECT_EQ(parsed->request.sequence_id, 0U);
}

// --- responses ---

TEST(InferResponseTest, EveryOutputHasARawEntryAlsoAnEmptyOne) {
  serving::Response response{.model_name = "m", .model_version = "2", .id = "r"};
  const int32_t values[] = {1, 2};
  response.outputs.push_back(
      serving::Tensor::FromValues<int32_t>("A", DataType::kInt32, {2}, values));
  response.outputs.push_back(serving::Tensor::FromBytes("B", DataType::kFp32, {0}, ""));
  response.parameters = {{"u", uint64_t{3}}, {"s", "x"}, {"d", 0.5}, {"b", true}};
  ::inference::ModelInferResponse out;
  WriteInferResponse(response, out);
  EXPECT_EQ(out.model_name() + out.model_version() + out.id(), "m2r");
  ASSERT_EQ(out.outputs_size(), 2);
  ASSERT_EQ(out.raw_output_contents_size(), 2);
  EXPECT_EQ(out.raw_output_contents(0), std::string("\1\0\0\0\2\0\0\0", 8));
  EXPECT_EQ(out.raw_output_contents(1), "");
  EXPECT_EQ(out.outputs(1).datatype(), "FP32");
  EXPECT_FALSE(out.outputs(0).has_contents());
  EXPECT_EQ(out.parameters().at("u").uint64_param(), 3U);
  EXPECT_EQ(out.parameters().at("s").string_param(), "x");
  EXPECT_EQ(out.parameters().at("d").double_param(), 0.5);
  EXPECT_TRUE(out.parameters().at("b").bool_param());
}

serving::Response Text(bool is_final) {
  const std::string strings[] = {"x"};
  serving::Response response{.is_final = is_final};
  response.outputs.push_back(serving::Tensor::FromStrings("text_output", {1}, strings));
  return response;
}

TEST(SingleResponseTest, OneResponseAndABareCompletionAreOneResponse) {
  SingleResponse single;
  EXPECT_FALSE(single.Add(Text(/*is_final=*/false)));
  EXPECT_TRUE(single.Add({.is_final = true}));
  EXPECT_TRUE(single.result().status.ok());
  EXPECT_TRUE(single.result().is_final);
  EXPECT_EQ(single.result().outputs.size(), 1U);
}

TEST(SingleResponseTest, SeveralResponsesAreAnError) {
  SingleResponse single;
  EXPECT_FALSE(single.Add(Text(/*is_final=*/false)));
  EXPECT_TRUE(single.Add(Text(/*is_final=*/true)));
  EXPECT_EQ(single.result().status.ToString(), "INTERNAL: expected a single response, got 2");
}

TEST(SingleResponseTest, TheFirstErrorWins) {
  SingleResponse single;
  EXPECT_FALSE(single.Add(Text(/*is_final=*/false)));
  EXPECT_FALSE(single.Add({.status = Unavailable("first")}));
  EXPECT_TRUE(single.Add({.status = Internal("second"), .is_final = true}));
  EXPECT_EQ(single.result().status.ToString(), "UNAVAILABLE: first");
}

// --- what the server knows of itself ---

TEST(ModelMessagesTest, MetadataHasABatchDimensionAndAllReadyVersionsInOrder) {
  FakeServer server;
  server.AddModel("m", /*is_decoupled=*/false, "10");
  const FakeModel& model = server.AddModel("m", /*is_decoupled=*/false, "9");
  EXPECT_THAT(ReadyVersions(server, "m"), ElementsAre("9", "10"));
  ::inference::ModelMetadataResponse out;
  WriteModelMetadata(model, {"9", "10"}, out);
  EXPECT_EQ(out.name(), "m");
  EXPECT_EQ(out.platform(), "fake");
  EXPECT_THAT(out.versions(), ElementsAre("9", "10"));
  ASSERT_EQ(out.inputs_size(), 1);
  EXPECT_EQ(out.inputs(0).datatype(), "BYTES");
  EXPECT_THAT(out.inputs(0).shape(), ElementsAre(-1, -1));
  EXPECT_THAT(out.outputs(0).shape(), ElementsAre(-1, 1));
}

TEST(ModelMessagesTest, StatisticsOfTheUnknownAreInvalidArguments) {
  FakeServer server;
  server.AddModel("m", /*is_decoupled=*/false);
  ::inference::ModelStatisticsResponse out;
  EXPECT_EQ(WriteStatistics(server, "nosuch", "", out).ToString(),
            "INVALID_ARGUMENT: requested model 'nosuch' is not available");
  EXPECT_EQ(WriteStatistics(server, "m", "9", out).ToString(),
            "INVALID_ARGUMENT: requested model version is not available for model 'm'");
  EXPECT_EQ(WriteStatistics(server, "m", "x", out).ToString(), "INVALID_ARGUMENT: version x");
  EXPECT_EQ(out.model_stats_size(), 0);
}

TEST(ModelMessagesTest, StatisticsCarryCountsTimesAndBatches) {
  FakeServer server;
  FakeModel& model = server.AddModel("m", /*is_decoupled=*/false);
  server.AddModel("other", /*is_decoupled=*/true);
  model.statistics().RequestPending();
  model.statistics().RequestSucceeded({.received_ns = 100,
                                       .compute_start_ns = 110,
                                       .compute_input_end_ns = 130,
                                       .compute_output_start_ns = 170,
                                       .finished_ns = 250},
                                      /*batch_size=*/2);
  ::inference::ModelStatisticsResponse out;
  ASSERT_TRUE(WriteStatistics(server, "m", "", out).ok());
  ASSERT_EQ(out.model_stats_size(), 1);
  const auto& stats = out.model_stats(0);
  EXPECT_EQ(stats.name() + stats.version(), "m1");
  EXPECT_EQ(stats.inference_count(), 2U);
  EXPECT_EQ(stats.execution_count(), 1U);
  EXPECT_EQ(stats.inference_stats().success().count(), 1U);
  EXPECT_EQ(stats.inference_stats().success().ns(), 150U);
  EXPECT_EQ(stats.inference_stats().queue().ns(), 10U);
  EXPECT_EQ(stats.inference_stats().compute_input().ns(), 20U);
  EXPECT_EQ(stats.inference_stats().compute_infer().ns(), 40U);
  EXPECT_EQ(stats.inference_stats().compute_output().ns(), 80U);
  EXPECT_TRUE(stats.inference_stats().has_cache_hit() && stats.inference_stats().has_fail());
  ASSERT_EQ(stats.batch_stats_size(), 1);
  EXPECT_EQ(stats.batch_stats(0).batch_size(), 2U);
  EXPECT_EQ(stats.batch_stats(0).compute_infer().ns(), 40U);

  ::inference::ModelStatisticsResponse all;
  ASSERT_TRUE(WriteStatistics(server, "", "", all).ok());
  EXPECT_EQ(all.model_stats_size(), 2);
}

}  // namespace
}  // namespace inflight::kserve_grpc
