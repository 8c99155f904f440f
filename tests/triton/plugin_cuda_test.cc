// SPDX-License-Identifier: Apache-2.0
// The plug-in on a GPU, with requests whose tensors lie there.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <cstdlib>

#include "plugin_fixture.h"

namespace fake_triton {
namespace {

using testing::SizeIs;

void* Allocate(size_t num_bytes) {
  void* memory = nullptr;  // freed with the process
  EXPECT_EQ(cudaMalloc(&memory, num_bytes), cudaSuccess);
  return memory;
}

void CopyToHost(void* host, const void* device, size_t num_bytes) {
  EXPECT_EQ(cudaMemcpy(host, device, num_bytes, cudaMemcpyDeviceToHost), cudaSuccess);
}

constexpr FakeDevice kGpu = {.allocate = Allocate, .copy_to_host = CopyToHost};

class PluginCudaTest : public PluginTest {
 protected:
  PluginCudaTest() : PluginTest("cuda", "bfloat16") {}

  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
      ASSERT_EQ(std::getenv("INFLIGHT_TEST_GPU"), nullptr);
      GTEST_SKIP()
          << "shows a GPU, which CI's machines do not have; run it on one with INFLIGHT_TEST_GPU=1";
    }
    PluginTest::SetUp();
  }
  void TearDown() override {
    if (!IsSkipped()) PluginTest::TearDown();
  }
};

TEST_F(PluginCudaTest, TensorsMayLieOnTheGpu) {
  ASSERT_NO_FATAL_FAILURE(Load());
  const auto on_host = Ask(kNumTokens, /*streaming=*/false);
  const auto on_gpu = Ask(kNumTokens, /*streaming=*/false);
  for (TRITONBACKEND_Input& input : on_gpu->inputs) {
    const std::string& bytes = input.buffers.at(0);
    void* const memory = Allocate(bytes.size());
    ASSERT_EQ(cudaMemcpy(memory, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), cudaSuccess);
    input.on_device = memory;
    input.place = TRITONSERVER_MEMORY_GPU;
  }
  on_gpu->output_place = TRITONSERVER_MEMORY_GPU;
  on_gpu->output_device = &kGpu;
  Execute(on_host.get());
  const auto expected = on_host->WaitUntilReleased();
  Execute(on_gpu.get());
  const auto sent = on_gpu->WaitUntilReleased();
  ASSERT_THAT(sent, SizeIs(1));
  ASSERT_FALSE(sent[0].error) << sent[0].error->message;
  EXPECT_THAT(sent[0].outputs.at("output_ids"), SizeIs(5 + kNumTokens));
  EXPECT_EQ(sent[0].outputs, expected.at(0).outputs);
  Unload();
}

TEST_F(PluginCudaTest, StreamsAndCancels) {
  ASSERT_NO_FATAL_FAILURE(Load());
  const auto streamed = Ask(kNumTokens, /*streaming=*/true);
  Execute(streamed.get());
  EXPECT_GE(streamed->WaitUntilReleased().size(), size_t{kNumTokens});
  const auto left = Ask(/*num_tokens=*/900, /*streaming=*/true);
  Execute(left.get());
  left->WaitForResponses(2);
  left->is_cancelled = true;
  const auto sent = left->WaitUntilReleased();
  ASSERT_TRUE(sent.back().error);
  EXPECT_EQ(sent.back().error->code, TRITONSERVER_ERROR_CANCELLED);
  Unload();
}

}  // namespace
}  // namespace fake_triton
