// SPDX-License-Identifier: Apache-2.0
// Members of a BLS that come and go while it is loaded.
#include "serving/repository/bls_members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/file.h"
#include "serving/testing/server_test_fixture.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class BlsMembersTest : public ServerTest {
 protected:
  std::unique_ptr<Server> ServeAll() {
    return Serve({.model_repositories = {Path("repo")},
                  .control_mode = ControlMode::kExplicit,
                  .load_models = {"*"}});
  }
};

// A request to the BLS, which the executor then runs.
Status AskBls(Server& server, FakeExecutor& executor, int max_tokens = 3) {
  Request request = TextRequest("ab", max_tokens);
  request.model_name = "tensorrt_llm_bls";
  Collector got;
  Infer(server, std::move(request), got.Handler());
  executor.Run();
  EXPECT_EQ(got.num_final(), 1);
  return got.status();
}

TEST_F(BlsMembersTest, ABlsStaysWhenItsMembersGoAndFindsThemWhenTheyComeBack) {
  WriteServable("repo");
  WriteBls("repo");
  const auto server = ServeAll();
  ASSERT_NE(server, nullptr);
  const auto bls = *server->FindModel("tensorrt_llm_bls", "");
  for (const char* member : {"preprocessing", "tensorrt_llm", "postprocessing"}) {
    EXPECT_TRUE(AskBls(*server, *executor_).ok());
    ASSERT_TRUE(server->UnloadModel(member, /*with_steps=*/false).ok());
    WaitUntilUnloaded(*server, member);  // for ever, if the BLS held it
    EXPECT_EQ(StateOf(*server, "tensorrt_llm_bls"), "READY");
    EXPECT_TRUE(server->ready());
    const Status missing = AskBls(*server, *executor_);
    EXPECT_EQ(missing.code(), StatusCode::kUnavailable);
    EXPECT_THAT(missing.message(), HasSubstr("Model '" + std::string(member) + "' is not ready"));
    ASSERT_TRUE(server->LoadModel(member, {}).ok());
  }
  EXPECT_TRUE(AskBls(*server, *executor_).ok());
  EXPECT_EQ(*server->FindModel("tensorrt_llm_bls", ""), bls);
}

TEST_F(BlsMembersTest, ABlsMayBeLoadedBeforeItsMembers) {
  WriteServable("repo");
  WriteBls("repo");
  const auto server = Serve({.model_repositories = {Path("repo")},
                             .control_mode = ControlMode::kExplicit,
                             .load_models = {"tensorrt_llm_bls"}});
  ASSERT_NE(server, nullptr);
  EXPECT_TRUE(server->ready());
  EXPECT_EQ(StateOf(*server, "tensorrt_llm_bls"), "READY");
  ASSERT_TRUE(server->LoadModel("tensorrt_llm", {}).ok());
  EXPECT_THAT(AskBls(*server, *executor_).message(), HasSubstr("'preprocessing' is not ready"));
  // Text models of other names, of which there is one of each kind.
  for (const char* kind : {"preprocessing", "postprocessing"}) {
    const std::string name = "my_" + std::string(kind);
    fs::rename(root_ / "repo" / kind, root_ / "repo" / name);
    std::string config = *ReadFile(root_ / "repo" / name / "config.pbtxt", 1 << 20);
    const std::string named = "name: \"" + std::string(kind) + "\"";
    config.replace(config.find(named), named.size(), "name: \"" + name + "\"");
    Write("repo/" + name + "/config.pbtxt", config);
    ASSERT_TRUE(server->LoadModel(name, {}).ok());
  }
  EXPECT_TRUE(AskBls(*server, *executor_).ok());
}

TEST_F(BlsMembersTest, ARequestOfABlsKeepsTheMembersThatItBeganWith) {
  WriteServable("repo");
  WriteBls("repo");
  const auto server = ServeAll();
  ASSERT_NE(server, nullptr);
  Request request = TextRequest("ab", 5);
  request.model_name = "tensorrt_llm_bls";
  Collector got;
  Infer(*server, std::move(request), got.Handler());
  executor_->Step();
  for (const char* member : {"preprocessing", "tensorrt_llm", "postprocessing"}) {
    ASSERT_TRUE(server->UnloadModel(member, /*with_steps=*/false).ok());
  }
  EXPECT_EQ(StateOf(*server, "tensorrt_llm"), "UNLOADING");
  executor_->Run();
  EXPECT_EQ(got.Joined(), "abababa");  // with the prompt
  WaitUntilUnloaded(*server, "tensorrt_llm");
}

}  // namespace
}  // namespace inflight::serving
