// SPDX-License-Identifier: Apache-2.0
// Models that are loaded and unloaded while the server runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "serving/repository/repository.h"
#include "serving/testing/server_test_fixture.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Identity(int max_batch_size, const std::string& more = "") {
  return "backend: 'conformance' max_batch_size: " + std::to_string(max_batch_size) +
         " input [ { name: 'INPUT0' data_type: TYPE_INT32 dims: [ 1 ] } ]"
         " output [ { name: 'OUTPUT0' data_type: TYPE_INT32 dims: [ 1 ] } ]"
         " parameters { key: 'kind' value: { string_value: 'identity' } }" +
         more;
}

class RepositoryControlTest : public ServerTest {
 protected:
  // All of a repository, in mode explicit.
  std::unique_ptr<Server> ServeExplicit(const std::string& repo, bool threaded = false) {
    return Serve({.model_repositories = {Path(repo)},
                  .control_mode = ControlMode::kExplicit,
                  .load_models = {"*"}},
                 threaded);
  }
  // As if it had been written after everything else.
  void Touch(const std::string& path) const {
    fs::last_write_time(root_ / path, fs::file_time_type::clock::now() + std::chrono::hours(1));
  }
};

// --- requests that run while their model goes ---

TEST_F(RepositoryControlTest, RequestsOfAnUnloadedModelEndAsTheyWouldHave) {
  WriteServable("repo");
  for (const char* unloaded : {"ensemble", "tensorrt_llm"}) {
    const auto server = ServeExplicit("repo");
    ASSERT_NE(server, nullptr);
    Collector streamed;
    Collector whole;
    Infer(*server, TextRequest("ab", 5, {Bool("stream", true)}), streamed.Handler());
    Infer(*server, TextRequest("ab", 5), whole.Handler());
    executor_->Step();
    ASSERT_TRUE(server->UnloadModel(unloaded, /*with_steps=*/false).ok());
    EXPECT_EQ(StateOf(*server, unloaded), "UNLOADING");
    Collector late;
    Infer(*server, TextRequest("ab", 5), late.Handler());
    EXPECT_FALSE(late.status().ok());
    executor_->Run();
    ASSERT_EQ(whole.num_final(), 1);
    EXPECT_TRUE(whole.status().ok()) << whole.status().ToString();
    EXPECT_EQ(whole.Joined(), "abababa");  // with the prompt
    EXPECT_EQ(streamed.Joined(), "ababa");
    WaitUntilUnloaded(*server, unloaded);
  }
}

TEST_F(RepositoryControlTest, ATokenRequestKeepsItsUnloadedModel) {
  WriteServable("repo");
  const auto server = ServeExplicit("repo");
  ASSERT_NE(server, nullptr);
  Collector got;
  Request request = MakeRequest(
      {Ids("input_ids", {1, 2}), Int("input_lengths", 2), Int("request_output_len", 3)});
  request.model_name = "tensorrt_llm";
  request.inputs[1].shape = {1, 1};
  Infer(*server, std::move(request), got.Handler());
  executor_->Step();
  ASSERT_TRUE(server->UnloadModel("tensorrt_llm", /*with_steps=*/false).ok());
  executor_->Run();
  ASSERT_EQ(got.num_final(), 1);
  EXPECT_TRUE(got.status().ok()) << got.status().ToString();
  EXPECT_THAT(Collector::Find(got.last(), "output_ids")->shape, ElementsAre(1, 1, 5));
  WaitUntilUnloaded(*server, "tensorrt_llm");
}

