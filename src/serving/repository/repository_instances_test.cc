// SPDX-License-Identifier: Apache-2.0
// Loads that change nothing but instance groups, and those that change more.
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "serving/instances/rate_limiter.h"
#include "serving/repository/repository.h"
#include "serving/testing/server_test_fixture.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string AddSub(const std::string& groups, const std::string& more = "") {
  std::string text =
      "backend: 'conformance' parameters { key: 'kind' value: { string_value: 'addsub' } }";
  for (const char* io : {"input [ { name: 'INPUT0'", "input [ { name: 'INPUT1'",
                         "output [ { name: 'OUTPUT0'", "output [ { name: 'OUTPUT1'"}) {
    text += std::string(io) + " data_type: TYPE_INT32 dims: [ 1 ] } ] ";
  }
  return text + groups + more;
}

std::string AddSubJson(int count, int max_batch_size = 0) {
  const auto tensor = [](const std::string& name) {
    return R"({"name": ")" + name + R"(", "data_type": "TYPE_INT32", "dims": [1]})";
  };
  return R"({"backend": "conformance", "max_batch_size": )" + std::to_string(max_batch_size) +
         R"(, "parameters": {"kind": {"string_value": "addsub"}}, "input": [)" + tensor("INPUT0") +
         ", " + tensor("INPUT1") + R"(], "output": [)" + tensor("OUTPUT0") + ", " +
         tensor("OUTPUT1") + R"(], "instance_group": [{"count": )" + std::to_string(count) + "}]}";
}

class RepositoryInstancesTest : public ServerTest {
 protected:
  std::unique_ptr<Server> ServeAddSub(const std::string& more = "", ServerOptions options = {}) {
    Write("repo/m/config.pbtxt", AddSub("instance_group { count: 1 }", more));
    fs::create_directories(root_ / "repo/m/1");
    options.model_repositories = {Path("repo")};
    options.control_mode = ControlMode::kExplicit;
    options.load_models = {"*"};
    return Serve(options);
  }
  // As if it had been written after everything else so far.
  void WriteLater(const std::string& path, const std::string& content) {
    Write(path, content);
    later_ += std::chrono::hours(1);
    fs::last_write_time(root_ / path, fs::file_time_type::clock::now() + later_);
  }
  static std::shared_ptr<Model> ModelOf(const Server& server, const std::string& version = "") {
    const auto model = server.FindModel("m", version);
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    return model.ok() ? *model : nullptr;
  }
  static int CountOf(const Model& model) {
    return model.complete_config().instance_group(0).count();
  }
  static void Infer(Server& server) {
    const std::vector<int32_t> seven = {7};
    Request request;
    request.model_name = "m";
    for (const char* name : {"INPUT0", "INPUT1"}) {
      request.inputs.push_back(Tensor::FromValues<int32_t>(name, DataType::kInt32, {1}, seven));
    }
    Collector got;
    serving::Infer(server, std::move(request), got.Handler());
    got.WaitFinal();
    EXPECT_TRUE(got.status().ok()) << got.status().ToString();
  }

  std::chrono::hours later_{0};
};

TEST_F(RepositoryInstancesTest, TheCopyThatRunsTakesOnOtherCounts) {
  const auto server = ServeAddSub();
  ASSERT_NE(server, nullptr);
  const auto model = ModelOf(*server);
  Infer(*server);
  for (const int count : {3, 2}) {
    WriteLater("repo/m/config.pbtxt",
               AddSub("instance_group [ { count: " + std::to_string(count) + " } ]"));
    ASSERT_TRUE(server->LoadModel("m", {}).ok());
    EXPECT_EQ(ModelOf(*server), model);
    EXPECT_EQ(model->num_instances(), count);
    EXPECT_EQ(CountOf(*model), count);
  }
  Infer(*server);
  EXPECT_EQ(model->statistics().Snapshot().success.count, 2U);
}

