// SPDX-License-Identifier: Apache-2.0
// Models that are loaded and unloaded while the server runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "serving/repository.h"
#include "serving/server_test_fixture.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RepositoryControlTest : public ServerTest {
 protected:
  // All of a repository, in mode explicit.
  std::unique_ptr<Server> ServeExplicit(const std::string& repo, bool threaded = false) {
    return Serve({.model_repositories = {Path(repo)},
                  .control_mode = ControlMode::kExplicit,
                  .load_models = {"*"}},
                 threaded);
  }
  static std::string StateOf(const Server& server, const std::string& model) {
    for (const IndexEntry& entry : server.Index(false)) {
      if (entry.name == model) return entry.state;
    }
    return "absent";
  }
  // Models end on a thread of their own.
  static void WaitUntilUnloaded(const Server& server, const std::string& model) {
    while (StateOf(server, model) == "UNLOADING") std::this_thread::yield();
    EXPECT_EQ(StateOf(server, model), "UNAVAILABLE");
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
    server->Infer(TextRequest("ab", 5, {Bool("stream", true)}), streamed.Handler());
    server->Infer(TextRequest("ab", 5), whole.Handler());
    executor_->Step();
    ASSERT_TRUE(server->UnloadModel(unloaded, /*with_steps=*/false).ok());
    EXPECT_EQ(StateOf(*server, unloaded), "UNLOADING");
    Collector late;
    server->Infer(TextRequest("ab", 5), late.Handler());
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
  server->Infer(std::move(request), got.Handler());
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
  server->Infer(std::move(request), got.Handler());
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

// --- configurations that come with a load ---

std::string Identity(int max_batch_size, const std::string& more = "") {
  return "backend: 'conformance' max_batch_size: " + std::to_string(max_batch_size) +
         " input [ { name: 'INPUT0' data_type: TYPE_INT32 dims: [ 1 ] } ]"
         " output [ { name: 'OUTPUT0' data_type: TYPE_INT32 dims: [ 1 ] } ]"
         " parameters { key: 'kind' value: { string_value: 'identity' } }" +
         more;
}

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
      "m", {.config_json = IdentityJson(0, R"(, "batch_input": [{"target_name": ["A"]}])"),
            .files = {}});
  EXPECT_THAT(status.message(), HasSubstr("batch_input of model 'm' is not supported yet"));
}

// --- polling ---

TEST_F(RepositoryControlTest, PollingLeavesModelsOfADirectoryAlone) {
  Repository repository({}, Loader(), std::make_shared<WorkerPool>(1, "text"));
  repository.LoadModelDir(ModelDir());
  repository.Rescan();
  EXPECT_EQ(repository.table()->models().size(), 4U);
}

}  // namespace
}  // namespace inflight::serving
