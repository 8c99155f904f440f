// SPDX-License-Identifier: Apache-2.0
// libtriton_tensorrtllm.so through its interface, in a process that stands for the server: what the
// real server (test_plugin.py) does not do on purpose, and what sanitizers should see.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "plugin_fixture.h"

namespace fake_triton {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TEST(PluginVersions, AreLookedAtFirst) {
  TRITONBACKEND_Backend backend;
  backend.config.json = "{}";
  for (const auto& [major, minor] : {std::pair<uint32_t, uint32_t>{1, 12}, {2, 19}}) {
    SetVersion(major, minor);
    const auto error = Plugin().Call("TRITONBACKEND_Initialize", &backend);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, TRITONSERVER_ERROR_UNSUPPORTED);
    EXPECT_THAT(error->message, HasSubstr("needed is 1.13"));
  }
  SetVersion(1, 13);
  EXPECT_DONE(Plugin().Call("TRITONBACKEND_Initialize", &backend));
  EXPECT_DONE(Plugin().Call("TRITONBACKEND_Finalize", &backend));
  SetVersion(1, 19);
}

TEST(PluginOptions, BadOnesFailByName) {
  for (const auto& [json, text] : {std::pair<const char*, const char*>{"[]", "not a JSON object"},
                                   {R"({"cmdline":{"threads":"-1"}})", "threads: got \"-1\""},
                                   {R"({"cmdline":{"device":"tpu"}})", "tpu"}}) {
    TRITONBACKEND_Backend backend;
    backend.config.json = json;
    const auto error = Plugin().Call("TRITONBACKEND_Initialize", &backend);
    ASSERT_TRUE(error) << json;
    EXPECT_EQ(error->code, TRITONSERVER_ERROR_INVALID_ARG);
    EXPECT_THAT(error->message, HasSubstr(text));
  }
}

TEST(PluginOptions, UnknownOnesHaveALineInTheLog) {
  TRITONBACKEND_Backend backend;
  backend.config.json = R"({"cmdline":{"device":"cpu","auto-complete-config":"true","fast":"1"}})";
  TakeLog();
  EXPECT_DONE(Plugin().Call("TRITONBACKEND_Initialize", &backend));
  EXPECT_THAT(TakeLog(), ElementsAre(AllOf(HasSubstr("key=fast"), HasSubstr("--backend-config"))));
  EXPECT_DONE(Plugin().Call("TRITONBACKEND_Finalize", &backend));
}

TEST(PluginAttributes, OneInstanceWithoutGroups) {
  TRITONBACKEND_BackendAttribute attributes;
  EXPECT_DONE(Plugin().Call("TRITONBACKEND_GetBackendAttribute",
                            static_cast<TRITONBACKEND_Backend*>(nullptr), &attributes));
  EXPECT_EQ(attributes.num_groups, 1);
  EXPECT_TRUE(attributes.is_parallel);
}

TEST_F(PluginTest, EachResponseIsCounted) {
  ASSERT_NO_FATAL_FAILURE(Load());
  const auto whole = Ask(kNumTokens, /*streaming=*/false);
  const auto streamed = Ask(kNumTokens, /*streaming=*/true);
  Execute(whole.get());
  Execute(streamed.get());
  whole->WaitUntilReleased();
  streamed->WaitUntilReleased();
  Unload();
  EXPECT_EQ(instance.num_responses, 1 + kNumTokens);
}

TEST_F(PluginTest, ABadRequestEndsWithItsErrorAlone) {
  ASSERT_NO_FATAL_FAILURE(Load());
  const auto bad = Ask(/*num_tokens=*/0, /*streaming=*/false);
  const auto bytes = Ask(kNumTokens, /*streaming=*/false);
  bytes->parameters = {{.name = "blob", .type = TRITONSERVER_PARAMETER_BYTES, .text = "x"}};
  const auto good = Ask(kNumTokens, /*streaming=*/false);
  good->parameters = {{.name = "cache_salt", .text = "pepper"},
                      {.name = "count", .type = TRITONSERVER_PARAMETER_INT, .number = 3},
                      {.name = "flag", .type = TRITONSERVER_PARAMETER_BOOL, .flag = true},
                      {.name = "part", .type = TRITONSERVER_PARAMETER_DOUBLE, .fraction = 0.5}};
  TRITONBACKEND_Request* batch[] = {bad.get(), bytes.get(), good.get()};
  EXPECT_DONE(Plugin().Call("TRITONBACKEND_ModelInstanceExecute", &instance,
                            static_cast<TRITONBACKEND_Request**>(batch), uint32_t{3}));
  const auto error = bad->WaitUntilReleased().at(0).error;
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, TRITONSERVER_ERROR_INVALID_ARG);
  EXPECT_THAT(error->message, HasSubstr("request_output_len"));
  const auto refused = bytes->WaitUntilReleased().at(0).error;
  ASSERT_TRUE(refused);
  EXPECT_THAT(refused->message, HasSubstr("blob: the parameter is of type 4"));
  EXPECT_FALSE(good->WaitUntilReleased().at(0).error);
  Unload();
  EXPECT_EQ(instance.num_failures, 2);
  EXPECT_EQ(instance.num_successes, 1);
}