TEST_F(RepositoryControlTest, ShutdownReachesRequestsOfModelsThatWereUnloaded) {
  WriteServable("repo");
  const auto server = ServeExplicit("repo");
  ASSERT_NE(server, nullptr);
  Collector got;
  Request request = TextRequest("ab", 40);
  const auto cancel = request.cancel;
  Infer(*server, std::move(request), got.Handler());
  ASSERT_TRUE(server->UnloadModel("tensorrt_llm", /*with_steps=*/false).ok());
  std::atomic<bool> is_down = false;
  std::thread shutdown([&] {
    server->Shutdown(/*drain_ms=*/0);
    is_down = true;
  });
  while (!cancel->cancelled() && !is_down) std::this_thread::yield();
  executor_->Run();
  shutdown.join();
  ASSERT_EQ(got.num_final(), 1);
  EXPECT_EQ(got.status().code(), StatusCode::kCancelled);
}

// --- models that use others ---

// One step, IN -> OUT.
std::string EnsembleOf(const std::string& model, const std::string& input,
                       const std::string& output) {
  return "platform: 'ensemble' input [ { name: 'IN' data_type: TYPE_INT32 dims: [ 1 ] } ]"
         " output [ { name: 'OUT' data_type: TYPE_INT32 dims: [ 1 ] } ]"
         " ensemble_scheduling { step [ { model_name: '" +
         model + "' input_map { key: '" + input + "' value: 'IN' } output_map { key: '" + output +
         "' value: 'OUT' } } ] }";
}

TEST_F(RepositoryControlTest, ABlsAnswersFromTheNewCopyOfAMember) {
  WriteServable("repo");
  WriteBls("repo");
  const auto server = ServeExplicit("repo");
  ASSERT_NE(server, nullptr);
  const auto before = executor_;
  Touch("repo/tensorrt_llm/config.pbtxt");
  ASSERT_TRUE(server->LoadModel("tensorrt_llm", {}).ok());
  ASSERT_NE(executor_, before);
  for (const char* model : {"ensemble", "tensorrt_llm_bls"}) {
    Request request = TextRequest("ab", 3);
    request.model_name = model;
    Collector got;
    Infer(*server, std::move(request), got.Handler());
    EXPECT_EQ(before->num_active(), 0U) << model;
    EXPECT_EQ(executor_->num_active(), 1U) << model;
    executor_->Run();
  }
}

TEST_F(RepositoryControlTest, EnsemblesOfEnsemblesFollowANewCopyOfAStep) {
  Write("repo/m/config.pbtxt", Identity(0));
  Write("repo/a_outer/config.pbtxt", EnsembleOf("inner", "IN", "OUT"));  // polled before its step
  Write("repo/inner/config.pbtxt", EnsembleOf("m", "INPUT0", "OUTPUT0"));
  for (const char* model : {"m", "a_outer", "inner"}) {
    fs::create_directories(root_ / "repo" / model / "1");
  }
  const auto server = ServeExplicit("repo");
  ASSERT_NE(server, nullptr);
  const std::weak_ptr<Model> before = *server->FindModel("m", "");
  Touch("repo/m/config.pbtxt");
  ASSERT_TRUE(server->LoadModel("m", {}).ok());
  while (!before.expired()) std::this_thread::yield();  // for ever, if someone still held it
  const std::vector<int32_t> seven = {7};
  Request request = MakeRequest({Tensor::FromValues<int32_t>("IN", DataType::kInt32, {1}, seven)});
  request.model_name = "a_outer";
  Collector got;
  Infer(*server, std::move(request), got.Handler());
  got.WaitFinal();
  EXPECT_TRUE(got.status().ok()) << got.status().ToString();
}

