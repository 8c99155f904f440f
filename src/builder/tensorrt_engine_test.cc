// SPDX-License-Identifier: Apache-2.0
// The configurations are those that trtllm-build and build.py of these releases write, but for what
// is not read.
#include "builder/tensorrt_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "builder/builder.h"

namespace inflight::builder {
namespace {

class TensorRtEngineTest : public testing::Test {
 protected:
  TensorRtEngineTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = std::filesystem::path(testing::TempDir()) /
           ("tensorrt_engine_" + std::to_string(getpid()) + info->name());
    std::filesystem::create_directories(dir_);
  }
  ~TensorRtEngineTest() override { std::filesystem::remove_all(dir_); }

  void Write(const std::string& name, const std::string& content) {
    ASSERT_TRUE(WriteFile(dir_ / name, content).ok());
  }

  std::filesystem::path dir_;
};

constexpr char kConfig[] = R"({"version": "0.10.0",
  "pretrained_config": {"architecture": "LlamaForCausalLM", "dtype": "float16",
                        "mapping": {"world_size": 4, "tp_size": 4}},
  "build_config": {"max_batch_size": 64, "max_input_len": 1024, "max_output_len": 512,
                   "max_beam_width": 2, "plugin_config": {}}})";

TEST_F(TensorRtEngineTest, IsNamedWithItsReleaseAndRanks) {
  Write("config.json", kConfig);
  Write("rank0.engine", "ftrt and compiled code");
  const auto engine = FindTensorRtEngine(dir_);
  ASSERT_TRUE(engine);
  EXPECT_EQ(engine->Name(), "engine of TensorRT-LLM 0.10.0, LlamaForCausalLM float16, 4 ranks");
}

TEST_F(TensorRtEngineTest, ItsLimitsAreInTheCommandThatRebuildsIt) {
  Write("config.json", kConfig);
  Write("rank0.engine", "ftrt and compiled code");
  EXPECT_EQ(FindTensorRtEngine(dir_)->RebuildCommand(),
            "inflight build --checkpoint-dir CHECKPOINT --output-dir ENGINE --max-batch-size 64 "
            "--max-input-len 1024 --max-seq-len 1536 --max-beam-width 2");
}

TEST_F(TensorRtEngineTest, ReleasesBefore08HadOtherFiles) {
  Write("config.json", R"({"builder_config": {"name": "gpt", "precision": "float16",
    "tensor_parallel": 2, "max_batch_size": 8, "max_input_len": 200, "max_output_len": 100},
    "plugin_config": {}})");
  Write("gpt_float16_tp2_rank0.engine", "ftrt and compiled code");
  const auto engine = FindTensorRtEngine(dir_);
  ASSERT_TRUE(engine);
  EXPECT_EQ(engine->Name(), "engine of TensorRT-LLM before 0.8, gpt float16, 2 ranks");
  EXPECT_EQ(engine->max_seq_len, 300);
}

TEST_F(TensorRtEngineTest, OpeningItSaysWhatItIsAndWhatToDo) {
  Write("config.json", kConfig);
  Write("rank0.engine", "ftrt and compiled code");
  const auto described = Describe(dir_);
  EXPECT_EQ(described.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(described.status().message(),
              testing::AllOf(testing::HasSubstr("engine of TensorRT-LLM 0.10.0"),
                             testing::HasSubstr("--max-seq-len 1536")));
}

TEST_F(TensorRtEngineTest, OurOwnAndOtherFilesAreNone) {
  EXPECT_FALSE(FindTensorRtEngine(dir_));
  Write("config.json", kConfig);
  EXPECT_FALSE(FindTensorRtEngine(dir_));
  Write("rank0.engine", "inflight-engine\n and more");
  EXPECT_FALSE(FindTensorRtEngine(dir_));
  Write("rank0.engine", "a damaged one of another release");
  Write("config.json", R"({"format": 1, "version": "0.0.9", "pretrained_config": {}})");
  EXPECT_FALSE(FindTensorRtEngine(dir_));
  Write("rank0.engine", "ftrt");
  Write("config.json", "{}");
  EXPECT_FALSE(FindTensorRtEngine(dir_));
  Write("config.json", "{");
  EXPECT_FALSE(FindTensorRtEngine(dir_));
}

}  // namespace
}  // namespace inflight::builder
