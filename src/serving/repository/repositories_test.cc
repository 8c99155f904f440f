// SPDX-License-Identifier: Apache-2.0
// Repositories as namespaces.
#include "serving/repository/repositories.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "serving/tensors/tensor_values.h"
#include "serving/testing/server_test_fixture.h"

namespace inflight::serving {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// `step` gives its two inputs' sum, or their difference: what the ensemble over it gives.
constexpr char kStep[] =
    "backend: 'conformance'"
    " input [ { name: 'INPUT0' data_type: TYPE_INT32 dims: [ 1 ] },"
    "         { name: 'INPUT1' data_type: TYPE_INT32 dims: [ 1 ] } ]"
    " output [ { name: 'OUTPUT0' data_type: TYPE_INT32 dims: [ 1 ] },"
    "          { name: 'OUTPUT1' data_type: TYPE_INT32 dims: [ 1 ] } ]"
    " parameters { key: 'kind' value: { string_value: 'addsub' } }";

std::string Over(const std::string& output, const std::string& more = "") {
  return "platform: 'ensemble'"
         " input [ { name: 'A' data_type: TYPE_INT32 dims: [ 1 ] },"
         "         { name: 'B' data_type: TYPE_INT32 dims: [ 1 ] } ]"
         " output [ { name: 'OUT' data_type: TYPE_INT32 dims: [ 1 ] } ]"
         " ensemble_scheduling { step [ { model_name: 'step' model_version: -1 " +
         more +
         " input_map { key: 'INPUT0' value: 'A' } input_map { key: 'INPUT1' value: 'B' }"
         " output_map { key: '" +
         output + "' value: 'OUT' } } ] }";
}

class RepositoriesTest : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    WriteModel("one/step", kStep);
    WriteModel("one/sum", Over("OUTPUT0"));
    WriteModel("two/step", kStep);
    WriteModel("two/difference", Over("OUTPUT1"));
  }

  void WriteModel(const std::string& path, const std::string& config) const {
    Write(path + "/config.pbtxt", config);
    std::filesystem::create_directories(root_ / path / "1");
  }
  ServerOptions Options(bool are_namespaces = true) const {
    return {.model_repositories = {Path("one"), Path("two")}, .model_namespacing = are_namespaces};
  }
  // OUT for A = 5 and B = 3.
  static std::vector<int32_t> Ask(Server& server, const std::string& model) {
    const auto value = [](const char* name, int32_t v) {
      return Tensor::FromValues<int32_t>(name, DataType::kInt32, {1}, {&v, 1});
    };
    Request request = MakeRequest({value("A", 5), value("B", 3)});
    request.model_name = model;
    Collector got;
    Infer(server, std::move(request), got.Handler());
    got.WaitFinal();
    const Tensor* out = Collector::Find(got.last(), "OUT");
    return out == nullptr ? std::vector<int32_t>() : ValuesOf<int32_t>(*out);
  }
  // Once nothing is on its way out: an unload returns before the last user of a model has.
  static std::vector<std::string> Index(const Server& server) {
    while (true) {
      std::vector<std::string> names;
      bool is_settled = true;
      for (const IndexEntry& entry : server.Index(/*ready_only=*/false)) {
        names.push_back(entry.name + " " + entry.state);
        is_settled = is_settled && entry.state != "UNLOADING";
      }
      if (is_settled) return names;
      std::this_thread::yield();
    }
  }
  uint64_t Successes(const Server& server, const std::string& name_space) const {
    for (const auto& model : server.models()) {
      if (model->name() == "step" && model->name_space() == name_space)
        return model->statistics().Snapshot().success.count;
    }
    return 99;
  }
};

TEST_F(RepositoriesTest, AnEnsembleHasTheStepsOfItsOwnRepository) {
  const auto server = Serve(Options());
  ASSERT_NE(server, nullptr);
  EXPECT_TRUE(server->ready());
  EXPECT_THAT(Ask(*server, "sum"), ElementsAre(8));
  EXPECT_THAT(Ask(*server, "difference"), ElementsAre(2));
  EXPECT_THAT(Ask(*server, "difference"), ElementsAre(2));
  EXPECT_EQ(Successes(*server, Path("one")), 1U);
  EXPECT_EQ(Successes(*server, Path("two")), 2U);
  EXPECT_THAT(Index(*server),
              ElementsAre("difference READY", "step READY", "step READY", "sum READY"));
}

