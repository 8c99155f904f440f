// SPDX-License-Identifier: Apache-2.0
// Repositories that come and go while the server runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "serving/testing/server_test_fixture.h"

namespace inflight::serving {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kIdentity[] =
    "backend: 'conformance'"
    " input [ { name: 'INPUT0' data_type: TYPE_INT32 dims: [ 1 ] } ]"
    " output [ { name: 'OUTPUT0' data_type: TYPE_INT32 dims: [ 1 ] } ]"
    " parameters { key: 'kind' value: { string_value: 'identity' } }";
constexpr char kOverStep[] =
    "platform: 'ensemble'"
    " input [ { name: 'IN' data_type: TYPE_INT32 dims: [ 1 ] } ]"
    " output [ { name: 'OUT' data_type: TYPE_INT32 dims: [ 1 ] } ]"
    " ensemble_scheduling { step [ { model_name: 'step' model_version: -1"
    " input_map { key: 'INPUT0' value: 'IN' } output_map { key: 'OUTPUT0' value: 'OUT' } } ] }";

class AddedRepositoryTest : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    WriteModel("own/first", kIdentity);
  }

  void WriteModel(const std::string& path, const std::string& config) const {
    Write(path + "/config.pbtxt", config);
    std::filesystem::create_directories(root_ / path / "1");
  }
  std::unique_ptr<Server> Start(ControlMode mode = ControlMode::kExplicit) {
    return Serve({.model_repositories = {Path("own")}, .control_mode = mode});
  }
  AddedRepository Added(const std::string& root, const std::string& directory,
                        const std::string& model) const {
    return {.root = Path(root), .model = model, .directory = directory};
  }
  static std::vector<std::string> Names(const Server& server) {
    std::vector<std::string> names;
    for (const IndexEntry& entry : server.Index(/*ready_only=*/false)) names.push_back(entry.name);
    return names;
  }
};

TEST_F(AddedRepositoryTest, AModelIsServedUnderTheNameItIsAddedBy) {
  WriteModel("other/dir", kIdentity);
  const auto server = Start();
  ASSERT_TRUE(server->AddRepository(Added("other", "dir", "name")).ok());
  EXPECT_THAT(Names(*server), ElementsAre("first", "name"));
  EXPECT_EQ(server->LoadModel("dir", {}).code(), StatusCode::kInternal);
  ASSERT_TRUE(server->LoadModel("name", {}).ok());
  const auto model = server->FindModel("name", "");
  ASSERT_TRUE(model.ok());
  EXPECT_EQ((*model)->name(), "name");
  EXPECT_FALSE(server->FindModel("dir", "").ok());
}

TEST_F(AddedRepositoryTest, AConfigurationMaySayTheNameOfItsDirectoryOrTheOneItIsAddedBy) {
  for (const std::string name : {"dir", "name"}) {
    WriteModel("other/dir", "name: '" + name + "' " + kIdentity);
    const auto server = Start();
    ASSERT_TRUE(server->AddRepository(Added("other", "dir", "name")).ok());
    EXPECT_TRUE(server->LoadModel("name", {}).ok()) << name;
  }
  WriteModel("other/dir", std::string("name: 'third' ") + kIdentity);
  const auto server = Start();
  ASSERT_TRUE(server->AddRepository(Added("other", "dir", "name")).ok());
  EXPECT_FALSE(server->LoadModel("name", {}).ok());
}

TEST_F(AddedRepositoryTest, StepsOfAnEnsembleAreFoundBesideIt) {
  WriteModel("other/dir", kOverStep);
  WriteModel("other/step", kIdentity);
  const auto server = Start();
  ASSERT_TRUE(server->AddRepository(Added("other", "dir", "name")).ok());
  ASSERT_TRUE(server->LoadModel("name", {}).ok());
  EXPECT_TRUE(server->FindModel("step", "").ok());
  ASSERT_TRUE(server->UnloadModel("name", /*with_steps=*/true).ok());
  EXPECT_FALSE(server->FindModel("step", "").ok());
}