TEST_F(RepositoryControlTest, FilesOfALoadStayWithAnEnsembleThatFollowsItsStep) {
  Write("repo/m/config.pbtxt", Identity(0));
  Write("repo/other/config.pbtxt", EnsembleOf("m", "INPUT0", "OUTPUT0"));
  for (const char* model : {"m", "other"}) fs::create_directories(root_ / "repo" / model / "1");
  const auto server = ServeExplicit("repo");
  ASSERT_NE(server, nullptr);
  for (const std::string name : {"alone", "other"}) {  // without a directory, and with one
    const std::string json =
        R"({"name": ")" + name +
        R"(", "platform": "ensemble",)"
        R"( "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}],)"
        R"( "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]}],)"
        R"( "ensemble_scheduling": {"step": [{"model_name": "m", "model_version": -1,)"
        R"( "input_map": {"INPUT0": "IN"}, "output_map": {"OUTPUT0": "OUT"}}]}})";
    const Status loaded = server->LoadModel(name, {.config_json = json, .files = {{"3/file", ""}}});
    ASSERT_TRUE(loaded.ok()) << loaded.ToString();
    const std::weak_ptr<Model> step = *server->FindModel("m", "");
    const std::weak_ptr<Model> before = *server->FindModel(name, "3");
    Touch("repo/m/config.pbtxt");
    fs::last_write_time(root_ / "repo/m/config.pbtxt",
                        fs::last_write_time(root_ / "repo/m/config.pbtxt") +
                            std::chrono::minutes(name == "other" ? 2 : 1));
    ASSERT_TRUE(server->LoadModel("m", {}).ok());
    while (!step.expired() || !before.expired()) std::this_thread::yield();
    EXPECT_TRUE(server->FindModel(name, "3").ok()) << name;
    EXPECT_FALSE(server->FindModel(name, "1").ok()) << name;
  }
}

TEST_F(RepositoryControlTest, AReloadReadsTheTokenizerAnew) {
  WriteServable("repo");
  const auto server = ServeExplicit("repo");
  ASSERT_NE(server, nullptr);
  Write("repo/tensorrt_llm/1/tokenizer.json", "{\"version\": ");
  Touch("repo/preprocessing/config.pbtxt");
  const Status status = server->LoadModel("preprocessing", {});
  EXPECT_THAT(status.message(), HasSubstr("tokenizer_dir '1': tokenizer.json"));
  EXPECT_EQ(StateOf(*server, "preprocessing"), "READY");  // the old copy goes on
}

TEST_F(RepositoryControlTest, MemoryThatIsMissingIsToldByTheCode) {
  WriteServable("repo");
  const ServerOptions options = {.model_repositories = {Path("repo")},
                                 .control_mode = ControlMode::kExplicit};
  const auto server = CreateServerWith(
      options,
      [](const fs::path&, const std::string&, const ExecutorOptions&,
         const AskedPlace&) -> Result<LoadedEngine> { return OutOfMemory("no room"); });
  ASSERT_TRUE(server.ok());
  for (const char* model : {"tensorrt_llm", "ensemble"}) {  // itself, and as a step
    EXPECT_EQ((*server)->LoadModel(model, {}).code(), StatusCode::kResourceExhausted) << model;
  }
  EXPECT_EQ(AsContractLoadStatus(ResourceExhausted("no room")), InvalidArgument("no room"));
  EXPECT_EQ(AsContractLoadStatus(Internal("no such model")), Internal("no such model"));
}

// --- configurations that come with a load ---

std::string IdentityJson(int max_batch_size, const std::string& more = "") {
  return R"({"name": "m", "backend": "conformance", "max_batch_size": )" +
         std::to_string(max_batch_size) +
         R"(, "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [1]}],)"
         R"( "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [1]}])" +
         more + "}";
}

TEST_F(RepositoryControlTest, AConfigurationAsJsonIsRefusedForWhatAFileIs) {
  Write("repo/m/config.pbtxt", Identity(0));
  fs::create_directories(root_ / "repo/m/1");
  const auto server = ServeExplicit("repo");
  ASSERT_NE(server, nullptr);
  const Status status = server->LoadModel(
      "m", {.config_json = IdentityJson(
                0, R"(, "batch_input": [{"target_name": ["A"], "source_input": ["INPUT0"],
                                             "data_type": "TYPE_INT32"}])"),
            .files = {}});
  EXPECT_THAT(status.message(),
              HasSubstr("batch_input of model 'm' is not supported; leave it out"));
}