TEST_F(RepositoriesTest, ABareNameOfTwoIsNobodys) {
  const auto server = Serve(Options());
  const auto step = server->FindModel("step", "");
  EXPECT_EQ(step.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(step.status().message(), HasSubstr("There are 2 identifiers of model 'step'"));
  EXPECT_EQ((*server->FindModel("sum", ""))->name_space(), Path("one"));
}

TEST_F(RepositoriesTest, LoadsAndUnloadsAreOfOneNamespace) {
  ServerOptions options = Options();
  options.control_mode = ControlMode::kExplicit;
  options.load_models = {"sum"};
  const auto server = Serve(std::move(options));
  ASSERT_NE(server, nullptr);
  EXPECT_TRUE(server->FindModel("step", "").ok());  // the only one that is loaded
  EXPECT_EQ(server->LoadModel("step", {}).code(), StatusCode::kInternal);
  EXPECT_EQ(server->LoadModel("..", {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(server->UnloadModel("step", false).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(server->LoadModel("difference", {}).ok());
  EXPECT_FALSE(server->FindModel("step", "").ok());
  ASSERT_TRUE(server->UnloadModel("sum", /*with_steps=*/true).ok());
  EXPECT_THAT(Ask(*server, "difference"), ElementsAre(2));
  EXPECT_THAT(Index(*server),
              ElementsAre("difference READY", "step UNAVAILABLE", "step READY", "sum UNAVAILABLE"));
}

// As a platform adds and removes them (protocol/sagemaker).
TEST_F(RepositoriesTest, AnAddedRepositoryIsANamespace) {
  const auto server = Serve({.model_repositories = {Path("one")},
                             .model_namespacing = true,
                             .control_mode = ControlMode::kExplicit,
                             .load_models = {"*"}});
  ASSERT_NE(server, nullptr);
  const AddedRepository added = {.root = Path("two"), .model = "target", .directory = "difference"};
  ASSERT_TRUE(server->AddRepository(added).ok());
  EXPECT_EQ(server->AddRepository(added).code(), StatusCode::kAlreadyExists);
  WriteModel("three/step", kStep);
  EXPECT_EQ(
      server->AddRepository({.root = Path("three"), .model = "target", .directory = "step"}).code(),
      StatusCode::kAlreadyExists);
  ASSERT_TRUE(server->LoadModel("target", {}).ok());
  EXPECT_THAT(Ask(*server, "target"), ElementsAre(2));
  EXPECT_THAT(Ask(*server, "sum"), ElementsAre(8));
  server->RemoveRepository(Path("two"));
  EXPECT_TRUE(Ask(*server, "target").empty());
  EXPECT_TRUE(server->FindModel("step", "").ok());
  EXPECT_THAT(Index(*server), ElementsAre("step READY", "sum READY"));
  EXPECT_TRUE(server->AddRepository(added).ok());  // and comes again
}

TEST_F(RepositoriesTest, AStepOfAnotherNamespaceIsAnError) {
  WriteModel("two/difference", Over("OUTPUT1", "model_namespace: '" + Path("one") + "'"));
  ServerOptions options = Options();
  options.exit_on_error = false;
  const auto server = Serve(std::move(options));
  ASSERT_NE(server, nullptr);
  std::string reason;
  for (const IndexEntry& entry : server->Index(false)) {
    if (entry.name == "difference") reason = entry.reason;
  }
  EXPECT_THAT(reason, HasSubstr("steps are models of the ensemble's own repository, 'two'"));
  WriteModel("two/difference", Over("OUTPUT1", "model_namespace: '" + Path("two") + "'"));
  EXPECT_THAT(Ask(*Serve(Options()), "difference"), ElementsAre(2));
}

TEST_F(RepositoriesTest, WithoutNamespacesNeitherIsServed) {
  ServerOptions options = Options(/*are_namespaces=*/false);
  options.exit_on_error = false;
  const auto server = Serve(std::move(options));
  ASSERT_NE(server, nullptr);
  EXPECT_FALSE(server->FindModel("step", "").ok());
  EXPECT_TRUE(Ask(*server, "sum").empty());
}

}  // namespace
}  // namespace inflight::serving
