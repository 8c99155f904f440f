// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "base/client.h"
#include "base/clock.h"
#include "serving/server/create_server.h"
#include "serving/testing/server_test_fixture.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What becomes of a request of this client.
Status AskFor(serving::Server& server, FakeExecutor& executor,
              const std::shared_ptr<const Client>& client, bool is_of_stream) {
  Request request = TextRequest("ab", 3);
  request.client = client;
  request.is_of_stream = is_of_stream;
  Collector got;
  Infer(server, std::move(request), got.Handler());
  executor.Run();
  return got.status();
}

TEST_F(ServerTest, MemoryOfAGpuNamesItsIndex) {
  WriteServable("repo");
  const auto server = CreateServerWith(
      {.model_repositories = {Path("repo")}},
      [this, load = Loader()](const std::filesystem::path& dir, const std::string& owner,
                              const ExecutorOptions& options, const AskedPlace& place) {
        auto engine = load(dir, owner, options, place);
        engine->device = "cuda:3";
        executor_->gpu_memory_bytes = 7;
        return engine;
      });
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  const auto llm = (*server)->FindModel("tensorrt_llm", "");
  ASSERT_TRUE(llm.ok());
  const std::vector<MemoryUsage> usage = (*llm)->memory_usage();
  ASSERT_EQ(usage.size(), 1U);
  EXPECT_EQ(usage[0].type, "GPU");
  EXPECT_EQ(usage[0].id, 3);
  EXPECT_EQ(usage[0].bytes, 7U);
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
  Infer(*server, TextRequest("ab", 3), got.Handler());
  executor_->Run();
  EXPECT_EQ(got.Joined(), "ab");  // <s>, a, b
}

TEST_F(ServerTest, UntilModelsAreLoadedItIsLiveAndRefusesRequests) {
  WriteServable("repo");
  const auto server = CreateEmptyServerWith({.model_repositories = {Path("repo")},
                                             .control_mode = ControlMode::kExplicit,
                                             .load_models = {"*"}},
                                            Loader());
  EXPECT_TRUE(server->live());
  EXPECT_FALSE(server->ready());
  EXPECT_TRUE(server->models().empty());
  EXPECT_TRUE(server->Index(false).empty());
  EXPECT_TRUE(server->executor_gauges().empty());
  for (const Status& refused :
       {server->CheckUsable(), server->FindModel("ensemble", "").status(),
        server->LoadModel("ensemble", {}), server->UnloadModel("m", false)}) {
    EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
    EXPECT_EQ(refused.reason(), Reason::kLoading);
  }
  ASSERT_TRUE(server->LoadAtStart().ok());
  EXPECT_TRUE(server->ready());
  EXPECT_TRUE(server->CheckUsable().ok());
  EXPECT_TRUE(server->FindModel("ensemble", "").ok());
}

TEST_F(ServerTest, WithoutDecouplingThereIsNoStreaming) {
  const auto server = Serve({.model_dirs = {ModelDir()}, .decoupled = false});
  ASSERT_NE(server, nullptr);
  EXPECT_FALSE((*server->FindModel("ensemble", ""))->decoupled());
  Collector got;
  Infer(*server, TextRequest("ab", 3, {Bool("stream", true)}), got.Handler());
  EXPECT_THAT(got.status().message(), HasSubstr("Streaming is only supported if model is"));
}

TEST_F(ServerTest, AClientsInferencesInProgressAreBounded) {
  const auto server = Serve({.model_dirs = {ModelDir()}});
  ASSERT_NE(server, nullptr);
  const auto client = [](const ClientLimits& limits) {
    return std::make_shared<Client>(Client{.identity = {1},
                                           .name = "team-a",
                                           .limits = limits,
                                           .use = std::make_shared<ClientUse>(limits, 0)});
  };
  const auto limited = client({.max_concurrent = 1});
  const auto text = [&](const std::shared_ptr<const Client>& of) {
    Request request = TextRequest("ab", 3);
    request.client = of;
    return request;
  };
  Collector first, refused, other, stop, next;
  Infer(*server, text(limited), [&](Response response) {
    const bool is_final = response.is_final;
    first.Handler()(std::move(response));
    // Whoever is answered may ask again at once.
    if (is_final) Infer(*server, text(limited), next.Handler());
  });
  Infer(*server, text(limited), refused.Handler());
  EXPECT_EQ(refused.status().reason(), Reason::kOverLimit);
  EXPECT_TRUE(refused.last().rejected);
  Infer(*server, text(client({.max_concurrent = 1})), other.Handler());
  EXPECT_EQ(other.num_final(), 0);
  Request stopping;
  stopping.model_name = "tensorrt_llm";
  stopping.id = "none";
  stopping.client = limited;
  stopping.inputs = {Ids("input_ids", {1}), Int("input_lengths", 1), Int("request_output_len", 1),
                     Bool("stop", true)};
  Infer(*server, std::move(stopping), stop.Handler());
  EXPECT_TRUE(stop.status().ok()) << stop.status().ToString();
  executor_->Run();
  EXPECT_EQ(first.num_final(), 1);
  EXPECT_EQ(next.num_final(), 1);
  EXPECT_TRUE(next.status().ok()) << next.status().ToString();
}

