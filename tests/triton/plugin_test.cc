// SPDX-License-Identifier: Apache-2.0
// libtriton_tensorrtllm.so through its interface, in a process that stands for the server: what the
// real server (test_plugin.py) does not do on purpose, and what sanitizers should see.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "fake_server.h"

namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::Eq;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::SizeIs;

constexpr int kNumTokens = 6;

// The library, as a server holds it.
class Library {
 public:
  Library() : handle_(dlopen(INFLIGHT_PLUGIN, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) ADD_FAILURE() << dlerror();
  }

  template <typename... Args>
  std::optional<TRITONSERVER_Error> Call(const char* name, Args... args) const {
    const auto function = reinterpret_cast<TRITONSERVER_Error* (*)(Args...)>(dlsym(handle_, name));
    if (function == nullptr) {
      ADD_FAILURE() << name << " is not exported";
      return std::nullopt;
    }
    TRITONSERVER_Error* const error = function(args...);
    if (error == nullptr) return std::nullopt;
    const TRITONSERVER_Error copy = *error;
    TRITONSERVER_ErrorDelete(error);
    return copy;
  }

 private:
  void* const handle_;  // stays for the process, as the library asks
};

const Library& Plugin() {
  static const Library library;
  return library;
}

#define EXPECT_DONE(call)                                  \
  do {                                                     \
    const auto error_of_call = (call);                     \
    EXPECT_FALSE(error_of_call) << error_of_call->message; \
  } while (false)

std::string Config(const nlohmann::json& changes = nlohmann::json::object()) {
  const auto tensor = [](const char* name, const char* type, const std::vector<int>& dims) {
    return nlohmann::json{{"name", name}, {"data_type", type}, {"dims", dims}};
  };
  nlohmann::json config = {
      {"name", "tensorrt_llm"},
      {"backend", "tensorrtllm"},
      {"max_batch_size", 8},
      {"model_transaction_policy", {{"decoupled", true}}},
      {"input",
       {tensor("input_ids", "TYPE_INT32", {-1}), tensor("input_lengths", "TYPE_INT32", {1}),
        tensor("request_output_len", "TYPE_INT32", {1}), tensor("streaming", "TYPE_BOOL", {1})}},
      {"output",
       {tensor("output_ids", "TYPE_INT32", {-1, -1}),
        tensor("sequence_length", "TYPE_INT32", {-1})}},
      {"a_field_of_a_later_server", {{"count", 1}}},
      {"parameters",
       {{"gpt_model_path", {{"string_value", INFLIGHT_DEMO}}},
        {"gpt_model_type", {{"string_value", "inflight_batching"}}},
        {"max_tokens_in_paged_kv_cache", {{"string_value", "4096"}}}}}};
  config.merge_patch(changes);
  return config.dump();
}

template <typename T>
TRITONBACKEND_Input Input(const char* name, TRITONSERVER_DataType datatype, std::vector<T> values) {
  std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return {.name = name,
          .datatype = datatype,
          .shape = {1, static_cast<int64_t>(values.size())},
          .buffers = {std::move(bytes)}};
}

std::unique_ptr<TRITONBACKEND_Request> Ask(int num_tokens, bool streaming) {
  auto request = std::make_unique<TRITONBACKEND_Request>();
  request->id = "one";
  request->inputs.push_back(
      Input<int32_t>("input_ids", TRITONSERVER_TYPE_INT32, {2043, 549, 501, 256, 464}));
  request->inputs.push_back(Input<int32_t>("input_lengths", TRITONSERVER_TYPE_INT32, {5}));
  request->inputs.push_back(
      Input<int32_t>("request_output_len", TRITONSERVER_TYPE_INT32, {num_tokens}));
  request->inputs.push_back(
      Input<uint8_t>("streaming", TRITONSERVER_TYPE_BOOL, {uint8_t{streaming}}));
  request->outputs = {"output_ids", "sequence_length"};
  return request;
}

