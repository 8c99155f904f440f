// SPDX-License-Identifier: Apache-2.0
// What the plug-in does with every server, from version 1.13 of the interface on: it is built into
// a test with the functions that came later, and into one without them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "plugin_fixture.h"

namespace fake_triton {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::SizeIs;

TEST_F(PluginTest, AnswersOnceWithoutStreaming) {
  ASSERT_NO_FATAL_FAILURE(Load());
  EXPECT_DONE(Plugin().Call("TRITONBACKEND_ModelInstanceReady", &instance));
  const auto request = Ask(kNumTokens, /*streaming=*/false);
  Execute(request.get());
  const auto sent = request->WaitUntilReleased();
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_TRUE(sent[0].is_final);
  EXPECT_THAT(sent[0].outputs.at("sequence_length"), ElementsAre(5 + kNumTokens));
  EXPECT_THAT(sent[0].outputs.at("output_ids"), SizeIs(5 + kNumTokens));
  Unload();
  EXPECT_EQ(request->num_releases, 1);
  EXPECT_EQ(instance.num_successes, 1);
  EXPECT_EQ(instance.num_batches, 1);
  EXPECT_EQ(instance.num_failures, 0);
}

TEST_F(PluginTest, StreamsTheSameTokens) {
  ASSERT_NO_FATAL_FAILURE(Load());
  const auto whole = Ask(kNumTokens, /*streaming=*/false);
  const auto streamed = Ask(kNumTokens, /*streaming=*/true);
  Execute(whole.get());
  Execute(streamed.get());
  std::vector<int32_t> expected = whole->WaitUntilReleased().at(0).outputs.at("output_ids");
  expected.erase(expected.begin(), expected.begin() + 5);
  std::vector<int32_t> tokens;
  int num_finals = 0;
  for (const Sent& sent : streamed->WaitUntilReleased()) {
    num_finals += sent.is_final ? 1 : 0;
    if (const auto found = sent.outputs.find("output_ids"); found != sent.outputs.end())
      tokens.insert(tokens.end(), found->second.begin(), found->second.end());
  }
  EXPECT_EQ(tokens, expected);
  EXPECT_EQ(num_finals, 1);
  Unload();
}

TEST_F(PluginTest, InputsMayLieInPieces) {
  ASSERT_NO_FATAL_FAILURE(Load());
  const auto whole = Ask(kNumTokens, /*streaming=*/false);
  const auto pieces = Ask(kNumTokens, /*streaming=*/false);
  std::string& bytes = pieces->inputs[0].buffers[0];
  pieces->inputs[0].buffers = {bytes.substr(0, 3), "", bytes.substr(3)};
  Execute(whole.get());
  Execute(pieces.get());
  EXPECT_EQ(pieces->WaitUntilReleased().at(0).outputs, whole->WaitUntilReleased().at(0).outputs);
  Unload();
}

TEST_F(PluginTest, AResponseThatFindsNoRoomEndsItsRequest) {
  ASSERT_NO_FATAL_FAILURE(Load());
  const auto request = Ask(/*num_tokens=*/900, /*streaming=*/true);
  Execute(request.get());
  request->WaitForResponses(2);
  request->refuses_outputs = true;
  const auto sent = request->WaitUntilReleased();
  ASSERT_TRUE(sent.back().error);
  EXPECT_THAT(sent.back().error->message, HasSubstr("no room"));
  EXPECT_TRUE(sent.back().is_final);
  Unload();
}

TEST_F(PluginTest, AnUnloadEndsWhatRuns) {
  ASSERT_NO_FATAL_FAILURE(Load());
  const auto request = Ask(/*num_tokens=*/900, /*streaming=*/true);
  Execute(request.get());
  request->WaitForResponses(2);
  Unload();
  EXPECT_EQ(request->num_releases, 1);
  EXPECT_TRUE(request->sent.back().is_final);
}

TEST_F(PluginTest, GaugesComeAndGoWithTheirModel) {
  ASSERT_NO_FATAL_FAILURE(Load());
  TRITONBACKEND_Model second;
  second.version = 2;
  second.dir = model.dir;
  second.config = Config();
  second.backend = &backend;
  ASSERT_FALSE(Plugin().Call("TRITONBACKEND_ModelInitialize", &second));
  const std::string series =
      "nv_trt_llm_request_metrics{model=\"tensorrt_llm\",version=\"1\",request_type=\"max\"}";
  EXPECT_THAT(Metrics(), Contains(Key(series)));
  const size_t of_both = Metrics().size();
  EXPECT_DONE(Plugin().Call("TRITONBACKEND_ModelFinalize", &second));
  EXPECT_THAT(Metrics(), SizeIs(of_both / 2));
  Unload();
  EXPECT_THAT(Metrics(), IsEmpty());
}

TEST_F(PluginTest, LoadsFailByTheKeyAtFault) {
  const auto parameter = [](const char* key, const char* value) {
    return nlohmann::json{{"parameters", {{key, {{"string_value", value}}}}}};
  };
  EXPECT_THAT(LoadError(parameter("gpt_model_path", "/nowhere/at/all")),
              HasSubstr("/nowhere/at/all"));
  EXPECT_THAT(LoadError(parameter("gpt_model_type", "V7")), HasSubstr("Invalid gpt_model_type"));
  EXPECT_THAT(LoadError(parameter("cancellation_check_period_ms", "0")),
              HasSubstr("cancellation_check_period_ms: got \"0\", must be from 1"));
  EXPECT_THAT(LoadError({{"max_batch_size", "many"}}), HasSubstr("max_batch_size"));
  EXPECT_THAT(LoadError({{"input", nlohmann::json::array()}}),
              HasSubstr("runs tensorrt_llm models"));
}

TEST_F(PluginTest, LoadsFailWhereTheirEngineIsNotSaid) {
  model.dir = testing::TempDir() + "/without_engine";
  std::filesystem::create_directories(model.dir + "/1");
  EXPECT_THAT(LoadError({{"parameters", {{"gpt_model_path", nullptr}}}}),
              AllOf(HasSubstr("gpt_model_path is not set"), HasSubstr("holds no engine")));
}

TEST_F(PluginTest, LoadsFailWithoutTheInputsOfAModel) {
  for (const char* name : {"input_ids", "request_output_len"}) {
    nlohmann::json inputs = nlohmann::json::parse(Config()).at("input");
    for (nlohmann::json& input : inputs)
      if (input.at("name") == name) input["name"] = "other";
    EXPECT_THAT(LoadError({{"input", inputs}}), HasSubstr("runs tensorrt_llm models")) << name;
  }
}

TEST_F(PluginTest, TheLogIsTheServers) {
  TakeLog();
  ASSERT_NO_FATAL_FAILURE(Load());
  EXPECT_THAT(TakeLog(),
              Contains(AllOf(HasSubstr("max_tokens_in_paged_kv_cache"), HasSubstr("4096"))));
  SetLogs(false);
  Unload();
  ASSERT_NO_FATAL_FAILURE(Load());
  EXPECT_THAT(TakeLog(), IsEmpty());
  SetLogs(true);
  Unload();
}

}  // namespace
}  // namespace fake_triton