// Each request of a stream counts, though the stream was let in as one.
TEST_F(ServerTest, RequestsOfAStreamCountForTheirClientsRate) {
  const auto server = Serve({.model_dirs = {ModelDir()}});
  ASSERT_NE(server, nullptr);
  const ClientLimits limits = {.requests_per_second = 0.001, .burst = 2};
  const auto client = std::make_shared<Client>(
      Client{.identity = {1},
             .name = "team-a",
             .limits = limits,
             .use = std::make_shared<ClientUse>(limits, Clock::System().NowNs())});
  const auto ask = [&](bool is_of_stream) {
    return AskFor(*server, *executor_, client, is_of_stream).reason();
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ask(false), Reason::kNone);  // their front end has counted
  EXPECT_EQ(ask(true), Reason::kNone);
  EXPECT_EQ(ask(true), Reason::kNone);
  EXPECT_EQ(ask(true), Reason::kOverLimit);
}

// A stream that a key began ends with the key.
TEST_F(ServerTest, RequestsOfAStreamWhoseKeyWasTakenAwayAreRefused) {
  const auto server = Serve({.model_dirs = {ModelDir()}});
  ASSERT_NE(server, nullptr);
  const auto client =
      std::make_shared<Client>(Client{.identity = {1},
                                      .name = "team-a",
                                      .limits = {},
                                      .use = std::make_shared<ClientUse>(ClientLimits(), 0)});
  const auto ask = [&] { return AskFor(*server, *executor_, client, /*is_of_stream=*/true); };
  EXPECT_TRUE(ask().ok());
  client->use->SetMayInfer(false);
  EXPECT_EQ(ask().code(), StatusCode::kUnauthenticated);
  EXPECT_THAT(ask().message(), HasSubstr("key 'team-a' may no longer infer"));
  client->use->SetMayInfer(true);
  EXPECT_TRUE(ask().ok());
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
  Infer(*server, TextRequest("ab", 3), good.Handler());
  Request unknown = TextRequest("x", 1);
  unknown.model_name = "nosuch";
  Request missing = TextRequest("x", 1);
  missing.inputs.erase(missing.inputs.begin());
  Request extra = TextRequest("x", 1, {Int("no_such_tensor", 1)});
  Request type = TextRequest("x", 1);
  type.inputs[1] = Float("max_tokens", 1);
  for (const auto& [request, message] : std::vector<std::pair<Request, const char*>>{
           {unknown, "Request for unknown model"},
           {missing, "QUERY is not present in the request"},
           {extra, "unexpected inference input"},
           {type, "data-type is 'FP32'"},
           {TextRequest("a\xff", 1), "text_input"},
           {TextRequest("x", 0), "max_tokens: got 0"}}) {
    Collector got;
    Infer(*server, request, got.Handler());
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
  EXPECT_EQ(options_.max_queue_delay_us, 250);
  EXPECT_FALSE(options_.enable_prefix_reuse);
  const auto llm = *server->FindModel("tensorrt_llm", "");
  EXPECT_EQ(llm->config().backend(), "tensorrtllm");
  EXPECT_EQ(llm->config().max_batch_size(), 8);  // the engine's
  EXPECT_EQ((*server->FindModel("preprocessing", ""))->complete_config().instance_group(0).count(),
            1);
  EXPECT_TRUE((*server->FindModel("ensemble", ""))->decoupled());

  Collector got;
  Infer(*server, TextRequest("ab", 3, {Text("stop_words", {"zz"})}), got.Handler());
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
  Infer(*server, TextRequest("ab", 2), got.Handler());
  executor_->Run();
  EXPECT_EQ(got.Joined(), "abab");  // the prompt is part of the answer unless it is excluded
}

TEST_F(ServerTest, WhatCannotLoadEndsTheStartOrLeavesTheServerNotReady) {
  WriteRepository("repo", R"(
    parameters { key: "decoding_mode" value: { string_value: "eagle" } })");
  Write("repo/tensorrt_llm/1/config.json", "{}");
  Write("repo/tensorrt_llm/1/tokenizer.json", ByteTokenizerJson());
  const auto failed = CreateServerWith({.model_repositories = {Path("repo")}}, Loader());
  EXPECT_THAT(failed.status().message(), HasSubstr("failed to load all models: 'tensorrt_llm'"));
  EXPECT_THAT(failed.status().message(), HasSubstr("decoding_mode 'eagle'"));
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
  Write("name/m/config.pbtxt", "name: \"other\" backend: \"b\"");
  EXPECT_THAT(error("name"), HasSubstr("unexpected directory name 'm' for model 'other'"));
  Write("unknown/m/config.pbtxt", "name: \"m\" backend: \"onnxruntime\"");
  fs::create_directories(root_ / "unknown/m/1");
  EXPECT_THAT(error("unknown"), HasSubstr("'onnxruntime'"));
  WriteRepository("path", R"(
    parameters { key: "gpt_model_path" value: { string_value: "/no/such/engine" } })");
  EXPECT_THAT(error("path"), HasSubstr("gpt_model_path: '/no/such/engine' does not exist"));
  EXPECT_THAT(error("absent"), HasSubstr("failed to stat file"));
}

TEST_F(ServerTest, ACorruptTokenizerIsAnErrorThatNamesTheDirectory) {
  for (const std::string file : {"tokenizer.json", "spiece.model"}) {
    const std::string dir = "model of " + file;
    Write(dir + "/config.json", "{}");
    Write(dir + "/" + file, "{\"version\": ");
    const auto server = CreateServerWith({.model_dirs = {Path(dir)}}, Loader());
    EXPECT_THAT(server.status().message(), HasSubstr("tokenizer_dir '" + Path(dir) + "'"));
  }
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
  Infer(*server, TextRequest("ab", 40, {Bool("stream", true)}), got.Handler());
  server->Shutdown(/*drain_ms=*/60'000);
  EXPECT_EQ(got.num_final(), 1);
  EXPECT_TRUE(got.status().ok());
  EXPECT_EQ(got.responses().size(), 40U);
  EXPECT_FALSE(server->ready());
  Collector late;
  Infer(*server, TextRequest("ab", 4), late.Handler());
  EXPECT_EQ(late.status().code(), StatusCode::kUnavailable);
}

TEST_F(ServerTest, ShutdownCancelsWhatOutlivesTheDrain) {
  const auto server = Serve({.model_dirs = {ModelDir()}});  // nothing advances by itself
  ASSERT_NE(server, nullptr);
  Collector got;
  Infer(*server, TextRequest("ab", 40), got.Handler());
  server->Shutdown(/*drain_ms=*/0);
  ASSERT_EQ(got.num_final(), 1);
  EXPECT_EQ(got.status().code(), StatusCode::kCancelled);  // no part of a text as if it were whole
}

TEST_F(ServerTest, ARequestRunsOnTheModelThatItWasParsedFor) {
  const auto server = Serve({.model_dirs = {ModelDir()}, .control_mode = ControlMode::kExplicit});
  ASSERT_NE(server, nullptr);
  const auto parsed_for = server->FindModel("ensemble", "");
  ASSERT_TRUE(parsed_for.ok());
  ASSERT_TRUE(server->UnloadModel("ensemble", /*with_steps=*/false).ok());
  Collector by_name;
  Infer(*server, TextRequest("ab", 3), by_name.Handler());
  EXPECT_FALSE(by_name.status().ok());
  Collector got;
  server->Infer(*parsed_for, TextRequest("ab", 3), got.Handler());
  executor_->Run();
  EXPECT_EQ(got.Joined(), "ab");
}

TEST_F(ServerTest, ModelsAreNotLoadedIntoAServerThatStops) {
  const auto server = Serve({.model_dirs = {ModelDir()}, .control_mode = ControlMode::kExplicit});
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(server->LoadModel("no such", {}).code(), StatusCode::kInternal);
  EXPECT_TRUE(server->ready());
  server->BeginExit();
  EXPECT_FALSE(server->ready());
  const Status load = server->LoadModel("no such", {});
  EXPECT_EQ(load.code(), StatusCode::kUnavailable);
  EXPECT_EQ(load.message(), "Server is stopping, cannot load or unload models");
  EXPECT_EQ(server->UnloadModel("no such", false).code(), StatusCode::kUnavailable);
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
      Infer(*server, std::move(request), collectors[static_cast<size_t>(client)].Handler());
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
    Infer(*server, TextRequest("client " + std::to_string(client) + " \u00e9 ", 1 + client % 30),
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