TEST_F(RepositoryInstancesTest, AConfigurationOfTheLoadDoesSoToo) {
  const auto server = ServeAddSub();
  ASSERT_NE(server, nullptr);
  const auto model = ModelOf(*server);
  ASSERT_TRUE(server->LoadModel("m", {.config_json = AddSubJson(4), .files = {}}).ok());
  EXPECT_EQ(ModelOf(*server), model);
  EXPECT_EQ(model->num_instances(), 4);
  ASSERT_TRUE(server->LoadModel("m", {}).ok());  // holds until a file changes
  EXPECT_EQ(model->num_instances(), 4);
  WriteLater("repo/m/config.pbtxt", AddSub("instance_group { count: 1 }"));
  ASSERT_TRUE(server->LoadModel("m", {}).ok());
  EXPECT_EQ(ModelOf(*server), model);
  EXPECT_EQ(model->num_instances(), 1);
}

TEST_F(RepositoryInstancesTest, PollingDoesSoToo) {
  Write("repo/m/config.pbtxt", AddSub("instance_group { count: 1 }"));
  fs::create_directories(root_ / "repo/m/1");
  Repository repository({}, Loader(), WorkerPool::MakeShared(1, "text"));
  repository.LoadRepository(Path("repo"));
  const HeldTable before = repository.table();
  const auto model = *before->Find("m", "");
  WriteLater("repo/m/config.pbtxt", AddSub("instance_group { count: 2 }"));
  repository.Rescan();
  const HeldTable after = repository.table();
  EXPECT_EQ(*after->Find("m", ""), model);
  EXPECT_EQ(model->num_instances(), 2);
}

TEST_F(RepositoryInstancesTest, AllVersionsTakeThemOn) {
  fs::create_directories(root_ / "repo/m/2");
  const auto server = ServeAddSub("version_policy { all { } }");
  ASSERT_NE(server, nullptr);
  const auto first = ModelOf(*server, "1"), second = ModelOf(*server, "2");
  WriteLater("repo/m/config.pbtxt",
             AddSub("instance_group { count: 3 }", "version_policy { all { } }"));
  ASSERT_TRUE(server->LoadModel("m", {}).ok());
  EXPECT_EQ(ModelOf(*server, "1"), first);
  EXPECT_EQ(ModelOf(*server, "2"), second);
  EXPECT_EQ(first->num_instances(), 3);
  EXPECT_EQ(second->num_instances(), 3);
}

TEST_F(RepositoryInstancesTest, WhatElseChangesIsLoadedAnew) {
  const auto server = ServeAddSub();
  ASSERT_NE(server, nullptr);
  auto model = ModelOf(*server);
  const auto expect_another = [&](const char* what) {
    ASSERT_TRUE(server->LoadModel("m", {}).ok()) << what;
    EXPECT_NE(ModelOf(*server), model) << what;
    model = ModelOf(*server);
  };
  WriteLater("repo/m/config.pbtxt", AddSub("instance_group { count: 2 }", "dynamic_batching { }"));
  expect_another("the configuration");
  WriteLater("repo/m/1/data", "one");
  WriteLater("repo/m/config.pbtxt", AddSub("instance_group { count: 1 }", "dynamic_batching { }"));
  expect_another("a new file");
  WriteLater("repo/m/1/data", "two");
  WriteLater("repo/m/config.pbtxt", AddSub("instance_group { count: 2 }", "dynamic_batching { }"));
  expect_another("a file");
  fs::remove(root_ / "repo/m/1/data");
  WriteLater("repo/m/config.pbtxt", AddSub("instance_group { count: 1 }", "dynamic_batching { }"));
  expect_another("a file that is gone");
  fs::create_directories(root_ / "repo/m/2");
  WriteLater("repo/m/config.pbtxt", AddSub("instance_group { count: 2 }", "dynamic_batching { }"));
  expect_another("a version");
  WriteLater("repo/m/config.pbtxt", AddSub("instance_group { count: 2 }", "dynamic_batching { }"));
  expect_another("nothing but the file's time");
  const LoadOverride batched = {.config_json = AddSubJson(1, /*max_batch_size=*/4), .files = {}};
  ASSERT_TRUE(server->LoadModel("m", batched).ok());
  EXPECT_NE(ModelOf(*server), model);
}