TEST_F(PluginTest, WhoIsGoneIsCancelled) {
  ASSERT_NO_FATAL_FAILURE(Load());
  const auto request = Ask(/*num_tokens=*/900, /*streaming=*/true);
  Execute(request.get());
  request->WaitForResponses(2);
  request->is_cancelled = true;
  const auto sent = request->WaitUntilReleased();
  EXPECT_LT(sent.size(), 900U);
  ASSERT_TRUE(sent.back().error);
  EXPECT_EQ(sent.back().error->code, TRITONSERVER_ERROR_CANCELLED);
  EXPECT_TRUE(sent.back().is_final);
  Unload();
}

TEST_F(PluginTest, BuffersOfAGpuNeedABuildWithCuda) {
#ifdef INFLIGHT_HAS_CUDA
  GTEST_SKIP()
      << "shows builds without CUDA, which CI tests; of others plugin_cuda_test.cc shows more";
#endif
  ASSERT_NO_FATAL_FAILURE(Load());
  const auto in = Ask(kNumTokens, /*streaming=*/false);
  in->inputs[0].place = TRITONSERVER_MEMORY_GPU;
  const auto out = Ask(kNumTokens, /*streaming=*/false);
  out->output_place = TRITONSERVER_MEMORY_GPU;
  Execute(in.get());
  Execute(out.get());
  for (const auto* request : {&in, &out}) {
    const auto error = (*request)->WaitUntilReleased().at(0).error;
    ASSERT_TRUE(error);
    EXPECT_THAT(error->message, HasSubstr(request == &in ? "input 'input_ids'" : "output '"));
  }
  Unload();
}

// A request for a text of that regular expression.
std::unique_ptr<TRITONBACKEND_Request> AskGuided(const std::string& regex) {
  auto request = Ask(/*num_tokens=*/12, /*streaming=*/false);
  request->inputs.push_back(Text("guided_decoding_guide_type", "regex"));
  request->inputs.push_back(Text("guided_decoding_guide", regex));
  return request;
}

nlohmann::json GuideInputs() {
  nlohmann::json inputs = nlohmann::json::parse(Config()).at("input");
  for (const char* name : {"guided_decoding_guide_type", "guided_decoding_guide"})
    inputs.push_back(
        {{"name", name}, {"data_type", "TYPE_STRING"}, {"dims", {1}}, {"optional", true}});
  return {{"input", inputs}};
}

// What ids of letters spell.
std::string Spelled(std::span<const int32_t> ids) {
  std::ifstream file(std::string(INFLIGHT_DEMO) + "/tokenizer.json");
  const auto vocab = nlohmann::json::parse(file).at("model").at("vocab");
  std::map<int32_t, std::string> texts;
  for (const auto& [text, id] : vocab.items()) texts[id] = text;
  std::string spelled;
  for (const int32_t id : ids) spelled += texts[id];
  return spelled;
}

TEST_F(PluginTest, AnswersAreGuided) {
  model.config = Config(GuideInputs());
  ASSERT_NO_FATAL_FAILURE(Load());
  const auto good = AskGuided("(reddish|greenish)");
  const auto bad = AskGuided("(");
  Execute(good.get());
  Execute(bad.get());
  const auto error = bad->WaitUntilReleased().at(0).error;
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, TRITONSERVER_ERROR_INVALID_ARG);
  EXPECT_THAT(error->message, HasSubstr("guided_decoding_guide"));
  const auto sent = good->WaitUntilReleased();
  ASSERT_FALSE(sent.at(0).error) << sent[0].error->message;
  const auto& ids = sent[0].outputs.at("output_ids");
  const auto length = static_cast<size_t>(sent[0].outputs.at("sequence_length").at(0));
  EXPECT_THAT(Spelled(std::span(ids).subspan(5, length - 5)),
              testing::AnyOf(StartsWith("reddish"), StartsWith("greenish")));
  Unload();
}

TEST_F(PluginTest, AnUnloadEndsWhatWaitsForItsGuide) {
  model.config = Config(GuideInputs());
  ASSERT_NO_FATAL_FAILURE(Load());
  const auto request = AskGuided("[a-z]{300}");
  Execute(request.get());
  Unload();
  EXPECT_EQ(request->num_releases, 1);
  EXPECT_TRUE(request->sent.back().is_final);
}

TEST_F(PluginTest, GuidesMayBeOfATokenizerElsewhere) {
  const std::filesystem::path bare = std::filesystem::path(testing::TempDir()) / "bare";
  std::filesystem::create_directories(bare);
  for (const auto& file : std::filesystem::directory_iterator(INFLIGHT_DEMO))
    if (file.is_regular_file() && !file.path().filename().string().starts_with("tokenizer"))
      std::filesystem::copy_file(file.path(), bare / file.path().filename(),
                                 std::filesystem::copy_options::overwrite_existing);
  nlohmann::json changes = GuideInputs();
  changes["parameters"]["gpt_model_path"]["string_value"] = bare.string();
  model.config = Config(changes);
  ASSERT_NO_FATAL_FAILURE(Load());
  const auto without = AskGuided("(red|green)");
  Execute(without.get());
  const auto error = without->WaitUntilReleased().at(0).error;
  ASSERT_TRUE(error);
  EXPECT_THAT(error->message, HasSubstr("tokenizer_dir"));
  Unload();
  changes["parameters"]["tokenizer_dir"]["string_value"] = INFLIGHT_DEMO;
  model.config = Config(changes);
  ASSERT_NO_FATAL_FAILURE(Load());
  const auto with = AskGuided("(red|green)");
  Execute(with.get());
  EXPECT_FALSE(with->WaitUntilReleased().at(0).error);
  Unload();
}

}  // namespace
}  // namespace fake_triton
