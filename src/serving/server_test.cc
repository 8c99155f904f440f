// SPDX-License-Identifier: Apache-2.0
#include "serving/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "serving/engine_loader.h"
#include "serving/test_models.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A directory of its own for each test, removed with it.
class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::temp_directory_path() /
            (std::string("inflight_") + info->name() + "_" + std::to_string(::getpid()));
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const fs::path& path, const std::string& content) const {
    fs::create_directories((root_ / path).parent_path());
    ASSERT_TRUE(WriteFile(root_ / path, content).ok());
  }
  std::string Path(const std::string& path) const { return (root_ / path).string(); }

  // A directory that any engine loader may take for a model.
  std::string ModelDir() const {
    Write("model/config.json", "{}");
    Write("model/tokenizer.json", ByteTokenizerJson());
    return Path("model");
  }

  // Takes every existing directory for an engine.
  EngineLoader Loader(bool threaded = false) {
    return [this, threaded](const fs::path& dir,
                            const ExecutorOptions& options) -> Result<LoadedEngine> {
      loaded_dirs_.push_back(dir.string());
      options_ = options;
      executor_ = std::make_shared<FakeExecutor>(FakeExecutor::SmallLimits(), threaded);
      LoadedEngine engine;
      engine.backend = {.steps = nullptr, .executor = executor_, .end_ids = {257}};
      engine.tokenizer_dir = dir;
      return engine;
    };
  }

  std::unique_ptr<Server> Serve(ServerOptions options, bool threaded = false) {
    auto server = CreateServerWith(options, Loader(threaded));
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    return server.ok() ? std::move(*server) : nullptr;
  }

  void WriteRepository(const std::string& repo, const std::string& llm_parameters,
                       const std::string& decoupled = "True") const;

  fs::path root_;
  std::shared_ptr<FakeExecutor> executor_;  // of the engine loaded last
  ExecutorOptions options_;
  std::vector<std::string> loaded_dirs_;
};