// What editors and mounts leave beside a configuration.
TEST_F(RepositoryInstancesTest, HiddenFilesAndOtherConfigurationsAreNoneOfTheModels) {
  const auto server = ServeAddSub();
  ASSERT_NE(server, nullptr);
  const auto model = ModelOf(*server);
  Write("repo/m/.config.pbtxt.swp", "edited");
  Write("repo/m/.backup/1/data", "old");
  Write("repo/m/configs/other.pbtxt", "");
  WriteLater("repo/m/config.pbtxt", AddSub("instance_group { count: 2 }"));
  ASSERT_TRUE(server->LoadModel("m", {}).ok());
  EXPECT_EQ(ModelOf(*server), model);
}

TEST_F(RepositoryInstancesTest, GroupsThatCannotBeHadLeaveTheOldOnes) {
  ServerOptions options;
  const std::vector<std::string> limits = {"R:1"};
  options.rate_limiter = *RateLimiter::Make(limits);
  const auto server = ServeAddSub("", options);
  ASSERT_NE(server, nullptr);
  const auto model = ModelOf(*server);
  const std::pair<std::string, std::string> cases[] = {
      {"count: 5000", "ask for 5000 instances, at most 1024 are possible"},
      {"count: 1 kind: KIND_GPU", "but no GPUs are available"},
      {"count: 2 rate_limiter { resources { name: 'R' count: 2 } }",
       "asks for 2 of resource 'R', there are 1"}};
  for (const auto& [group, expected] : cases) {
    WriteLater("repo/m/config.pbtxt", AddSub("instance_group { " + group + " }"));
    const Status status = server->LoadModel("m", {});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << group;
    EXPECT_THAT(status.message(), HasSubstr("load failed for model 'm'")) << group;
    EXPECT_THAT(status.message(), HasSubstr(expected)) << group;
    EXPECT_EQ(ModelOf(*server), model) << group;
    EXPECT_EQ(model->num_instances(), 1) << group;
    EXPECT_EQ(CountOf(*model), 1) << group;
    Infer(*server);
  }
  WriteLater("repo/m/config.pbtxt", AddSub("instance_group { count: 2 }"));
  ASSERT_TRUE(server->LoadModel("m", {}).ok());
  EXPECT_EQ(ModelOf(*server), model);
  EXPECT_EQ(model->num_instances(), 2);
}

TEST_F(RepositoryInstancesTest, NewInstancesAreWarmedUp) {
  constexpr char kSample[] = R"(model_warmup { name: "w" batch_size: 1
    inputs { key: "INPUT0" value { data_type: TYPE_INT32 dims: 1 zero_data: true } }
    inputs { key: "INPUT1" value { data_type: TYPE_INT32 dims: 1 input_data_file: "one" } } })";
  Write("repo/m/warmup/one", std::string("\1\0\0\0", 4));
  const auto server = ServeAddSub(kSample);
  ASSERT_NE(server, nullptr);
  const auto model = ModelOf(*server);
  Infer(*server);
  WriteLater("repo/m/config.pbtxt", AddSub("instance_group { count: 3 }", kSample));
  ASSERT_TRUE(server->LoadModel("m", {}).ok());
  EXPECT_EQ(ModelOf(*server), model);
  EXPECT_EQ(model->num_instances(), 3);
  EXPECT_EQ(model->statistics().Snapshot().success.count, 1U);
}

// --- models without instances ---

