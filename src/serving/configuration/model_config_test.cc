// SPDX-License-Identifier: Apache-2.0
#include "serving/configuration/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serving/configuration/generated_config.h"

namespace inflight::serving {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Where deployers leave placeholders outside strings, in every layout that the text format allows.
TEST(ModelConfigText, PlaceholdersMayStandInAnyLayout) {
  const char* const texts[] = {
      "max_batch_size: ${a}\ninstance_group [ { count: ${b} kind: KIND_CPU } ]",
      "max_batch_size:${a} instance_group [{count:${b}, kind:KIND_CPU}]",
      "max_batch_size: ${a};\ninstance_group { count: ${b}; kind : KIND_CPU }",
      "max_batch_size : ${a},\r\ninstance_group: [\r\n{\r\ncount: ${b}\r\nkind: KIND_CPU\r\n}\r\n]",
      "max_batch_size: ${a} # ${c} in a comment\ninstance_group < kind: KIND_CPU count: ${b} >",
      "instance_group [ { kind: KIND_CPU, count: ${b} }, ]\nmax_batch_size: ${a}",
  };
  for (const char* text : texts) {
    const std::string file = text;
    const auto parsed = ParseModelConfig(file);
    if (file.find("}, ]") != std::string::npos) {
      EXPECT_FALSE(parsed.ok());  // a comma before the bracket is an error with or without us
      continue;
    }
    ASSERT_TRUE(parsed.ok()) << file << "\n" << parsed.status().ToString();
    EXPECT_TRUE(parsed->IsUnfilled("max_batch_size")) << file;
    EXPECT_TRUE(parsed->IsUnfilled("count")) << file;
    EXPECT_EQ(parsed->unfilled.size(), 2U) << file;
    ASSERT_EQ(parsed->config.instance_group_size(), 1) << file;
    EXPECT_EQ(parsed->config.instance_group(0).kind(), ::inference::ModelInstanceGroup::KIND_CPU);
  }
}

TEST(ModelConfigText, PlaceholdersInListsLeaveTheOtherElements) {
  const auto sizes = [](const std::string& list) {
    const auto parsed = ParseModelConfig("dynamic_batching { preferred_batch_size: " + list + " }");
    EXPECT_TRUE(parsed.ok()) << list << " " << parsed.status().ToString();
    const auto& found = parsed->config.dynamic_batching().preferred_batch_size();
    return std::vector<int>(found.begin(), found.end());
  };
  EXPECT_EQ(sizes("[ ${a} ]"), std::vector<int>());
  EXPECT_EQ(sizes("[${a}, 8]"), std::vector<int>({8}));
  EXPECT_EQ(sizes("[4, ${a}, 8]"), std::vector<int>({4, 8}));
  EXPECT_EQ(sizes("[4, ${a}]"), std::vector<int>({4}));
  EXPECT_EQ(sizes("${a}"), std::vector<int>());
}

TEST(ModelConfigText, SpellingsOfTruthThatUpstreamsTextFormatTakes) {
  for (const char* yes : {"True", "true", "t", "1"}) {
    const auto parsed =
        ParseModelConfig(std::string("model_transaction_policy { decoupled: ") + yes + " }");
    ASSERT_TRUE(parsed.ok()) << yes;
    EXPECT_TRUE(parsed->config.model_transaction_policy().decoupled());
  }
  for (const char* no : {"False", "false", "f", "0", "${decoupled_mode}"}) {
    const auto parsed =
        ParseModelConfig(std::string("model_transaction_policy { decoupled: ") + no + " }");
    ASSERT_TRUE(parsed.ok()) << no;
    EXPECT_FALSE(parsed->config.model_transaction_policy().decoupled());
  }
  EXPECT_FALSE(ParseModelConfig("model_transaction_policy { decoupled: yes }").ok());
}

TEST(ParseModelConfig, PlaceholdersOutsideStringsAreDropped) {
  const auto parsed = ParseModelConfig(R"(
    name: "tensorrt_llm"
    backend: "${triton_backend}"
    max_batch_size: ${triton_max_batch_size}
    model_transaction_policy { decoupled: ${decoupled_mode} }
    dynamic_batching {
      preferred_batch_size: [ ${triton_max_batch_size} ]
      max_queue_delay_microseconds: ${max_queue_delay_microseconds}
      default_queue_policy: { max_queue_size: ${max_queue_size} }
    }
    input { name: "draft_logits" data_type: ${logits_datatype} dims: [ -1, -1 ] }
    parameters: { key: "max_beam_width" value: { string_value: "${max_beam_width}" } }
    # a comment with ${unclosed
    instance_group [ { count: 1 kind: KIND_CPU } ])");
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  const auto& config = parsed->config;
  EXPECT_EQ(config.backend(), "${triton_backend}");
  EXPECT_EQ(config.max_batch_size(), 0);
  EXPECT_FALSE(config.model_transaction_policy().decoupled());
  EXPECT_EQ(config.dynamic_batching().preferred_batch_size_size(), 0);
  EXPECT_EQ(config.input(0).data_type(), ::inference::TYPE_FP32);
  EXPECT_EQ(config.parameters().at("max_beam_width").string_value(), "${max_beam_width}");
  EXPECT_THAT(parsed->unfilled,
              ElementsAre("max_batch_size", "decoupled", "max_queue_delay_microseconds",
                          "max_queue_size", "data_type"));
  EXPECT_EQ(FindParameter(config, "max_beam_width"), std::nullopt);
}

TEST(ParseModelConfig, PlaceholdersInListsLeaveTheOthers) {
  for (const char* list : {"[ ${a}, 8 ]", "[8, ${a}]", "[${a}, 8, ${b}]", "[8,${a},${b}]"}) {
    const auto parsed =
        ParseModelConfig(std::string("dynamic_batching { preferred_batch_size: ") + list + " }");
    ASSERT_TRUE(parsed.ok()) << list << ": " << parsed.status().ToString();
    EXPECT_THAT(parsed->config.dynamic_batching().preferred_batch_size(), ElementsAre(8)) << list;
  }
}

TEST(ParseModelConfig, BooleansHaveTheirSpellings) {
  for (const char* word : {"True", "true", "t", "1"}) {
    const auto parsed =
        ParseModelConfig(std::string("model_transaction_policy { decoupled: ") + word + " }");
    ASSERT_TRUE(parsed.ok()) << word;
    EXPECT_TRUE(parsed->config.model_transaction_policy().decoupled()) << word;
  }
  for (const char* word : {"False", "false", "f", "0"}) {
    const auto parsed =
        ParseModelConfig(std::string("model_transaction_policy { decoupled: ") + word + " }");
    ASSERT_TRUE(parsed.ok()) << word;
    EXPECT_FALSE(parsed->config.model_transaction_policy().decoupled()) << word;
  }
}

TEST(ParseModelConfig, ErrorsHaveTheirPlace) {
  EXPECT_THAT(ParseModelConfig("name: \"a\"\nno_such_field: 1").status().message(),
              HasSubstr("failed to read text proto: 2:"));
  EXPECT_FALSE(ParseModelConfig("name: \"a\" name: \"b\"").ok());
  EXPECT_FALSE(ParseModelConfig("max_batch_size: ${unclosed").ok());
  EXPECT_FALSE(ParseModelConfig("name: \"unclosed").ok());
  EXPECT_FALSE(
      ParseModelConfig("dynamic_batching {} ensemble_scheduling {}").ok());  // one choice of three
}

TEST(NormalizeModelConfig, FillsWhatTheConfigEndpointShows) {
  auto config = ParseModelConfig(R"(
    name: "m" max_batch_size: 4 dynamic_batching {} instance_group [ { count: 2 }, {} ])")
                    ->config;
  NormalizeModelConfig(config);
  EXPECT_EQ(config.version_policy().latest().num_versions(), 1U);
  EXPECT_THAT(config.dynamic_batching().preferred_batch_size(), ElementsAre(4));
  EXPECT_TRUE(config.optimization().input_pinned_memory().enable());
  EXPECT_TRUE(config.optimization().output_pinned_memory().enable());
  EXPECT_EQ(config.instance_group(0).name(), "m_0");
  EXPECT_EQ(config.instance_group(0).count(), 2);
  EXPECT_EQ(config.instance_group(1).name(), "m_1");
  EXPECT_EQ(config.instance_group(1).kind(), ::inference::ModelInstanceGroup::KIND_CPU);
}

TEST(NormalizeModelConfig, EnsemblesHaveNoInstances) {
  auto config = EnsembleConfig({.max_batch_size = 2});
  EXPECT_EQ(config.instance_group_size(), 0);
  EXPECT_FALSE(config.has_optimization());
}

}  // namespace
}  // namespace inflight::serving