class PluginTest : public testing::Test {
 protected:
  void SetUp() override {
    backend.config.json = R"({"cmdline":{"device":"cpu","dtype":"float32","threads":"1"}})";
    ASSERT_FALSE(Plugin().Call("TRITONBACKEND_Initialize", &backend));
    model.dir = testing::TempDir();
    model.config = Config();
    model.backend = &backend;
    instance.model = &model;
  }
  void TearDown() override {
    EXPECT_DONE(Plugin().Call("TRITONBACKEND_Finalize", &backend));
    const fake_triton::Counts& live = fake_triton::Live();
    EXPECT_EQ(live.errors, 0);
    EXPECT_EQ(live.messages, 0);
    EXPECT_EQ(live.parameters, 0);
    EXPECT_EQ(live.metrics, 0);
    EXPECT_EQ(live.responses, 0);
    EXPECT_EQ(live.factories, 0);
    EXPECT_EQ(live.statistics, 0);
  }

  void Load() {
    const auto error = Plugin().Call("TRITONBACKEND_ModelInitialize", &model);
    ASSERT_FALSE(error) << error->message;
  }
  void Unload() { EXPECT_DONE(Plugin().Call("TRITONBACKEND_ModelFinalize", &model)); }
  void Execute(TRITONBACKEND_Request* request) {
    EXPECT_DONE(
        Plugin().Call("TRITONBACKEND_ModelInstanceExecute", &instance, &request, uint32_t{1}));
  }
  std::string LoadError(const nlohmann::json& changes) {
    model.config = Config(changes);
    const auto error = Plugin().Call("TRITONBACKEND_ModelInitialize", &model);
    EXPECT_TRUE(error);
    return error ? error->message : "";
  }

  TRITONBACKEND_Backend backend;
  TRITONBACKEND_Model model;
  TRITONBACKEND_ModelInstance instance;
};

TEST(PluginVersions, AreLookedAtFirst) {
  TRITONBACKEND_Backend backend;
  backend.config.json = "{}";
  for (const auto& [major, minor] : {std::pair<uint32_t, uint32_t>{1, 12}, {2, 19}}) {
    fake_triton::SetVersion(major, minor);
    const auto error = Plugin().Call("TRITONBACKEND_Initialize", &backend);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, TRITONSERVER_ERROR_UNSUPPORTED);
    EXPECT_THAT(error->message, HasSubstr("needed is 1.13"));
  }
  fake_triton::SetVersion(1, 13);
  EXPECT_DONE(Plugin().Call("TRITONBACKEND_Initialize", &backend));
  EXPECT_DONE(Plugin().Call("TRITONBACKEND_Finalize", &backend));
  fake_triton::SetVersion(1, 19);
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
  fake_triton::TakeLog();
  EXPECT_DONE(Plugin().Call("TRITONBACKEND_Initialize", &backend));
  EXPECT_THAT(fake_triton::TakeLog(),
              ElementsAre(AllOf(HasSubstr("key=fast"), HasSubstr("--backend-config"))));
  EXPECT_DONE(Plugin().Call("TRITONBACKEND_Finalize", &backend));
}

TEST(PluginAttributes, OneInstanceWithoutGroups) {
  TRITONBACKEND_BackendAttribute attributes;
  EXPECT_DONE(Plugin().Call("TRITONBACKEND_GetBackendAttribute",
                            static_cast<TRITONBACKEND_Backend*>(nullptr), &attributes));
  EXPECT_EQ(attributes.num_groups, 1);
  EXPECT_TRUE(attributes.is_parallel);
}

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
  EXPECT_EQ(instance.num_responses, 1 + kNumTokens);
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

TEST_F(PluginTest, BuffersOfAGpuNeedABuildWithCuda) {
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
  EXPECT_THAT(fake_triton::Metrics(), Contains(Key(series)));
  const size_t of_both = fake_triton::Metrics().size();
  EXPECT_DONE(Plugin().Call("TRITONBACKEND_ModelFinalize", &second));
  EXPECT_THAT(fake_triton::Metrics(), SizeIs(of_both / 2));
  Unload();
  EXPECT_THAT(fake_triton::Metrics(), IsEmpty());
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

TEST_F(PluginTest, TheLogIsTheServers) {
  fake_triton::TakeLog();
  ASSERT_NO_FATAL_FAILURE(Load());
  EXPECT_THAT(fake_triton::TakeLog(),
              Contains(AllOf(HasSubstr("max_tokens_in_paged_kv_cache"), HasSubstr("4096"))));
  fake_triton::SetLogs(false);
  Unload();
  ASSERT_NO_FATAL_FAILURE(Load());
  EXPECT_THAT(fake_triton::TakeLog(), IsEmpty());
  fake_triton::SetLogs(true);
  Unload();
}

}  // namespace