// The four models in the shape of the 0.10 release, cut to the tensors that the tests send.
void ServerTest::WriteRepository(const std::string& repo, const std::string& llm_parameters,
                                 const std::string& decoupled) const {
  Write(repo + "/preprocessing/config.pbtxt", R"(
    name: "preprocessing" backend: "python" max_batch_size: ${triton_max_batch_size}
    input [ { name: "QUERY" data_type: TYPE_STRING dims: [ -1 ] },
            { name: "REQUEST_OUTPUT_LEN" data_type: TYPE_INT32 dims: [ -1 ] },
            { name: "STOP_WORDS_DICT" data_type: TYPE_STRING dims: [ -1 ] optional: true } ]
    output [ { name: "INPUT_ID" data_type: TYPE_INT32 dims: [ -1 ] },
             { name: "REQUEST_INPUT_LEN" data_type: TYPE_INT32 dims: [ 1 ] },
             { name: "STOP_WORDS_IDS" data_type: TYPE_INT32 dims: [ 2, -1 ] },
             { name: "REQUEST_OUTPUT_LEN" data_type: TYPE_INT32 dims: [ -1 ] },
             { name: "OUT_END_ID" data_type: TYPE_INT32 dims: [ -1 ] } ]
    parameters { key: "tokenizer_dir" value: { string_value: "${tokenizer_dir}" } }
    parameters { key: "add_special_tokens" value: { string_value: "${add_special_tokens}" } }
    instance_group [ { count: ${preprocessing_instance_count} kind: KIND_CPU } ])");
  Write(repo + "/tensorrt_llm/config.pbtxt", R"(
    name: "tensorrt_llm" backend: "${triton_backend}" max_batch_size: ${triton_max_batch_size}
    model_transaction_policy { decoupled: )" + decoupled +
                                                 R"( }
    dynamic_batching { preferred_batch_size: [ ${triton_max_batch_size} ]
                       max_queue_delay_microseconds: ${max_queue_delay_microseconds}
                       default_queue_policy: { max_queue_size: 17 } }
    input [ { name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true },
            { name: "input_lengths" data_type: TYPE_INT32 dims: [ 1 ] reshape: { shape: [ ] } },
            { name: "request_output_len" data_type: TYPE_INT32 dims: [ 1 ] },
            { name: "end_id" data_type: TYPE_INT32 dims: [ 1 ] reshape: { shape: [ ] } optional: true },
            { name: "stop_words_list" data_type: TYPE_INT32 dims: [ 2, -1 ] optional: true },
            { name: "streaming" data_type: TYPE_BOOL dims: [ 1 ] optional: true },
            { name: "stop" data_type: TYPE_BOOL dims: [ 1 ] optional: true } ]
    output [ { name: "output_ids" data_type: TYPE_INT32 dims: [ -1, -1 ] },
             { name: "sequence_length" data_type: TYPE_INT32 dims: [ -1 ] } ]
    parameters { key: "gpt_model_type" value: { string_value: "${batching_strategy}" } }
)" + llm_parameters);
  Write(repo + "/postprocessing/config.pbtxt", R"(
    name: "postprocessing" backend: "python" max_batch_size: ${triton_max_batch_size}
    input [ { name: "TOKENS_BATCH" data_type: TYPE_INT32 dims: [ -1, -1 ] },
            { name: "SEQUENCE_LENGTH" data_type: TYPE_INT32 dims: [ -1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_STRING dims: [ -1 ] } ]
    parameters { key: "tokenizer_dir" value: { string_value: "${tokenizer_dir}" } })");
  Write(repo + "/ensemble/config.pbtxt", R"(
    name: "ensemble" platform: "ensemble" max_batch_size: ${triton_max_batch_size}
    input [ { name: "text_input" data_type: TYPE_STRING dims: [ -1 ] },
            { name: "max_tokens" data_type: TYPE_INT32 dims: [ -1 ] },
            { name: "stop_words" data_type: TYPE_STRING dims: [ -1 ] optional: true },
            { name: "stream" data_type: TYPE_BOOL dims: [ 1 ] optional: true } ]
    output [ { name: "text_output" data_type: TYPE_STRING dims: [ -1 ] } ]
    ensemble_scheduling { step [
      { model_name: "preprocessing" model_version: -1
        input_map { key: "QUERY" value: "text_input" }
        input_map { key: "REQUEST_OUTPUT_LEN" value: "max_tokens" }
        input_map { key: "STOP_WORDS_DICT" value: "stop_words" }
        output_map { key: "INPUT_ID" value: "_INPUT_ID" }
        output_map { key: "REQUEST_INPUT_LEN" value: "_REQUEST_INPUT_LEN" }
        output_map { key: "REQUEST_OUTPUT_LEN" value: "_REQUEST_OUTPUT_LEN" }
        output_map { key: "STOP_WORDS_IDS" value: "_STOP_WORDS_IDS" }
        output_map { key: "OUT_END_ID" value: "_END_ID" } },
      { model_name: "tensorrt_llm" model_version: -1
        input_map { key: "input_ids" value: "_INPUT_ID" }
        input_map { key: "input_lengths" value: "_REQUEST_INPUT_LEN" }
        input_map { key: "request_output_len" value: "_REQUEST_OUTPUT_LEN" }
        input_map { key: "stop_words_list" value: "_STOP_WORDS_IDS" }
        input_map { key: "end_id" value: "_END_ID" }
        input_map { key: "streaming" value: "stream" }
        output_map { key: "output_ids" value: "_TOKENS" }
        output_map { key: "sequence_length" value: "_LENGTH" } },
      { model_name: "postprocessing" model_version: -1
        input_map { key: "TOKENS_BATCH" value: "_TOKENS" }
        input_map { key: "SEQUENCE_LENGTH" value: "_LENGTH" }
        output_map { key: "OUTPUT" value: "text_output" } } ] })");
  for (const char* model : {"preprocessing", "tensorrt_llm", "postprocessing", "ensemble"}) {
    fs::create_directories(root_ / repo / model / "1");
  }
}

Request TextRequest(const std::string& text, int max_tokens, std::vector<Tensor> more = {}) {
  Request request;
  request.model_name = "ensemble";
  request.inputs = {Text("text_input", {text}), Int("max_tokens", max_tokens)};
  for (Tensor& tensor : more) request.inputs.push_back(std::move(tensor));
  return request;
}

std::vector<std::string> Lines(const std::vector<IndexEntry>& index) {
  std::vector<std::string> lines;
  for (const IndexEntry& entry : index) {
    lines.push_back(entry.name + " " + entry.version + " " + entry.state);
  }
  return lines;
}

TEST_F(ServerTest, ADirectoryIsServedUnderTheFourNames) {
  const auto server = Serve({.model_dirs = {ModelDir()}});
  ASSERT_NE(server, nullptr);
  EXPECT_TRUE(server->live());
  EXPECT_TRUE(server->ready());
  EXPECT_THAT(Lines(server->Index(false)),
              ElementsAre("ensemble 1 READY", "postprocessing 1 READY", "preprocessing 1 READY",
                          "tensorrt_llm 1 READY"));
  EXPECT_EQ(server->models().size(), 4U);
  const auto ensemble = server->FindModel("ensemble", "");
  ASSERT_TRUE(ensemble.ok());
  EXPECT_TRUE((*ensemble)->decoupled());
  EXPECT_EQ((*ensemble)->config().max_batch_size(), 8);
  ASSERT_EQ(server->executor_gauges().size(), 1U);
  EXPECT_EQ(server->executor_gauges()[0].model, "tensorrt_llm");

  Collector got;
  server->Infer(TextRequest("ab", 3), got.Handler());
  executor_->Run();
  EXPECT_EQ(got.Joined(), "ab");  // <s>, a, b
}

TEST_F(ServerTest, WithoutDecouplingThereIsNoStreaming) {
  const auto server = Serve({.model_dirs = {ModelDir()}, .decoupled = false});
  ASSERT_NE(server, nullptr);
  EXPECT_FALSE((*server->FindModel("ensemble", ""))->decoupled());
  Collector got;
  server->Infer(TextRequest("ab", 3, {Bool("stream", true)}), got.Handler());
  EXPECT_THAT(got.status().message(), HasSubstr("Streaming is only supported if model is"));
}

TEST_F(ServerTest, UnknownModelsAndVersionsHaveTheKnownTexts) {
  const auto server = Serve({.model_dirs = {ModelDir()}});
  ASSERT_NE(server, nullptr);
  const auto error = [&](const char* name, const char* version) {
    return server->FindModel(name, version).status();
  };
  EXPECT_EQ(error("nosuch", ""), NotFound("Request for unknown model: 'nosuch' is not found"));
  EXPECT_EQ(error("ensemble", "4"),
            NotFound("Request for unknown model: 'ensemble' version 4 is not found"));
  EXPECT_EQ(error("ensemble", "x").message(),
            "failed to get model version from specified version string 'x' (details: stol), "
            "version should be an integral value > 0");
  EXPECT_TRUE(server->FindModel("ensemble", "1").ok());
}

TEST_F(ServerTest, BadRequestsAreAnsweredOnceAndOthersGoOn) {
  const auto server = Serve({.model_dirs = {ModelDir()}});
  ASSERT_NE(server, nullptr);
  Collector good;
  server->Infer(TextRequest("ab", 3), good.Handler());
  Request unknown = TextRequest("x", 1);
  unknown.model_name = "nosuch";
  Request missing = TextRequest("x", 1);
  missing.inputs.resize(1);
  Request extra = TextRequest("x", 1, {Int("no_such_tensor", 1)});
  Request type = TextRequest("x", 1);
  type.inputs[1] = Float("max_tokens", 1);
  for (const auto& [request, message] :
       std::vector<std::pair<Request, const char*>>{{unknown, "Request for unknown model"},
                                                    {missing, "missing required input(s)"},
                                                    {extra, "unexpected inference input"},
                                                    {type, "data-type is 'FP32'"},
                                                    {TextRequest("a\xff", 1), "text_input"},
                                                    {TextRequest("x", 0), "max_tokens: got 0"}}) {
    Collector got;
    server->Infer(request, got.Handler());
    EXPECT_EQ(got.num_final(), 1) << message;
    EXPECT_EQ(got.responses().size(), 1U) << message;
    EXPECT_THAT(got.status().message(), HasSubstr(message));
  }
  executor_->Run();
  EXPECT_TRUE(good.status().ok());
}

TEST_F(ServerTest, ARepositoryOfTemplatesIsServed) {
  WriteRepository("repo", R"(
    parameters { key: "exclude_input_in_output" value: { string_value: "True" } }
    parameters { key: "max_tokens_in_paged_kv_cache" value: { string_value: "640" } }
    parameters { key: "enable_kv_cache_reuse" value: { string_value: "False" } })");
  Write("repo/tensorrt_llm/1/config.json", "{}");
  Write("repo/tensorrt_llm/1/tokenizer.json", ByteTokenizerJson());
  const auto server = Serve({.model_repositories = {Path("repo")}});
  ASSERT_NE(server, nullptr);
  EXPECT_TRUE(server->ready());
  EXPECT_THAT(loaded_dirs_, ElementsAre(Path("repo/tensorrt_llm/1")));
  EXPECT_EQ(options_.max_kv_tokens, 640);
  EXPECT_EQ(options_.max_queue_size, 17);
  EXPECT_FALSE(options_.enable_prefix_reuse);
  const auto llm = *server->FindModel("tensorrt_llm", "");
  EXPECT_EQ(llm->config().backend(), "tensorrtllm");
  EXPECT_EQ(llm->config().max_batch_size(), 8);  // the engine's
  EXPECT_EQ((*server->FindModel("preprocessing", ""))->config().instance_group(0).count(), 1);
  EXPECT_TRUE((*server->FindModel("ensemble", ""))->decoupled());

  Collector got;
  server->Infer(TextRequest("ab", 3, {Text("stop_words", {"zz"})}), got.Handler());
  EXPECT_EQ(executor_->last_request.input_ids, ByteIds("ab"));  // no <s>: the default of 0.10
  EXPECT_THAT(executor_->last_request.stop_words, ElementsAre(ByteIds("zz")));
  EXPECT_THAT(executor_->last_request.end_ids, ElementsAre(257));
  executor_->Run();
  EXPECT_EQ(got.Joined(), "aba");
  EXPECT_EQ(got.last().outputs.size(), 1U);  // this release sends no zeros
}

TEST_F(ServerTest, AnEngineOneLevelDeeperAndModelsOneLevelDeeperAreFound) {
  WriteRepository("outer/repo", "");
  Write("outer/repo/tensorrt_llm/1/only-engine/config.json", "{}");
  Write("outer/repo/tensorrt_llm/1/only-engine/tokenizer.json", ByteTokenizerJson());
  const auto server = Serve({.model_repositories = {Path("outer")}});
  ASSERT_NE(server, nullptr);
  EXPECT_THAT(loaded_dirs_, ElementsAre(Path("outer/repo/tensorrt_llm/1/only-engine")));
  Collector got;
  server->Infer(TextRequest("ab", 2), got.Handler());
  executor_->Run();
  EXPECT_EQ(got.Joined(), "abab");  // the prompt is part of the answer unless it is excluded
}

TEST_F(ServerTest, BlsIsListedAsUnavailableAndDoesNotStopTheStart) {
  WriteRepository("repo", "");
  Write("repo/tensorrt_llm/1/config.json", "{}");
  Write("repo/tensorrt_llm/1/tokenizer.json", ByteTokenizerJson());
  Write("repo/tensorrt_llm_bls/config.pbtxt", R"(
    name: "tensorrt_llm_bls" backend: "python"
    input { name: "text_input" data_type: TYPE_STRING dims: [ -1 ] }
    output { name: "text_output" data_type: TYPE_STRING dims: [ -1 ] })");
  fs::create_directories(root_ / "repo/tensorrt_llm_bls/1");
  const auto server = Serve({.model_repositories = {Path("repo")}});
  ASSERT_NE(server, nullptr);
  EXPECT_TRUE(server->ready());
  const std::vector<IndexEntry> index = server->Index(false);
  const auto bls = std::find_if(index.begin(), index.end(), [](const IndexEntry& entry) {
    return entry.name == "tensorrt_llm_bls";
  });
  ASSERT_NE(bls, index.end());
  EXPECT_EQ(bls->state, "UNAVAILABLE");
  EXPECT_THAT(bls->reason, HasSubstr("Unsupported: "));
  EXPECT_EQ(server->Index(true).size(), 4U);
  EXPECT_EQ(server->FindModel("tensorrt_llm_bls", "").status(),
            NotFound("Request for unknown model: 'tensorrt_llm_bls' has no available versions"));
  EXPECT_EQ(server->FindModel("tensorrt_llm_bls", "1").status().code(), StatusCode::kUnavailable);
}

TEST_F(ServerTest, WhatCannotLoadEndsTheStartOrLeavesTheServerNotReady) {
  WriteRepository("repo", R"(
    parameters { key: "batch_scheduler_policy" value: { string_value: "max_utilization" } })");
  Write("repo/tensorrt_llm/1/config.json", "{}");
  Write("repo/tensorrt_llm/1/tokenizer.json", ByteTokenizerJson());
  const auto failed = CreateServerWith({.model_repositories = {Path("repo")}}, Loader());
  EXPECT_THAT(failed.status().message(), HasSubstr("failed to load all models: 'tensorrt_llm'"));
  EXPECT_THAT(failed.status().message(), HasSubstr("batch_scheduler_policy 'max_utilization'"));
  const auto server = Serve({.model_repositories = {Path("repo")}, .exit_on_error = false});
  ASSERT_NE(server, nullptr);
  EXPECT_TRUE(server->live());
  EXPECT_FALSE(server->ready());
  EXPECT_THAT(Lines(server->Index(true)), testing::IsEmpty());
}

TEST_F(ServerTest, BrokenRepositoriesNameTheFileAndTheFault) {
  const auto error = [&](const std::string& repo) {
    return CreateServerWith({.model_repositories = {Path(repo)}}, Loader()).status().message();
  };
  Write("syntax/m/config.pbtxt", "name: \"m\"\nbogus: 1");
  EXPECT_THAT(error("syntax"), HasSubstr("Poll failed for model directory 'm': failed to read text "
                                         "proto: 2:"));
  Write("name/m/config.pbtxt", "name: \"other\"");
  EXPECT_THAT(error("name"), HasSubstr("unexpected directory name 'm' for model 'other'"));
  Write("unknown/m/config.pbtxt", "name: \"m\" backend: \"onnxruntime\"");
  fs::create_directories(root_ / "unknown/m/1");
  EXPECT_THAT(error("unknown"), HasSubstr("'onnxruntime'"));
  WriteRepository("path", R"(
    parameters { key: "gpt_model_path" value: { string_value: "/no/such/engine" } })");
  EXPECT_THAT(error("path"), HasSubstr("gpt_model_path: '/no/such/engine' does not exist"));
  EXPECT_THAT(error("absent"), HasSubstr("no models found"));
}

TEST_F(ServerTest, ACorruptTokenizerIsAnErrorThatNamesTheDirectory) {
  Write("model/config.json", "{}");
  Write("model/tokenizer.json", "{\"version\": ");
  const auto server = CreateServerWith({.model_dirs = {Path("model")}}, Loader());
  EXPECT_THAT(server.status().message(), HasSubstr("tokenizer_dir '" + Path("model") + "'"));
}

TEST_F(ServerTest, TwoDirectoriesCannotHaveTheSameNames) {
  const std::string dir = ModelDir();
  EXPECT_THAT(CreateServerWith({.model_dirs = {dir, dir}}, Loader()).status().message(),
              HasSubstr("appears in two or more repositories"));
}

TEST_F(ServerTest, ShutdownLetsRunningRequestsFinish) {
  const auto server = Serve({.model_dirs = {ModelDir()}}, /*threaded=*/true);
  ASSERT_NE(server, nullptr);
  Collector got;
  server->Infer(TextRequest("ab", 40, {Bool("stream", true)}), got.Handler());
  server->Shutdown(/*drain_ms=*/60'000);
  EXPECT_EQ(got.num_final(), 1);
  EXPECT_TRUE(got.status().ok());
  EXPECT_EQ(got.responses().size(), 40U);
  EXPECT_FALSE(server->ready());
  Collector late;
  server->Infer(TextRequest("ab", 4), late.Handler());
  EXPECT_EQ(late.status().code(), StatusCode::kUnavailable);
}

TEST_F(ServerTest, ShutdownCancelsWhatOutlivesTheDrain) {
  const auto server = Serve({.model_dirs = {ModelDir()}});  // nothing advances by itself
  ASSERT_NE(server, nullptr);
  Collector got;
  server->Infer(TextRequest("ab", 40), got.Handler());
  server->Shutdown(/*drain_ms=*/0);
  EXPECT_EQ(got.num_final(), 1);
}

TEST_F(ServerTest, ManyConcurrentRequestsGetTheTextsThatEachGetsAlone) {
  const auto server = Serve({.model_dirs = {ModelDir()}}, /*threaded=*/true);
  ASSERT_NE(server, nullptr);
  executor_->generate = [](const inflight::Request& request, int position) {
    const auto size = request.input_ids.size() - 1;
    return request.input_ids[1 + static_cast<size_t>(position) % size];
  };
  constexpr int kClients = 64;
  std::vector<Collector> collectors(kClients);
  std::vector<std::thread> threads;
  for (int client = 0; client < kClients; ++client) {
    threads.emplace_back([&, client] {
      Request request = TextRequest("client " + std::to_string(client) + " \u00e9 ",
                                    1 + client % 30, {Bool("stream", client % 2 == 0)});
      request.id = std::to_string(client % 7);
      const auto cancel = request.cancel;
      server->Infer(std::move(request), collectors[static_cast<size_t>(client)].Handler());
      if (client % 5 == 0) cancel->Cancel();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int client = 0; client < kClients; ++client) {
    Collector& got = collectors[static_cast<size_t>(client)];
    got.WaitFinal();
    EXPECT_EQ(got.num_final(), 1);
    if (client % 5 == 0) continue;  // finished or cancelled, as it fell
    ASSERT_TRUE(got.status().ok()) << got.status().ToString();
    Collector alone;
    server->Infer(TextRequest("client " + std::to_string(client) + " \u00e9 ", 1 + client % 30),
                  alone.Handler());
    alone.WaitFinal();
    EXPECT_EQ(got.Joined(), alone.Joined()) << client;
  }
  EXPECT_EQ(executor_->num_active(), 0U);
  const StatisticsSnapshot s = (*server->FindModel("ensemble", ""))->statistics().Snapshot();
  EXPECT_EQ(s.fail.count, s.cancel.count);
  EXPECT_GE(s.success.count, static_cast<uint64_t>(kClients - 13));
}

}  // namespace
}  // namespace inflight::serving
