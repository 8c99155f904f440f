// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/infer_request.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "protocol/kserve/http/fake_models.h"
#include "protocol/kserve/http/fake_server.h"

namespace inflight::kserve_http {
namespace {

constexpr size_t kLimit = 1 << 20;
const serving::SharedMemory kNoRegions({.clients_may_register = true, .prefixes = {}});

::inference::ModelConfig Config() {
  return ConfigFromText(R"(name: "m" input { name: "A" data_type: TYPE_INT32 dims: -1 })");
}

Result<ParsedInfer> Parse(std::string text, std::optional<size_t> json_length = std::nullopt,
                          size_t limit = kLimit) {
  return ParseInfer(Config(), kNoRegions.Of({}), std::make_shared<std::string>(std::move(text)),
                    json_length, limit);
}

std::string ErrorOf(std::string text, size_t limit = kLimit) {
  const auto parsed = Parse(std::move(text), std::nullopt, limit);
  return parsed.ok() ? "parsed" : parsed.status().ToString();
}

std::string Input(const std::string& rest) { return R"({"inputs":[{"name":"A",)" + rest + "}]}"; }

TEST(InferRequestTest, MembersBecomeFields) {
  const auto parsed = Parse(
      R"({"id":"r1","parameters":{"priority":3,"timeout":250,"sequence_id":7,"sequence_start":true,
          "binary_data_output":true,"x":1,"y":"s","z":0.5,"b":false},
          "inputs":[{"name":"A","datatype":"INT32","shape":[2,2],"data":[[1,2],[3,4]]},
                    {"name":"B","datatype":"BYTES","shape":[2],"data":["ab",""]}],
          "outputs":[{"name":"O","parameters":{"binary_data":true}},{"name":"P"}]})");
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  const serving::Request& request = parsed->request;
  EXPECT_EQ(request.id, "r1");
  EXPECT_EQ(request.priority, 3U);
  EXPECT_EQ(request.timeout_us, 250U);
  EXPECT_EQ(request.sequence_id, 7U);
  EXPECT_TRUE(request.sequence_start);
  EXPECT_FALSE(request.sequence_end);
  EXPECT_EQ(
      request.parameters,
      (serving::Parameters{{"x", int64_t{1}}, {"y", std::string("s")}, {"z", 0.5}, {"b", false}}));
  ASSERT_EQ(request.inputs.size(), 2U);
  EXPECT_EQ(request.inputs[0].shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(Values<int32_t>(request.inputs[0]), (std::vector<int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(*request.inputs[1].Strings(), (std::vector<std::string_view>{"ab", ""}));
  EXPECT_EQ(request.requested_outputs, (std::vector<std::string>{"O", "P"}));
  EXPECT_TRUE(parsed->form.is_binary_by_default);
  EXPECT_EQ(parsed->form.listed,
            (std::map<std::string, DataPlace>{{"O", DataPlace::kBinary}, {"P", DataPlace::kJson}}));
}

TEST(InferRequestTest, BinaryTensorsStayWhereTheyArrived) {
  const std::string json =
      R"({"inputs":[{"name":"A","datatype":"UINT8","shape":[3],"parameters":{"binary_data_size":3}},
                    {"name":"B","datatype":"UINT8","shape":[2],"parameters":{"binary_data_size":2}}]})";
  auto body = std::make_shared<std::string>(json + "abcde");
  const char* binary = body->data() + json.size();
  const auto parsed = ParseInfer(Config(), kNoRegions.Of({}), body, json.size(), kLimit);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  body.reset();
  EXPECT_EQ(reinterpret_cast<const char*>(parsed->request.inputs[0].data.data()), binary);
  EXPECT_EQ(std::memcmp(parsed->request.inputs[1].data.data(), "de", 2), 0);
  EXPECT_NE(parsed->request.inputs[1].owner, nullptr);
}