TEST_F(RepositoryControlTest, AConfigurationThatCameWithALoadHoldsUntilAFileChanges) {
  Write("repo/m/config.pbtxt", Identity(0));
  fs::create_directories(root_ / "repo/m/1");
  const auto server = ServeExplicit("repo");
  ASSERT_NE(server, nullptr);
  const auto max_batch_size = [&] {
    return (*server->FindModel("m", ""))->config().max_batch_size();
  };
  ASSERT_TRUE(server->LoadModel("m", {.config_json = IdentityJson(4), .files = {}}).ok());
  EXPECT_EQ(max_batch_size(), 4);
  ASSERT_TRUE(server->LoadModel("m", {}).ok());
  EXPECT_EQ(max_batch_size(), 4);
  Touch("repo/m/config.pbtxt");
  ASSERT_TRUE(server->LoadModel("m", {}).ok());
  EXPECT_EQ(max_batch_size(), 0);
}

// A configuration of an LLM as a client may send it.
std::string LlmJson(const std::string& name, const std::string& engine) {
  return R"({"name": ")" + name + R"(", "backend": "tensorrtllm", "max_batch_size": 4,
    "input": [{"name": "input_ids", "data_type": "TYPE_INT32", "dims": [-1]},
              {"name": "input_lengths", "data_type": "TYPE_INT32", "dims": [1]},
              {"name": "request_output_len", "data_type": "TYPE_INT32", "dims": [1]}],
    "output": [{"name": "output_ids", "data_type": "TYPE_INT32", "dims": [-1, -1]},
               {"name": "sequence_length", "data_type": "TYPE_INT32", "dims": [-1]}],
    "parameters": {"gpt_model_path": {"string_value": ")" +
         engine + R"("}}})";
}

std::string EngineAt(const std::string& path) {
  return "parameters { key: 'gpt_model_path' value: { string_value: '" + path + "' } }";
}

std::string PreprocessingJson(const std::string& tokenizer) {
  return R"({"name": "preprocessing", "backend": "python", "max_batch_size": 4,
    "input": [{"name": "QUERY", "data_type": "TYPE_STRING", "dims": [-1]},
              {"name": "REQUEST_OUTPUT_LEN", "data_type": "TYPE_INT32", "dims": [-1]}],
    "output": [{"name": "INPUT_ID", "data_type": "TYPE_INT32", "dims": [-1]},
               {"name": "REQUEST_INPUT_LEN", "data_type": "TYPE_INT32", "dims": [1]}],
    "parameters": {"tokenizer_dir": {"string_value": ")" +
         tokenizer + R"("}}})";
}

TEST_F(RepositoryControlTest, PathsOfALoadLeadBelowTheModelAlone) {
  WriteServable("repo");
  WriteEngine("elsewhere");
  WriteEngine("repo/other");
  WriteEngine("repo/preprocessing/files");
  fs::create_directory_symlink(root_ / "elsewhere", root_ / "repo/tensorrt_llm/link");
  fs::create_directory_symlink("..", root_ / "repo/preprocessing/up");
  const auto server = ServeExplicit("repo");
  ASSERT_NE(server, nullptr);
  const auto load = [&](const std::string& model, const std::string& path) {
    const std::string json =
        model == "tensorrt_llm" ? LlmJson(model, path) : PreprocessingJson(path);
    return server->LoadModel(model, {.config_json = json, .files = {}});
  };
  const size_t num_loads = loaded_dirs_.size();
  for (const std::string& path :
       {Path("elsewhere"), Path("no_such"), std::string("../other"), std::string("other"),
        std::string("/proc/self/cwd"), std::string("link"), std::string("up/other"),
        std::string("1/../../other")}) {
    for (const std::string model : {"tensorrt_llm", "preprocessing"}) {
      const Status status = load(model, path);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << model << " " << path;
      const bool is_below = path == "other" || (path == "link" && model == "preprocessing") ||
                            (path == "up/other" && model == "tensorrt_llm");
      EXPECT_THAT(status.message(), HasSubstr(is_below ? "does not exist" : "lies outside of the"))
          << model << " " << path;
      EXPECT_THAT(status.message(), Not(HasSubstr(root_.string()))) << path;
    }
  }
  EXPECT_EQ(loaded_dirs_.size(), num_loads);
  for (const std::string& path : {std::string("1"), Path("repo/tensorrt_llm/1")}) {
    EXPECT_TRUE(load("tensorrt_llm", path).ok()) << path;
    EXPECT_EQ(loaded_dirs_.back(), fs::canonical(Path("repo/tensorrt_llm/1")));
  }
  EXPECT_TRUE(load("preprocessing", "files").ok());
}

