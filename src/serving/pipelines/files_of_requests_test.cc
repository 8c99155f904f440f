// SPDX-License-Identifier: Apache-2.0
// Files of the server that requests name are read by the text pool: a thread of a front end that
// waits for a disk keeps its other clients waiting.
#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "serving/llm/named_adapters.h"
#include "serving/llm/prompt_table_dir.h"
#include "serving/testing/test_models.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;

// As numpy.save writes one row of two zeros.
std::string ZeroRow() {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }";
  header.resize(117, ' ');
  return std::string("\x93NUMPY\x01\0\x76\0", 10) + header + '\n' + std::string(8, '\0');
}

class FilesOfRequestsTest : public testing::Test {
 protected:
  FilesOfRequestsTest() {
    fs::create_directories(dir_ / "a");
    EXPECT_TRUE(WriteFile(dir_ / "table.npy", ZeroRow()).ok());
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
      EXPECT_TRUE(WriteFile(dir_ / "a" / file, "{}").ok());
    auto adapters = NamedAdapters::Make(
        {}, dir_.string(), [](const fs::path&) { return Result<LoraTensors>(LoraTensors{}); });
    EXPECT_TRUE(adapters.ok());
    models_.executor->generate = [](const inflight::Request&, int) { return TokenId{'a'}; };
    llm_ = std::make_shared<LlmModel>(LlmConfig({.max_batch_size = 8}), "1",
                                      LlmBackend{.steps = nullptr,
                                                 .executor = models_.executor,
                                                 .end_ids = {257},
                                                 .prompt_tables = *PromptTableDir::Open(dir_),
                                                 .adapters = *adapters,
                                                 .text_pool = models_.text_pool},
                                      contract::LlmRequestDefaults{});
    auto ensemble =
        PipelineModel::Create(PipelineModel::Kind::kEnsemble, EnsembleConfig({.max_batch_size = 8}),
                              "1", {models_.preprocessing, llm_, models_.postprocessing});
    EXPECT_TRUE(ensemble.ok());
    ensemble_ = *ensemble;
  }
  ~FilesOfRequestsTest() override {
    models_.executor->Stop();
    fs::remove_all(dir_);
  }

  static Request Asking(std::vector<Tensor> inputs, const std::string& parameter,
                        const std::string& value) {
    Request request = MakeRequest(std::move(inputs));
    request.parameters[parameter] = value;
    return request;
  }
  static std::vector<Tensor> ForLlm() {
    return {Int("input_lengths", 2), Ids("input_ids", {1, 2}), Int("request_output_len", 3)};
  }
  static std::vector<Tensor> ForEnsemble() {
    return {Text("text_input", {"a"}), Int("max_tokens", 3)};
  }
  static ExecutorLimits Limits() {
    ExecutorLimits limits = FakeExecutor::SmallLimits();
    limits.hidden_size = 2;
    limits.max_prompt_embedding_table_size = 8;
    return limits;
  }
  // Whether it reaches the executor on this thread.
  bool RunsHere(Model& model, Request request) {
    got_.emplace_back();
    model.Infer(std::move(request), got_.back().Handler());
    return models_.executor->num_active() > 0;
  }
  void ExpectAnswer() {
    models_.executor->Run();
    ASSERT_EQ(got_.back().num_final(), 1);
    EXPECT_TRUE(got_.back().status().ok()) << got_.back().status().ToString();
  }

  const fs::path dir_ =
      fs::temp_directory_path() / ("files_of_requests_" + std::to_string(getpid()));
  PoolPump pump_;  // for the threads of the pool
  std::deque<Collector> got_;
  TestModels models_{{.max_batch_size = 8}, /*threaded=*/false, Limits()};
  std::shared_ptr<LlmModel> llm_;
  std::shared_ptr<PipelineModel> ensemble_;
};

TEST_F(FilesOfRequestsTest, ATableIsReadByTheTextPool) {
  ASSERT_FALSE(RunsHere(*llm_, Asking(ForLlm(), "prompt_task", "table")));
  ASSERT_TRUE(pump_.RunOne(0));
  ExpectAnswer();
  EXPECT_TRUE(RunsHere(*llm_, Asking(ForLlm(), "prompt_task", "table"))) << "it is kept";
  ExpectAnswer();
}

TEST_F(FilesOfRequestsTest, ATableOfATextRequestToo) {
  ASSERT_FALSE(RunsHere(*ensemble_, Asking(ForEnsemble(), "prompt_task", "table")));
  ASSERT_TRUE(pump_.RunOne(0));
  ExpectAnswer();
  EXPECT_TRUE(RunsHere(*ensemble_, Asking(ForEnsemble(), "prompt_task", "table"))) << "it is kept";
  ExpectAnswer();
}