TEST(InferRequestTest, BinaryPartMustFitTheInputs) {
  const std::string json =
      R"({"inputs":[{"name":"A","datatype":"UINT8","shape":[3],"parameters":{"binary_data_size":3}}]})";
  EXPECT_EQ(Parse(json + "ab", json.size()).status().message(),
            "unexpected size for input 'A', expecting 1 additional bytes for model 'm'");
  EXPECT_EQ(Parse(json + "abcd", json.size()).status().message(),
            "unexpected additional input data for model 'm'");
}

TEST(InferRequestTest, ShapesThatOverflowAreRefused) {
  EXPECT_NE(ErrorOf(Input(R"("datatype":"INT32","shape":[4294967296,4294967296],"data":[1])"))
                .find("causes total element count to exceed maximum size of"),
            std::string::npos);
  EXPECT_EQ(ErrorOf(Input(R"("datatype":"INT32","shape":[18446744073709551615],"data":[1])")),
            "INVALID_ARGUMENT: invalid shape for input 'A': shape [-1] contains one or more "
            "invalid dimensions");
  EXPECT_NE(ErrorOf(Input(R"("datatype":"INT64","shape":[4611686018427387904],"data":[1])"))
                .find("byte size overflow for input 'A'"),
            std::string::npos);
  EXPECT_NE(ErrorOf(Input(R"("datatype":"BYTES","shape":[4611686018427387904],"data":[""])"))
                .find("byte size overflow for input 'A'"),
            std::string::npos);
  const std::string many_dims = "[" + std::string(200, '1') + "]";
  EXPECT_NE(ErrorOf(Input(R"("datatype":"INT64","shape":)" + many_dims + R"(,"data":[1])")),
            "parsed");
}

TEST(InferRequestTest, SizesBeyondTheLimitNameTheOption) {
  for (const std::string& body :
       {Input(R"("datatype":"FP64","shape":[100],"data":[])"),  // declares 800 bytes
        Input(R"("datatype":"BYTES","shape":[1],"data":[")" + std::string(600, 'x') + R"("])"),
        Input(R"("datatype":"INT8","shape":[0],"data":[])") + std::string(600, ' ')}) {
    const std::string error = ErrorOf(body, /*limit=*/500);
    EXPECT_NE(error.find("Use --http-max-input-size to increase the limit"), std::string::npos)
        << error;
    EXPECT_NE(error.find("500"), std::string::npos);
    EXPECT_TRUE(error.starts_with("INVALID_ARGUMENT")) << error;
  }
}

TEST(InferRequestTest, DeepDataIsRefused) {
  const std::string deep = std::string(120, '[') + "1" + std::string(120, ']');
  EXPECT_EQ(ErrorOf(Input(R"("datatype":"INT32","shape":[1],"data":)" + deep)),
            "INVALID_ARGUMENT: JSON nesting depth exceeds maximum allowed limit (100)");
}

TEST(InferRequestTest, CountsThatDisagreeWithTheShapeAreRefused) {
  EXPECT_EQ(ErrorOf(Input(R"("datatype":"INT32","shape":[4],"data":[1,2])")),
            "INTERNAL: Failed to parse 'data' field: shape does not match true shape");
  EXPECT_EQ(ErrorOf(Input(R"("datatype":"INT32","shape":[1],"data":[1,2])")),
            "INTERNAL: Unable to parse 'data': Shape does not match true shape of 'data' field");
}

TEST(InferRequestTest, HalfPrecisionHasNoJsonForm) {
  for (const std::string type : {"FP16", "BF16"}) {
    EXPECT_EQ(ErrorOf(Input(R"("datatype":")" + type + R"(","shape":[1],"data":[1.0])")),
              "INVALID_ARGUMENT: receiving " + type +
                  " data via JSON is not supported. Please use the binary data format for input A");
  }
}