TEST_F(RepositoryControlTest, ATokenizerOfALoadLiesBelowTheModel) {
  WriteServable("repo");
  fs::remove(root_ / "repo/tensorrt_llm/1/tokenizer.json");  // else it is taken
  WriteEngine("elsewhere");
  WriteEngine("repo/tensorrt_llm/files");
  const auto server =
      Serve({.model_repositories = {Path("repo")}, .control_mode = ControlMode::kExplicit});
  ASSERT_NE(server, nullptr);
  const auto load = [&](const std::string& path) {
    std::string json = LlmJson("tensorrt_llm", "1");
    json.insert(json.find("\"gpt_model_path\""),
                R"("tokenizer_dir": {"string_value": ")" + path + R"("}, )");
    return server->LoadModel("tensorrt_llm", {.config_json = json, .files = {}});
  };
  for (const std::string& path :
       {Path("elsewhere"), Path("no_such"), std::string("../preprocessing")}) {
    const Status status = load(path);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << path;
    EXPECT_THAT(status.message(), HasSubstr("lies outside of the")) << path;
  }
  const Status below = load("files");
  EXPECT_TRUE(below.ok()) << below.ToString();
}

TEST_F(RepositoryControlTest, WhatAFileNamesIsFreeAlsoInALoad) {
  WriteServable("repo", EngineAt(Path("elsewhere")));
  WriteEngine("elsewhere");
  const auto server = ServeExplicit("repo");
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(loaded_dirs_.back(), Path("elsewhere"));
  const Status again = server->LoadModel(
      "tensorrt_llm", {.config_json = LlmJson("tensorrt_llm", Path("elsewhere")), .files = {}});
  EXPECT_TRUE(again.ok()) << again.ToString();
}

TEST_F(RepositoryControlTest, TheIndexTellsNoFolders) {
  WriteServable("repo", EngineAt(Path("absent")));
  const auto server = Serve({.model_repositories = {Path("repo")},
                             .control_mode = ControlMode::kExplicit,
                             .load_models = {"*"},
                             .exit_on_error = false});
  ASSERT_NE(server, nullptr);
  for (const IndexEntry& entry : server->Index(/*ready_only=*/false)) {
    EXPECT_THAT(entry.reason, Not(HasSubstr(root_.string()))) << entry.name;
    if (entry.name != "tensorrt_llm") continue;
    EXPECT_EQ(entry.reason, "Not found: gpt_model_path: 'absent' does not exist");
  }
}

// --- several repositories ---

TEST_F(RepositoryControlTest, ANameInTwoRepositoriesIsServedFromNeither) {
  for (const char* model : {"one/m", "two/m", "two/other"}) {
    Write(std::string(model) + "/config.pbtxt", Identity(0));
    fs::create_directories(root_ / model / "1");
  }
  ServerOptions options = {.model_repositories = {Path("one"), Path("two")},
                           .control_mode = ControlMode::kExplicit,
                           .load_models = {"*"},
                           .exit_on_error = false};
  const auto server = Serve(options);
  ASSERT_NE(server, nullptr);
  EXPECT_FALSE(server->FindModel("m", "").ok());
  EXPECT_TRUE(server->FindModel("other", "").ok());
  const auto index = server->Index(/*ready_only=*/false);
  EXPECT_THAT(Lines(index), ElementsAre("m  UNAVAILABLE", "other 1 READY"));
  EXPECT_EQ(index[0].reason, "model appears in two or more repositories");
  EXPECT_THAT(Lines(server->Index(/*ready_only=*/true)), ElementsAre("other 1 READY"));
  EXPECT_EQ(server->LoadModel("m", {}),
            Internal("failed to load 'm', failed to poll from model repository"));
  options.exit_on_error = true;
  EXPECT_THAT(CreateServerWith(options, Loader()).status().message(),
              HasSubstr("'m': Invalid argument: model appears in two or more repositories"));
  fs::remove_all(root_ / "one/m");
  EXPECT_TRUE(server->LoadModel("m", {}).ok());
  EXPECT_TRUE(server->FindModel("m", "").ok());
}

