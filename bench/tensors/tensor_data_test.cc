// SPDX-License-Identifier: Apache-2.0
#include "bench/tensors/tensor_data.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace inflight::bench {
namespace {

using std::string_literals::operator""s;

ServedModel ModelOf(int max_batch_size, std::vector<ServedTensor> inputs) {
  return {.name = "m", .version = "1", .max_batch_size = max_batch_size, .inputs = inputs};
}

class TensorDataTest : public testing::Test {
 protected:
  TensorDataTest() : dir_(testing::TempDir() + "/tensor_data_test") {
    std::filesystem::create_directories(dir_);
  }
  ~TensorDataTest() override { std::filesystem::remove_all(dir_); }

  std::string Write(const std::string& name, const std::string& content) {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << content;
    return dir_ + "/" + name;
  }

  Result<std::vector<Payload>> FromJson(const ServedModel& model, const std::string& json,
                                        int batch_size = 1) {
    return MakePayloads(model, {.source = Write("data.json", json), .batch_size = batch_size});
  }

  const std::string dir_;
};

TEST_F(TensorDataTest, ZerosHaveTheShapeAndTheBatch) {
  const auto payloads = MakePayloads(
      ModelOf(8, {{"A", "INT16", {-1, 2}}, {"B", "BYTES", {1}}, {"C", "FP32", {1}, true}}),
      {.source = "zero", .shapes = {{"A", {3, 2}}}, .batch_size = 2});
  ASSERT_TRUE(payloads.ok()) << payloads.status().message();
  ASSERT_EQ(payloads->size(), 1);
  const Payload& payload = payloads->front();
  ASSERT_EQ(payload.size(), 2);  // the optional input is left out
  EXPECT_EQ(payload[0].shape, (std::vector<int64_t>{2, 3, 2}));
  EXPECT_EQ(payload[0].bytes, std::string(2 * 3 * 2 * 2, '\0'));
  EXPECT_EQ(payload[1].bytes, std::string(2 * 4, '\0'));  // two empty texts
}

TEST_F(TensorDataTest, RandomTextsHaveTheLengthAskedFor) {
  const ServedModel model = ModelOf(0, {{"A", "BYTES", {2}}});
  const auto random = MakePayloads(model, {.string_length = 5});
  ASSERT_TRUE(random.ok());
  const std::string& bytes = random->front()[0].bytes;
  ASSERT_EQ(bytes.size(), 2 * (4 + 5));
  EXPECT_EQ(bytes.substr(0, 4), "\5\0\0\0"s);
  EXPECT_NE(bytes.substr(4, 5), bytes.substr(13, 5));
  const auto given = MakePayloads(model, {.string_data = "ab"});
  ASSERT_TRUE(given.ok());
  EXPECT_EQ(given->front()[0].bytes, "\2\0\0\0ab\2\0\0\0ab"s);
}

TEST_F(TensorDataTest, ItemsOfAFileMakeBatchesRoundAndRound) {
  const ServedModel model = ModelOf(4, {{"A", "INT32", {-1}}, {"B", "FP16", {1}, true}});
  const auto payloads =
      FromJson(model, R"({"data": [{"A": [1, 2]}, [{"A": {"content": [[3], [4]], "shape": [2]}}],
                                   {"A": {"b64": "BQAAAAYAAAA="}}]})",
               2);
  ASSERT_TRUE(payloads.ok()) << payloads.status().message();
  ASSERT_EQ(payloads->size(), 3);
  EXPECT_EQ((*payloads)[0][0].shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ((*payloads)[0][0].bytes, "\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0"s);
  EXPECT_EQ((*payloads)[1][0].bytes, "\3\0\0\0\4\0\0\0\5\0\0\0\6\0\0\0"s);
  EXPECT_EQ((*payloads)[2][0].bytes, "\5\0\0\0\6\0\0\0\1\0\0\0\2\0\0\0"s);
}

