// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/auto_complete.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "serving/testing/server_test_fixture.h"

namespace inflight::serving {
namespace {

using ::testing::HasSubstr;

ParsedModelConfig Parsed(const std::string& text) {
  auto parsed = ParseModelConfig(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
  return *std::move(parsed);
}

TEST(AutoComplete, TheNameSaysTheBackendWhereTheFileDoesNot) {
  ParsedModelConfig parsed = Parsed("max_batch_size: 4");
  EXPECT_TRUE(AutoComplete("m.conformance", "/none", parsed).ok());
  EXPECT_EQ(parsed.config.backend(), "conformance");
  parsed = Parsed("");
  EXPECT_TRUE(AutoComplete("a.b.c", "/none", parsed).ok());
  EXPECT_EQ(parsed.config.backend(), "b.c");
  parsed = Parsed("backend: 'python'");
  EXPECT_TRUE(AutoComplete("m.conformance", "/none", parsed).ok());
  EXPECT_EQ(parsed.config.backend(), "python");
  parsed = Parsed("platform: 'ensemble'");
  EXPECT_TRUE(AutoComplete("m", "/none", parsed).ok());
  EXPECT_EQ(parsed.config.backend(), "");
  for (const char* name : {"m", "m.", ".m"}) {
    parsed = Parsed("max_batch_size: 4");
    EXPECT_EQ(AutoComplete(name, "/none", parsed),
              InvalidArgument("Invalid model name: Could not determine backend for model '" +
                              std::string(name) +
                              "' with no backend in model configuration. Expected model name of "
                              "the form 'model.<backend_name>'."));
  }
}

TEST(AutoComplete, TensorsThatAreThereAreKept) {
  ParsedModelConfig parsed = Parsed(
      "backend: 'tensorrtllm' input { name: 'input_ids' data_type: TYPE_INT32 dims: [ -1 ] }");
  EXPECT_TRUE(AutoComplete("m", "/none", parsed).ok());
  EXPECT_EQ(parsed.config.input_size(), 1);
  EXPECT_EQ(parsed.config.output_size(), 0);
  EXPECT_FALSE(parsed.IsUnfilled("max_batch_size"));
}

TEST(AutoComplete, WhatTheFileSaysOfAnLlmStays) {
  ParsedModelConfig parsed = Parsed(
      "backend: 'tensorrtllm' max_batch_size: 2 model_transaction_policy { decoupled: false }");
  EXPECT_TRUE(AutoComplete("m", "/none", parsed).ok());
  EXPECT_TRUE(HasInput(parsed.config, "input_ids") && HasOutput(parsed.config, "output_ids"));
  EXPECT_EQ(parsed.config.max_batch_size(), 2);
  EXPECT_FALSE(parsed.IsUnfilled("max_batch_size"));
  EXPECT_FALSE(parsed.config.model_transaction_policy().decoupled());
}

class AutoCompleteTest : public ServerTest {};

TEST_F(AutoCompleteTest, AnEngineNeedsNoConfiguration) {
  WriteEngine("repo/m.tensorrtllm/1");
  const auto server = Serve({.model_repositories = {Path("repo")}});
  ASSERT_NE(server, nullptr);
  const auto model = server->FindModel("m.tensorrtllm", "");
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ((*model)->config().backend(), "tensorrtllm");
  EXPECT_EQ((*model)->config().max_batch_size(), FakeExecutor::SmallLimits().max_batch_size);
  EXPECT_TRUE((*model)->decoupled());
  EXPECT_EQ(loaded_dirs_, std::vector<std::string>{Path("repo/m.tensorrtllm/1")});
}

TEST_F(AutoCompleteTest, TheFileSaysTheBackendBeforeTheName) {
  const auto backend = [&](const std::string& name, const std::string& text) {
    ParsedModelConfig parsed = Parsed(text);
    EXPECT_TRUE(AutoComplete(name, root_ / name, parsed).ok());
    return parsed.config.backend();
  };
  Write("py.conformance/2/model.py", "");
  Write("py.conformance/10/model.onnx", "");
  EXPECT_EQ(backend("py.conformance", ""), "python");
  EXPECT_EQ(backend("py.conformance", "default_model_filename: 'model.pt2'"), "pytorch");
  EXPECT_EQ(backend("py.conformance", "default_model_filename: 'other.py'"), "conformance");
  EXPECT_EQ(backend("py.conformance", "backend: 'x'"), "x");
  Write("onnx/1/model.onnx", "");
  EXPECT_EQ(backend("onnx", ""), "onnxruntime");
}

TEST_F(AutoCompleteTest, NothingIsCompletedWhereThatIsOff) {
  WriteEngine("repo/m.tensorrtllm/1");
  Write("named/m.conformance/config.pbtxt", "max_batch_size: 1");
  std::filesystem::create_directories(root_ / "named/m.conformance/1");
  const auto failure = [&](const std::string& repo) {
    return CreateServerWith({.model_repositories = {Path(repo)}, .auto_complete = false}, Loader())
        .status()
        .message();
  };
  EXPECT_THAT(failure("repo"), HasSubstr("no models found in"));
  EXPECT_THAT(failure("named"), HasSubstr("Could not determine backend for model"));
}

}  // namespace
}  // namespace inflight::serving
