// SPDX-License-Identifier: Apache-2.0
#include "artifact/json_file.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "artifact/checkpoint.h"
#include "artifact/test_files.h"

namespace inflight::artifact {
namespace {

using testing::HasSubstr;

TEST(JsonFields, ReadsTypedFields) {
  const auto json = ParseJsonObject(
      R"({"i": 5, "x": 2.5, "whole": 3, "b": true, "s": "text", "none": null})", "f");
  ASSERT_TRUE(json.ok());
  JsonFields fields("f", *json);
  EXPECT_EQ(fields.Int("i", 0, 10), 5);
  EXPECT_EQ(fields.IntOr("none", 7, 0, 10), 7);
  EXPECT_EQ(fields.OptionalInt("absent", 0, 10), std::nullopt);
  EXPECT_EQ(fields.NumberOr("x", 0), 2.5);
  EXPECT_EQ(fields.NumberOr("whole", 0), 3.0);
  EXPECT_TRUE(fields.BoolOr("b", false));
  EXPECT_EQ(fields.String("s"), "text");
  EXPECT_FALSE(fields.Has("none"));
  EXPECT_TRUE(fields.status().ok());
}

TEST(JsonFields, KeepsTheFirstErrorWithFileFieldAndValue) {
  const auto json =
      ParseJsonObject(R"({"i": "five", "big": 18446744073709551615, "f": 1.5, "b": 1})", "c.json");
  ASSERT_TRUE(json.ok());
  const auto error = [&](auto&& read) {
    JsonFields fields("c.json", *json);
    read(fields);
    return fields.status().message();
  };
  EXPECT_EQ(error([](auto& f) { f.Int("i", 1, 9), f.Int("gone", 1, 9); }),
            "c.json: i: got \"five\", a whole number from 1 to 9 is needed");
  EXPECT_EQ(error([](auto& f) { f.Int("gone", 1, 9); }), "c.json: gone: is missing");
  EXPECT_THAT(error([](auto& f) { f.Int("big", 0, INT64_MAX); }),
              HasSubstr("18446744073709551615"));
  EXPECT_THAT(error([](auto& f) { f.Int("f", 0, 9); }), HasSubstr("got 1.5"));
  EXPECT_THAT(error([](auto& f) { f.BoolOr("b", true); }), HasSubstr("true or false is needed"));
  EXPECT_THAT(error([](auto& f) { f.String("b"); }), HasSubstr("a string is needed"));
}

TEST(JsonFields, TextThatIsNoObjectIsAnError) {
  EXPECT_THAT(ParseJsonObject("[1]", "f").status().message(), HasSubstr("f: a JSON object"));
  EXPECT_THAT(ParseJsonObject("{\"a\": }", "f").status().message(), HasSubstr("not valid JSON"));
  EXPECT_THAT(ParseJsonObject("{\"a\": \"\xff\"}", "f").status().message(),
              HasSubstr("not valid JSON"));
  EXPECT_FALSE(ParseJsonObject(std::string(100000, '['), "f").ok());
  constexpr size_t kDepth = 1'000'000;
  EXPECT_THAT(
      ParseJsonObject("{\"a\": " + std::string(kDepth, '[') + std::string(kDepth, ']') + "}", "f")
          .status()
          .message(),
      HasSubstr("nested deeper than 64 levels"));
}

class CheckpointTest : public FileTest {};

TEST_F(CheckpointTest, MoreThanOneRankIsRefusedByName) {
  const nlohmann::json config = {{"mapping", {{"tp_size", 2}}}};
  const Status status = OpenCheckpointTensors(dir(), config).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("mapping: tp_size: got 2, only 1"));
}

TEST_F(CheckpointTest, MissingTensorFileIsNamed) {
  const Status status = OpenCheckpointTensors(dir(), nlohmann::json::object()).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("rank0.safetensors"));
}

TEST_F(CheckpointTest, DirectoriesThatCannotBeMadeAreErrors) {
  ASSERT_TRUE(WriteFile(dir() / "file", "x").ok());
  EXPECT_THAT(CreateDirectory(dir() / "file" / "sub").message(), HasSubstr("cannot create"));
}

}  // namespace
}  // namespace inflight::artifact
