// SPDX-License-Identifier: Apache-2.0
// For tests: servers over directories written by the test, with a FakeExecutor for every engine.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serving/repository/engine_loader.h"
#include "serving/server/create_server.h"
#include "serving/testing/fake_executor.h"
#include "serving/testing/test_requests.h"

namespace inflight::serving {

// A directory of its own for each test, removed with it.
class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::filesystem::path& path, const std::string& content) const;
  std::string Path(const std::string& path) const { return (root_ / path).string(); }

  // A directory that any engine loader may take for a model.
  std::string ModelDir() const;

  // Takes every existing directory for an engine.
  EngineLoader Loader(bool threaded = false);

  std::unique_ptr<Server> Serve(const ServerOptions& options, bool threaded = false);

  void WriteRepository(const std::string& repo, const std::string& llm_parameters,
                       const std::string& decoupled = "True") const;
  // A complete repository with an engine in the LLM's version directory.
  void WriteServable(const std::string& repo, const std::string& llm_parameters = "",
                     const std::string& decoupled = "True") const;
  void WriteEngine(const std::string& dir) const;
  void WriteBls(const std::string& repo, const std::string& parameters = "") const;

  // As the index has it; "absent" where it has none of that name.
  static std::string StateOf(const Server& server, const std::string& model);
  // Models end on a thread of their own.
  static void WaitUntilUnloaded(const Server& server, const std::string& model);

  std::filesystem::path root_;
  std::shared_ptr<FakeExecutor> executor_;  // of the engine loaded last
  ExecutorOptions options_;
  std::vector<std::string> loaded_dirs_, owners_;
  std::vector<std::vector<int>> gpus_;  // that their files ask for
  std::vector<ExecutorOptions> all_options_;
};

// To the ensemble.
Request TextRequest(const std::string& text, int max_tokens, std::vector<Tensor> more = {});

// On the model that the request's names have now, as front ends find it before they parse.
void Infer(Server& server, Request request, ResponseHandler handler);

// "<model> <version> <state>" of each.
std::vector<std::string> Lines(const std::vector<IndexEntry>& index);

}  // namespace inflight::serving
