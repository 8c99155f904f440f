// SPDX-License-Identifier: Apache-2.0
#include "artifact/json_file.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "artifact/checkpoint.h"
#include "artifact/safetensors.h"
#include "artifact/test_files.h"

namespace inflight::artifact {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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
  EXPECT_THAT(error([](auto& f) { f.FindObject("i"); }),
              HasSubstr("i: got \"five\", an object is needed"));
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

class JsonFileTest : public FileTest {};

TEST_F(JsonFileTest, NamesOfAMemberComeInTheFilesOrder) {
  const auto file = dir() / "f";
  ASSERT_TRUE(WriteFile(file, R"({"x": {"alpha": 1}, "alpha": {"z": 1, "a": {"alpha": {"no": 1}},)"
                              R"( "m": [{"no": 1}], "z": 2}, "y": {"b": 1}, "alpha2": 3})")
                  .ok());
  EXPECT_THAT(*NamesInOrder(file, "alpha"), ElementsAre("z", "a", "m"));
  EXPECT_THAT(*NamesInOrder(file, "alpha2"), IsEmpty());
  EXPECT_THAT(*NamesInOrder(file, "none"), IsEmpty());
  ASSERT_TRUE(WriteFile(file, "{").ok());
  EXPECT_THAT(NamesInOrder(file, "alpha").status().message(), HasSubstr("not valid JSON"));
}

class CheckpointTest : public FileTest {};

TEST_F(CheckpointTest, MappingIsReadAndChecked) {
  const auto read = [](nlohmann::json mapping) {
    return ReadMapping({{"mapping", std::move(mapping)}}, "config.json");
  };
  EXPECT_EQ(ReadMapping(nlohmann::json::object(), "f")->num_ranks(), 1);
  const auto mapping =
      read({{"world_size", 8}, {"tp_size", 4}, {"pp_size", 2}, {"gpus_per_node", 8}});
  ASSERT_TRUE(mapping.ok()) << mapping.status().ToString();
  EXPECT_EQ(mapping->num_ranks(), 8);
  EXPECT_EQ(mapping->rank(/*pp_rank=*/1, /*tp_rank=*/2), 6);
  EXPECT_EQ(read({{"world_size", 2}, {"tp_size", 2}})->pp_size, 1);
  EXPECT_THAT(read(8).status().message(), HasSubstr("mapping: got 8, an object is needed"));
  EXPECT_THAT(read({{"world_size", 4}, {"tp_size", 2}}).status().message(),
              HasSubstr("mapping: world_size: got 4, tp_size 2 * pp_size 1 is needed"));
  const Status context = read({{"world_size", 2}, {"cp_size", 2}}).status();
  EXPECT_EQ(context.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(context.message(), HasSubstr("cp_size: got 2"));
  EXPECT_FALSE(read({{"tp_size", 0}}).ok());
}

TEST_F(CheckpointTest, AsManyFilesAsRanksAreNeeded) {
  const RankMapping two{.tp_size = 2};
  const auto write = [&](int rank) {
    auto writer = SafetensorsWriter::Create(dir() / RankFileName(rank), {});
    ASSERT_TRUE(writer.ok() && writer->Finish().ok());
  };
  EXPECT_EQ(OpenRankFiles(dir(), two).status().code(), StatusCode::kNotFound);
  write(0);
  const Status missing = OpenRankFiles(dir(), two).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("rank1.safetensors is missing, config.json's mapping "
                                           "has 2 ranks (tp_size 2 * pp_size 1)"));
  write(1);
  EXPECT_EQ(OpenRankFiles(dir(), two)->size(), 2U);
  write(2);
  EXPECT_THAT(OpenRankFiles(dir(), two).status().message(), HasSubstr("holds rank2.safetensors"));
  ASSERT_TRUE(RemoveFurtherRankFiles(dir(), 2).ok());
  EXPECT_EQ(OpenRankFiles(dir(), two)->size(), 2U);
}

TEST_F(CheckpointTest, DirectoriesThatCannotBeMadeAreErrors) {
  ASSERT_TRUE(WriteFile(dir() / "file", "x").ok());
  EXPECT_THAT(CreateDirectory(dir() / "file" / "sub").message(), HasSubstr("cannot create"));
}

}  // namespace
}  // namespace inflight::artifact