TEST_F(AddedRepositoryTest, RemovingUnloadsAndForgets) {
  WriteModel("other/dir", kOverStep);
  WriteModel("other/step", kIdentity);
  const auto server = Start();
  ASSERT_TRUE(server->LoadModel("first", {}).ok());
  for (int i = 0; i < 2; ++i) {  // the second time as the first
    ASSERT_TRUE(server->AddRepository(Added("other", "dir", "name")).ok());
    ASSERT_TRUE(server->LoadModel("name", {}).ok());
    server->RemoveRepository(Path("other"));
    EXPECT_THAT(Names(*server), ElementsAre("first"));
    EXPECT_THAT(server->FindModel("name", "").status().message(), HasSubstr("is not found"));
    EXPECT_THAT(server->FindModel("step", "").status().message(), HasSubstr("is not found"));
    EXPECT_TRUE(server->FindModel("first", "").ok());
  }
}

TEST_F(AddedRepositoryTest, AFailedModelThatIsRemovedDoesNotKeepTheServerFromBeingReady) {
  WriteModel("other/dir",
             "backend: 'conformance' parameters { key: 'kind' value: { string_value: "
             "'none' } }");
  const auto server = Start();
  ASSERT_TRUE(server->AddRepository(Added("other", "dir", "name")).ok());
  EXPECT_FALSE(server->LoadModel("name", {}).ok());
  EXPECT_FALSE(server->ready());
  server->RemoveRepository(Path("other"));
  EXPECT_TRUE(server->ready());
}

TEST_F(AddedRepositoryTest, WhatIsThereAlreadyIsNotAddedAgain) {
  WriteModel("other/dir", kIdentity);
  WriteModel("third/dir", kIdentity);
  const auto server = Start();
  ASSERT_TRUE(server->AddRepository(Added("other", "dir", "name")).ok());
  EXPECT_EQ(server->AddRepository(Added("other", "dir", "else")).code(),
            StatusCode::kAlreadyExists);
  EXPECT_EQ(server->AddRepository(Added("own", "first", "else")).code(),
            StatusCode::kAlreadyExists);
  for (const char* name : {"name", "first"}) {
    EXPECT_EQ(server->AddRepository(Added("third", "dir", name)).code(),
              StatusCode::kAlreadyExists);
  }
  // Its directory's name is no name of a model: another may have it.
  EXPECT_TRUE(server->AddRepository(Added("third", "dir", "dir")).ok());
}

TEST_F(AddedRepositoryTest, AStepThatIsElsewhereTooIsRefused) {
  WriteModel("other/dir", kOverStep);
  WriteModel("other/first", kIdentity);
  const auto server = Start();
  const Status status = server->AddRepository(Added("other", "dir", "name"));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("'first' appears in two or more repositories"));
  EXPECT_THAT(Names(*server), ElementsAre("first"));
}

TEST_F(AddedRepositoryTest, NamesThatLeadElsewhereAreRefused) {
  WriteModel("other/dir", kIdentity);
  const auto server = Start();
  for (const char* name : {"", " ", "..", "a/b", "a\\b"}) {
    EXPECT_EQ(server->AddRepository(Added("other", "dir", name)).code(),
              StatusCode::kInvalidArgument);
  }
}

TEST_F(AddedRepositoryTest, OnlyRequestsMayAddWhereTheyMayLoad) {
  WriteModel("other/dir", kIdentity);
  const auto server = Start(ControlMode::kNone);
  EXPECT_EQ(server->AddRepository(Added("other", "dir", "name")).code(), StatusCode::kUnavailable);
}

TEST_F(AddedRepositoryTest, TheIndexMayBeReadMeanwhile) {
  WriteModel("other/dir", kIdentity);
  const auto server = Start();
  std::jthread reader([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) (void)server->Index(/*ready_only=*/false);
  });
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(server->AddRepository(Added("other", "dir", "name")).ok());
    ASSERT_TRUE(server->LoadModel("name", {}).ok());
    ASSERT_TRUE(server->UnloadModel("name", /*with_steps=*/true).ok());
    server->RemoveRepository(Path("other"));
  }
}

}  // namespace
}  // namespace inflight::serving