TEST_F(FilesOfRequestsTest, AnAdapterThatTheExecutorHasNotIsReadThereToo) {
  ASSERT_FALSE(RunsHere(*llm_, Asking(ForLlm(), "lora_name", "a")));
  ASSERT_TRUE(pump_.RunOne(0));
  ExpectAnswer();
  ASSERT_FALSE(RunsHere(*ensemble_, Asking(ForEnsemble(), "lora_name", "a")));
  ASSERT_TRUE(pump_.RunOne(0));
  ExpectAnswer();
}

TEST_F(FilesOfRequestsTest, AnAdapterIsLookedForOnce) {
  const auto look = [this](Model& model, std::vector<Tensor> inputs) {
    ASSERT_FALSE(RunsHere(model, Asking(std::move(inputs), "lora_name", "a")));
    fs::rename(dir_ / "a", dir_ / "gone");
    ASSERT_TRUE(pump_.RunOne(0));
    ExpectAnswer();
    fs::rename(dir_ / "gone", dir_ / "a");
  };
  look(*llm_, ForLlm());
  look(*ensemble_, ForEnsemble());
}

// By their sizes, a few hundred bytes.
TEST_F(FilesOfRequestsTest, FilesAreChargedWhileTheyAreRead) {
  const auto account = MemoryAccount::Make({.hard_bytes = size_t{1} << 20});
  const auto share = account->NewConnection("someone", [] {});
  const auto ask = [&](const char* parameter, const char* value) {
    Request request = Asking(ForEnsemble(), parameter, value);
    request.memory = share;
    ASSERT_FALSE(RunsHere(*ensemble_, std::move(request)));
    ASSERT_TRUE(pump_.RunOne(0));
  };
  ask("prompt_task", "table");
  ExpectAnswer();
  ask("lora_name", "a");
  ExpectAnswer();
  const auto& read = models_.executor->last_request.lora->read;
  EXPECT_TRUE(read().ok());
  models_.executor->last_request = {};
  EXPECT_EQ(account->used_bytes(), 0U);
}

TEST_F(FilesOfRequestsTest, AFileForWhichItsClientHasNoRoomIsNotRead) {
  const auto account = MemoryAccount::Make({.hard_bytes = 500});
  const auto share = account->NewConnection("someone", [] {});
  Request request = Asking(ForEnsemble(), "prompt_task", "large");
  EXPECT_TRUE(WriteFile(dir_ / "large.npy", ZeroRow() + std::string(1000, '\0')).ok());
  request.memory = share;
  ASSERT_FALSE(RunsHere(*ensemble_, std::move(request)));
  ASSERT_TRUE(pump_.RunOne(0));
  EXPECT_EQ(got_.back().status().code(), StatusCode::kResourceExhausted);
  // Of an adapter the executor reads, by what the request brings.
  EXPECT_TRUE(WriteFile(dir_ / "a" / "adapter_model.safetensors", std::string(1000, ' ')).ok());
  Request adapted = Asking(ForLlm(), "lora_name", "a");
  adapted.memory = share;
  ASSERT_FALSE(RunsHere(*llm_, std::move(adapted)));
  ASSERT_TRUE(pump_.RunOne(0));
  ExpectAnswer();
  EXPECT_EQ(models_.executor->last_request.lora->read().status().code(),
            StatusCode::kResourceExhausted);
}

TEST_F(FilesOfRequestsTest, WhatIsNotThereIsToldAtOnce) {
  for (const char* parameter : {"prompt_task", "lora_name"}) {
    EXPECT_FALSE(RunsHere(*llm_, Asking(ForLlm(), parameter, "none")));
    EXPECT_FALSE(pump_.HasTask());
    EXPECT_EQ(got_.back().num_final(), 1);
    EXPECT_FALSE(got_.back().status().ok());
  }
}

TEST_F(FilesOfRequestsTest, ARequestThatIsCancelledMeanwhileReadsNothing) {
  Request request = Asking(ForLlm(), "prompt_task", "table");
  const auto cancel = request.cancel;
  ASSERT_FALSE(RunsHere(*llm_, std::move(request)));
  cancel->Cancel();
  ASSERT_TRUE(pump_.RunOne(0));
  EXPECT_EQ(got_.back().status().code(), StatusCode::kCancelled);
  Request again = Asking({}, "prompt_task", "table");
  EXPECT_TRUE(llm_->HasToRead(again));
}

}  // namespace
}  // namespace inflight::serving