TEST_F(TensorDataTest, ValuesTakeTheirDatatypesBytes) {
  const auto bytes = [&](const std::string& datatype, const std::string& value) {
    const auto payloads =
        FromJson(ModelOf(0, {{"A", datatype, {1}}}), R"({"data": [{"A": [)" + value + "]}]}");
    return payloads.ok() ? payloads->front()[0].bytes : payloads.status().message();
  };
  EXPECT_EQ(bytes("BOOL", "true"), "\1"s);
  EXPECT_EQ(bytes("INT8", "-2"), "\xfe"s);
  EXPECT_EQ(bytes("UINT64", "18446744073709551615"), std::string(8, '\xff'));
  EXPECT_EQ(bytes("FP16", "-2"), "\x00\xc0"s);
  EXPECT_EQ(bytes("BF16", "1.0"), "\x80\x3f"s);
  EXPECT_EQ(bytes("FP64", "0.5"), "\0\0\0\0\0\0\xe0\x3f"s);
  EXPECT_EQ(bytes("BYTES", "\"\\u00e4\""), "\2\0\0\0\xc3\xa4"s);
  for (const auto& [datatype, value] :
       {std::pair("INT8", "128"), std::pair("UINT32", "-1"), std::pair("INT32", "1.5"),
        std::pair("BYTES", "1"), std::pair("BOOL", "2"), std::pair("FP32", "\"x\"")})
    EXPECT_NE(bytes(datatype, value).find("data[0]: input 'A': got"), std::string::npos)
        << datatype << ' ' << bytes(datatype, value);
}

TEST_F(TensorDataTest, ADirectoryHasAFilePerInput) {
  const ServedModel model =
      ModelOf(2, {{"RAW", "UINT8", {2, 2}}, {"TEXT", "BYTES", {2}}, {"MORE", "FP32", {1}, true}});
  Write("RAW", "abcd");
  Write("TEXT", "one\nsecond\n");
  const auto payloads = MakePayloads(model, {.source = dir_, .batch_size = 2});
  ASSERT_TRUE(payloads.ok()) << payloads.status().message();
  EXPECT_EQ(payloads->front()[0].bytes, "abcdabcd");
  EXPECT_EQ(payloads->front()[1].bytes, "\3\0\0\0one\6\0\0\0second\3\0\0\0one\6\0\0\0second"s);
  Write("TEXT", "one");
  EXPECT_NE(MakePayloads(model, {.source = dir_}).status().message().find("got 1 lines"),
            std::string::npos);
}

TEST_F(TensorDataTest, WrongUseNamesWhatIsWrong) {
  const ServedModel model = ModelOf(2, {{"A", "INT32", {-1, 2}}, {"B", "INT32", {1}}});
  const auto message = [](const Result<std::vector<Payload>>& made) {
    return made.ok() ? "made" : made.status().message();
  };
  EXPECT_EQ(message(MakePayloads(model, {})),
            "input 'A': dimensions [-1,2] are open; give --shape A:1,1");
  EXPECT_EQ(message(MakePayloads(model, {.shapes = {{"A", {1, 3}}}})),
            "--shape A: got [1,3], the model has [-1,2]");
  EXPECT_EQ(message(MakePayloads(model, {.shapes = {{"X", {1}}}})),
            "--shape X: model 'm' has no such input");
  EXPECT_EQ(message(MakePayloads(model, {.batch_size = 3})),
            "--batch-size: got 3, model 'm' takes at most 2");
  const auto ends = [&](const std::string& json, const std::string& end) {
    EXPECT_TRUE(message(FromJson(model, json)).ends_with(end)) << message(FromJson(model, json));
  };
  ends("[]", "needs a JSON object with an array 'data'");
  ends(R"({"data": []})", "'data' is empty");
  ends(R"({"data": [1]})", "data[0]: is no object");
  ends(R"({"data": [{"A": [1, 2]}]})", "data[0]: input 'B' is missing");
  ends(R"({"data": [{"A": [1, 2], "B": [1], "C": [1]}]})", "data[0]: 'C' is no input of the model");
  ends(R"({"data": [{"A": [1, 2, 3], "B": [1]}]})",
       "input 'A': its dimensions are open; give 'shape' or --shape");
  ends(R"({"data": [{"A": [1, 2], "B": [1, 2]}]})", "input 'B': got 2 elements, shape [1] needs 1");
  ends(R"({"data": [], "validation_data": []})",
       "'validation_data' is not read; outputs are not compared");
}

}  // namespace
}  // namespace inflight::bench