TEST_F(RepositoryControlTest, AModelThatRunsStaysWhenItsNameComesAgain) {
  for (const char* repo : {"one", "two"}) fs::create_directories(root_ / repo);
  Write("one/m/config.pbtxt", Identity(0));
  fs::create_directories(root_ / "one/m/1");
  const auto server = Serve({.model_repositories = {Path("one"), Path("two")},
                             .control_mode = ControlMode::kExplicit,
                             .load_models = {"m"}});
  ASSERT_NE(server, nullptr);
  Write("two/m/config.pbtxt", Identity(0));
  EXPECT_FALSE(server->LoadModel("m", {}).ok());
  EXPECT_THAT(Lines(server->Index(/*ready_only=*/false)), ElementsAre("m 1 READY"));
}

// --- readers of the table ---

template <typename Table>
constexpr bool kLooksInto = requires(Table table) { std::forward<Table>(table)->llms(); };

TEST_F(RepositoryControlTest, OnlyATableThatIsHeldMayBeLookedInto) {
  EXPECT_TRUE(kLooksInto<const HeldTable&>);
  EXPECT_FALSE(kLooksInto<HeldTable>);  // what it gives would be gone with the next load
}

TEST_F(RepositoryControlTest, GaugesAreReadWhileModelsComeAndGo) {
  WriteServable("repo");
  const auto server = ServeExplicit("repo");
  ASSERT_NE(server, nullptr);
  std::atomic<bool> is_done = false;
  std::thread reader([&] {
    while (!is_done) {
      for (const ExecutorGauges& gauges : server->executor_gauges()) {
        EXPECT_EQ(gauges.model, "tensorrt_llm");
      }
      EXPECT_TRUE(server->live());
    }
  });
  for (int round = 0; round < 20; ++round) {
    EXPECT_TRUE(server->UnloadModel("tensorrt_llm", /*with_steps=*/false).ok());
    EXPECT_TRUE(server->LoadModel("tensorrt_llm", {}).ok());
  }
  is_done = true;
  reader.join();
  EXPECT_EQ(server->executor_gauges().size(), 1U);
}

// --- polling ---

TEST_F(RepositoryControlTest, PollingLeavesModelsOfADirectoryAlone) {
  Repository repository({}, Loader(), WorkerPool::MakeShared(1, "text"));
  repository.LoadModelDir(ModelDir());
  repository.Rescan();
  const HeldTable table = repository.table();
  EXPECT_EQ(table->models().size(), 4U);
}

TEST_F(RepositoryControlTest, PollingTriesWhatFailedAgainOnlyAfterAChange) {
  WriteServable("repo");
  int num_tries = 0;
  Repository repository(
      {},
      [&](const fs::path&, const std::string&, const ExecutorOptions&,
          const AskedPlace&) -> Result<LoadedEngine> {
        ++num_tries;
        return Internal("broken engine");
      },
      WorkerPool::MakeShared(1, "text"));
  repository.LoadRepository(Path("repo"));
  EXPECT_EQ(num_tries, 1);
  repository.Rescan();
  EXPECT_EQ(num_tries, 1);
  Touch("repo/tensorrt_llm/1/config.json");
  const size_t num_reports = repository.reports().size();
  for (int i = 0; i < 2; ++i) repository.Rescan();
  EXPECT_EQ(num_tries, 2);
  EXPECT_EQ(repository.reports().size(), num_reports);
}

