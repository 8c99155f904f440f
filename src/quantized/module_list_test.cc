// SPDX-License-Identifier: Apache-2.0
#include "quantized/module_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace inflight::quantized {
namespace {

using testing::HasSubstr;

ModuleList ListOf(const nlohmann::json& entries, ListSyntax syntax) {
  const nlohmann::json object = {{"ignore", entries}};
  artifact::JsonFields fields("config.json", object);
  ModuleList list = ModuleList::Read(fields, "ignore", syntax);
  EXPECT_EQ(fields.status().ToString(), "OK");
  return list;
}

// Expectations are what should_convert_module of transformers 5 answers.
TEST(ModuleListTest, TransformersMatchesBeginningsAndEnds) {
  const ModuleList list = ListOf({"model.layers.1", "mlp.gate", "lm_head", "layers.*.o_proj"},
                                 ListSyntax::kTransformers);
  for (const char* module : {"model.layers.1", "model.layers.1.mlp.up_proj", "lm_head",
                             "model.layers.3.mlp.gate", "layers.7.o_proj"})
    EXPECT_NE(list.Find(module), nullptr) << module;
  for (const char* module : {"model.layers.10.mlp.up_proj", "model.layers.3.mlp.gate_proj",
                             "model.layers.3.self_attn.o_proj", "lm_head2"})
    EXPECT_EQ(list.Find(module), nullptr) << module;
}

// Those are what match_name of compressed-tensors answers, and its class Linear.
TEST(ModuleListTest, CompressedTensorsMatchesNamesAndExpressions) {
  const ModuleList list = ListOf({"lm_head", "re:.*self_attn.(q|k)_proj$", "re:model.vision"},
                                 ListSyntax::kCompressedTensors);
  for (const char* module : {"lm_head", "a.self_attn.q_proj", "model.vision.1"})
    EXPECT_NE(list.Find(module), nullptr) << module;
  for (const char* module : {"model.lm_head", "a.self_attn.v_proj", "a.model.vision"})
    EXPECT_EQ(list.Find(module), nullptr) << module;
  EXPECT_EQ(*ListOf({"Linear"}, ListSyntax::kCompressedTensors).Find("any.module"), "Linear");
}

TEST(ModuleListTest, WildcardsMatchWholeNames) {
  const ModuleList list = ListOf({"lm_head", "model.layers.0*", "*.gate"}, ListSyntax::kWildcards);
  for (const char* module : {"lm_head", "model.layers.0.mlp.up_proj", "model.layers.1.mlp.gate"})
    EXPECT_NE(list.Find(module), nullptr) << module;
  for (const char* module : {"lm_head_2", "model.layers.1.mlp.gate_proj", "modelXlayers.0"})
    EXPECT_EQ(list.Find(module), nullptr) << module;
}

TEST(ModuleListTest, ErrorsNameFieldAndEntry) {
  const auto error = [](const nlohmann::json& entries) {
    const nlohmann::json object = {{"ignore", entries}};
    artifact::JsonFields fields("config.json", object);
    static_cast<void>(ModuleList::Read(fields, "ignore", ListSyntax::kCompressedTensors));
    return fields.status().message();
  };
  EXPECT_EQ(error("lm_head"), "config.json: ignore: got \"lm_head\", a list of names is needed");
  EXPECT_EQ(error({"lm_head", 3}), "config.json: ignore: got 3, no name of a module");
  EXPECT_THAT(error({"re:("}), HasSubstr("ignore: got \"re:(\", no regular expression"));
}

// Backtracking without an end is given up.
TEST(ModuleListTest, SearchesEnd) {
  const ModuleList list = ListOf({"re:(a+)+$"}, ListSyntax::kCompressedTensors);
  EXPECT_EQ(list.Find(std::string(60, 'a') + "b"), nullptr);
}

}  // namespace
}  // namespace inflight::quantized