TEST_F(RepositoryInstancesTest, TheOtherModelsShowTheirGroupsAndGoOn) {
  WriteServable("repo");
  WriteBls("repo");
  const auto server = Serve({.model_repositories = {Path("repo")},
                             .control_mode = ControlMode::kExplicit,
                             .load_models = {"*"}});
  ASSERT_NE(server, nullptr);
  const auto executor = executor_;
  const auto ensemble = *server->FindModel("ensemble", "");
  const auto bls = *server->FindModel("tensorrt_llm_bls", "");
  for (const char* name : {"preprocessing", "postprocessing", "tensorrt_llm"}) {
    const auto model = *server->FindModel(name, "");
    const std::string file = std::string("repo/") + name + "/config.pbtxt";
    std::string config = *ReadFile(root_ / file, 1 << 20);
    if (const size_t old = config.find("instance_group"); old != std::string::npos) {
      config.resize(old);  // it stands last
    }
    WriteLater(file, config + " instance_group [ { count: 1 kind: KIND_GPU } ]");
    ASSERT_TRUE(server->LoadModel(name, {}).ok()) << name;
    EXPECT_EQ(*server->FindModel(name, ""), model) << name;
    EXPECT_EQ(model->complete_config().instance_group(0).kind(),
              ::inference::ModelInstanceGroup::KIND_GPU)
        << name;
  }
  EXPECT_EQ(executor_, executor);
  EXPECT_EQ(*server->FindModel("ensemble", ""), ensemble);
  EXPECT_EQ(*server->FindModel("tensorrt_llm_bls", ""), bls);
}

// Its file leaves open what the engine says.
TEST_F(RepositoryInstancesTest, AConfigurationAsItIsShownIsTheSameAsItsFile) {
  WriteServable("repo");
  const auto server = Serve({.model_repositories = {Path("repo")},
                             .control_mode = ControlMode::kExplicit,
                             .load_models = {"*"}});
  ASSERT_NE(server, nullptr);
  for (const char* name : {"preprocessing", "postprocessing", "tensorrt_llm"}) {
    const auto model = *server->FindModel(name, "");
    ::inference::ModelConfig shown = model->complete_config();
    shown.mutable_instance_group(0)->set_name("other");
    std::string json;
    ASSERT_TRUE(google::protobuf::util::MessageToJsonString(shown, &json).ok());
    ASSERT_TRUE(server->LoadModel(name, {.config_json = json, .files = {}}).ok()) << name;
    EXPECT_EQ(*server->FindModel(name, ""), model) << name;
    EXPECT_EQ(model->complete_config().instance_group(0).name(), "other") << name;
    (*shown.mutable_metric_tags())["more"] = "changed";
    json.clear();
    ASSERT_TRUE(google::protobuf::util::MessageToJsonString(shown, &json).ok());
    ASSERT_TRUE(server->LoadModel(name, {.config_json = json, .files = {}}).ok()) << name;
    EXPECT_NE(*server->FindModel(name, ""), model) << name;
  }
}

TEST_F(RepositoryInstancesTest, AnLlmHasOneExecutorWhateverItsGroupsAskFor) {
  WriteServable("repo", "instance_group [ { count: 1 kind: KIND_CPU } ]");
  const auto server = Serve({.model_repositories = {Path("repo")},
                             .control_mode = ControlMode::kExplicit,
                             .load_models = {"*"}});
  ASSERT_NE(server, nullptr);
  const auto executor = executor_;
  std::string config = *ReadFile(root_ / "repo/tensorrt_llm/config.pbtxt", 1 << 20);
  config.replace(config.find("count: 1"), 8, "count: 2");
  WriteLater("repo/tensorrt_llm/config.pbtxt", config);
  const Status status = server->LoadModel("tensorrt_llm", {});
  EXPECT_THAT(status.message(), HasSubstr("instance_group.count"));
  EXPECT_EQ(executor_, executor);
  const auto model = *server->FindModel("tensorrt_llm", "");
  EXPECT_EQ(model->complete_config().instance_group(0).count(), 1);
}

}  // namespace
}  // namespace inflight::serving