// --- loads side by side ---

// An LLM whose engine is loaded when the gate opens, and a model that has nothing to do with it.
class ParallelLoadTest : public RepositoryControlTest {
 protected:
  void SetUp() override {
    RepositoryControlTest::SetUp();
    WriteServable("repo");
    Write("repo/one/config.pbtxt", Identity(0));
    fs::create_directories(root_ / "repo/one/1");
  }

  std::unique_ptr<Server> ServeGated(int num_threads) {
    auto server = CreateServerWith(
        {.model_repositories = {Path("repo")},
         .control_mode = ControlMode::kExplicit,
         .model_load_threads = num_threads},
        [this, load = Loader()](const fs::path& dir, const std::string& owner,
                                const ExecutorOptions& options, const AskedPlace& place) {
          std::call_once(once_, [this] { is_loading_.set_value(); });
          opened_.wait();
          return load(dir, owner, options, place);
        });
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    return server.ok() ? *std::move(server) : nullptr;
  }
  // On a thread of its own; returns once the engine is being loaded.
  std::future<Status> StartLoad(Server& server, const std::string& model) {
    auto loaded =
        std::async(std::launch::async, [&server, model] { return server.LoadModel(model, {}); });
    is_loading_.get_future().wait();
    return loaded;
  }
  static bool IsBlocked(std::future<Status>& call) {
    return call.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout;
  }

  std::once_flag once_;
  std::promise<void> is_loading_;
  std::promise<void> gate_;
  std::shared_future<void> opened_ = gate_.get_future().share();
};

TEST_F(ParallelLoadTest, ModelsThatHaveNothingToDoWithEachOtherDoNotWait) {
  const auto server = ServeGated(2);
  ASSERT_NE(server, nullptr);
  auto llm = StartLoad(*server, "tensorrt_llm");
  EXPECT_TRUE(server->LoadModel("one", {}).ok());
  EXPECT_EQ(StateOf(*server, "one"), "READY");
  EXPECT_TRUE(server->UnloadModel("one", /*with_steps=*/false).ok());
  gate_.set_value();
  EXPECT_TRUE(llm.get().ok());
  EXPECT_EQ(StateOf(*server, "tensorrt_llm"), "READY");
}

TEST_F(ParallelLoadTest, AsManyAtATimeAsThereAreThreads) {
  const auto server = ServeGated(1);
  ASSERT_NE(server, nullptr);
  auto llm = StartLoad(*server, "tensorrt_llm");
  auto one = std::async(std::launch::async, [&] { return server->LoadModel("one", {}); });
  EXPECT_TRUE(IsBlocked(one));
  gate_.set_value();
  EXPECT_TRUE(llm.get().ok());
  EXPECT_TRUE(one.get().ok());
}

TEST_F(ParallelLoadTest, CallsForWhatIsConnectedWait) {
  const auto server = ServeGated(4);
  ASSERT_NE(server, nullptr);
  auto llm = StartLoad(*server, "tensorrt_llm");
  const auto call = [](auto what) { return std::async(std::launch::async, what); };
  auto again = call([&] { return server->LoadModel("tensorrt_llm", {}); });
  auto user = call([&] { return server->LoadModel("ensemble", {}); });
  auto unload = call([&] { return server->UnloadModel("tensorrt_llm", /*with_steps=*/false); });
  for (auto* waiting : {&again, &user, &unload}) EXPECT_TRUE(IsBlocked(*waiting));
  gate_.set_value();
  EXPECT_TRUE(llm.get().ok());
  EXPECT_TRUE(again.get().ok());
  EXPECT_TRUE(unload.get().ok());
  user.wait();
}

}  // namespace
}  // namespace inflight::serving
