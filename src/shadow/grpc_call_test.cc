// SPDX-License-Identifier: Apache-2.0
#include "shadow/grpc_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "grpc_service.pb.h"

namespace inflight::shadow {
namespace {

using grpc_client::GrpcEnd;
using ::testing::HasSubstr;

constexpr char kInfer[] = "/inference.GRPCInferenceService/ModelInfer";
constexpr char kStream[] = "/inference.GRPCInferenceService/ModelStreamInfer";
const GrpcEnd kOk = {.code = 0, .message = {}, .is_from_server = true};

std::string Raw(std::vector<float> values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inference::ModelInferResponse Infer(const std::string& name, const std::string& datatype,
                                    int64_t size, const std::string& bytes) {
  inference::ModelInferResponse response;
  response.set_model_name("m");
  auto& output = *response.add_outputs();
  output.set_name(name);
  output.set_datatype(datatype);
  output.add_shape(size);
  response.add_raw_output_contents(bytes);
  return response;
}

std::string Word(const std::string& text) {
  inference::ModelStreamInferResponse response;
  std::string bytes(1, static_cast<char>(text.size()));
  bytes += std::string(3, '\0') + text;
  *response.mutable_infer_response() = Infer("text_output", "BYTES", 1, bytes);
  return response.SerializeAsString();
}

std::vector<std::string> Told(const http_client::Answer& a, const http_client::Answer& b) {
  std::vector<std::string> told;
  for (const Difference& d : Compare(a, b, CompareRules()))
    told.push_back(std::string(NameOf(d.kind)) + " " + d.place);
  return told;
}

TEST(GrpcCall, ALineIsTheCallThatItNames) {
  const auto call = ParseRecordedCall(
      R"({"rpc": "ModelInfer", "metadata": {"key": "v"}, "message": {"model_name": "m", "id": "1"}})");
  ASSERT_TRUE(call.ok()) << call.status().ToString();
  EXPECT_EQ(call->path, kInfer);
  EXPECT_THAT(call->metadata,
              ::testing::ElementsAre(std::pair<std::string, std::string>("key", "v")));
  inference::ModelInferRequest request;
  ASSERT_EQ(call->messages.size(), 1U);
  ASSERT_TRUE(request.ParseFromString(call->messages[0]));
  EXPECT_EQ(request.model_name(), "m");
  EXPECT_EQ(request.id(), "1");
}

TEST(GrpcCall, AStreamHasSeveralMessages) {
  const auto call =
      ParseRecordedCall(R"({"rpc": "ModelStreamInfer", "messages": [{"id": "1"}, {"id": "2"}]})");
  ASSERT_TRUE(call.ok()) << call.status().ToString();
  EXPECT_EQ(call->messages.size(), 2U);
}

TEST(GrpcCall, AWrongLineIsRefusedByWhatIsWrong) {
  for (const auto& [line, what] : std::vector<std::pair<std::string, std::string>>{
           {"[]", "no JSON object"},
           {"{}", "rpc"},
           {R"({"rpc": "NoSuch", "message": {}})", "NoSuch"},
           {R"({"rpc": "ModelInfer"})", "one of message"},
           {R"({"rpc": "ModelInfer", "message": {}, "messages": [{}]})", "one of message"},
           {R"({"rpc": "ModelInfer", "messages": [{}, {}]})", "takes one message"},
           {R"({"rpc": "ModelInfer", "messages": []})", "at least one"},
           {R"({"rpc": "ModelInfer", "message": {"nosuch": 1}})", "nosuch"},
           {R"({"rpc": "ModelInfer", "messages_base64": ["*"]})", "base64"},
           {R"({"rpc": "ModelInfer", "message": {}, "metadata": {"a": 1}})", "metadata.a"},
           {R"({"rpc": "ModelInfer", "message": {}, "metadata": {"A": "b"}})", "small letters"},
           {R"({"rpc": "ModelInfer", "message": {}, "metadata": {"a": "b\nc"}})", "one line"}}) {
    EXPECT_THAT(ParseRecordedCall(line).status().message(), HasSubstr(what)) << line;
  }
}

TEST(GrpcCall, TensorsOfResponsesAreComparedAsNumbers) {
  const auto answer = [](std::vector<float> values) {
    return AnswerOf(kInfer, {Infer("OUT", "FP32", 2, Raw(std::move(values))).SerializeAsString()},
                    kOk);
  };
  EXPECT_THAT(Told(answer({1.0F, 2.0F}), answer({1.0F, 2.00001F})), ::testing::IsEmpty());
  EXPECT_THAT(Told(answer({1.0F, 2.0F}), answer({1.0F, 3.0F})),
              ::testing::ElementsAre("tensors outputs.OUT.data[1]"));
}

TEST(GrpcCall, TextsOfAStreamAreComparedAsAWhole) {
  const auto a = AnswerOf(kStream, {Word("a"), Word(" b")}, kOk);
  EXPECT_THAT(Told(a, AnswerOf(kStream, {Word("a b"), Word("")}, kOk)), ::testing::IsEmpty());
  EXPECT_THAT(Told(a, AnswerOf(kStream, {Word("a"), Word(" c")}, kOk)),
              ::testing::ElementsAre("text text[2]"));
  EXPECT_THAT(Told(a, AnswerOf(kStream, {Word("a b")}, kOk)),
              ::testing::ElementsAre("finish events"));
}

TEST(GrpcCall, StatusesAndTheirTextsAreCompared) {
  const auto ended = [](int code, const std::string& text) {
    return AnswerOf(kInfer, {}, {.code = code, .message = text, .is_from_server = true});
  };
  EXPECT_THAT(Told(ended(5, "no model"), ended(5, "no model")), ::testing::IsEmpty());
  EXPECT_THAT(Told(ended(5, "no model"), ended(3, "no models")),
              ::testing::ElementsAre("status ", "body error[8]"));
}

TEST(GrpcCall, AnAddressHasAHostAndAPort) {
  EXPECT_EQ(ParseGrpcUrl("grpc://[::1]:8001")->host, "::1");
  EXPECT_EQ(ParseGrpcUrl("grpc://localhost:8001")->port, 8001);
  for (const char* wrong :
       {"grpc://", "grpc://host", "grpc://:1", "grpc://host:0", "grpc://host:1/x"})
    EXPECT_FALSE(ParseGrpcUrl(wrong).ok()) << wrong;
}

TEST(RecordedCall, ALineIsReadBackAsTheCall) {
  const RecordedCall call{.path = "/inference.GRPCInferenceService/ModelStreamInfer",
                          .metadata = {{"x-key", "k"}, {"y", "\"z\""}},
                          .messages = {std::string("\x0a\x00\xff", 3), ""}};
  const auto read = ParseRecordedCall(WriteRecordedCall(call));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->path, call.path);
  EXPECT_EQ(read->metadata, call.metadata);
  EXPECT_EQ(read->messages, call.messages);
  EXPECT_EQ(WriteRecordedCall({.path = "/grpc.health.v1.Health/Check", .messages = {""}}), "");
}

}  // namespace
}  // namespace inflight::shadow