TEST(InferRequestTest, OutputsHaveRulesAndSequencesNames) {
  const std::string data = R"("datatype":"INT32","shape":[1],)";
  EXPECT_EQ(ErrorOf(Input(data + R"("parameters":{"shared_memory_region":"r"})")),
            "NOT_FOUND: Unable to find shared memory region: 'r'");
  const std::string inputs = R"({"inputs":[],)";
  const auto classes =
      Parse(inputs + R"("outputs":[{"name":"O","parameters":{"classification":2}}]})");
  ASSERT_TRUE(classes.ok());
  EXPECT_EQ(classes->request.output_rules.at("O").num_classes, 2U);
  EXPECT_EQ(ErrorOf(inputs + R"("outputs":[{"name":"O","parameters":
                {"classification":2,"shared_memory_region":"r"}}]})"),
            "INVALID_ARGUMENT: Output can't set both 'shared_memory_region' and 'classification'");
  const auto sequence = Parse(inputs + R"("parameters":{"sequence_id":"abc"}})");
  ASSERT_TRUE(sequence.ok());
  EXPECT_EQ(sequence->request.sequence_name, "abc");
}

TEST(InferRequestTest, RepeatedNamesAreRefused) {
  const std::string input = R"({"name":"A","datatype":"INT32","shape":[1],"data":[1]})";
  EXPECT_EQ(ErrorOf(R"({"id":"q","inputs":[)" + input + "," + input + "]}"),
            "INVALID_ARGUMENT: [request id: q] input 'A' already exists in request");
  EXPECT_EQ(ErrorOf(R"({"inputs":[],"outputs":[{"name":"O"},{"name":"O"}]})"),
            "INVALID_ARGUMENT: [request id: <id_unknown>] output 'O' already exists in request");
}

TEST(InferRequestTest, ManyParametersAreRefused) {
  std::string body = R"({"inputs":[],"parameters":{"p":0)";
  for (int i = 0; i < 2000; ++i) body += ",\"p" + std::to_string(i) + "\":1";
  EXPECT_EQ(ErrorOf(body + "}}"), "INVALID_ARGUMENT: request has more than 1024 parameters");
}

TEST(InferRequestTest, BodyWithoutJsonIsTheOnlyInput) {
  const auto parsed = Parse(std::string("\1\0\0\0\2\0\0\0", 8), 0);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(Values<int32_t>(parsed->request.inputs[0]), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(parsed->request.inputs[0].shape, std::vector<int64_t>{2});
  EXPECT_TRUE(parsed->form.is_binary_by_default);

  const auto two_variable =
      ConfigFromText(R"(name: "m" input { name: "A" data_type: TYPE_INT32 dims: [-1, -1] })");
  EXPECT_EQ(
      ParseInfer(two_variable, kNoRegions.Of({}), std::make_shared<std::string>("abcd"), 0, kLimit)
          .status()
          .message(),
      "[request id: <id_unknown>] The shape of the raw input 'A' can not be deduced because "
      "there are more than one variable-sized dimension");
}

TEST(InferRequestTest, WideIntegersLoseTheirHighBits) {
  const auto parsed = Parse(Input(R"("datatype":"INT8","shape":[2],"data":[300,-200])"));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(Values<int8_t>(parsed->request.inputs[0]), (std::vector<int8_t>{44, 56}));
}

TEST(InferRequestTest, FloatsBeyondSinglePrecisionAreInfinite) {
  const auto parsed = Parse(
      Input(R"("datatype":"FP32","shape":[5],"data":[1e39,-1e39,3.4028235e38,3.40282356e38,NaN])"));
  ASSERT_TRUE(parsed.ok());
  const auto values = Values<float>(parsed->request.inputs[0]);
  EXPECT_EQ(values[0], HUGE_VALF);
  EXPECT_EQ(values[1], -HUGE_VALF);
  EXPECT_EQ(values[2], std::numeric_limits<float>::max());
  EXPECT_EQ(values[3], std::numeric_limits<float>::max());
  EXPECT_TRUE(std::isnan(values[4]));
}

}  // namespace
}  // namespace inflight::kserve_http
