// SPDX-License-Identifier: Apache-2.0
// Every family without experts in every format of fewer bits that GPUs compute.
#include <gtest/gtest.h>

#include "format_case.h"
#include "tensor/test_gpu.h"

namespace inflight::golden {
namespace {

std::vector<FormatCase> CudaFormatsCases() {
  std::vector<FormatCase> cases;
  for (const char* const model :
       {"falcon_head64", "gemma2_head64", "gemma3_head64", "gemma_head64", "gpt2_head64",
        "gpt_neox_head64", "gptj_head64", "granite_head64", "llama_head64", "mistral_head64",
        "olmo2_head64", "opt_head64", "phi3_head64", "qwen2_head64", "qwen3_head128",
        "smollm3_head64", "starcoder2_head64"})
    for (const builder::WeightFormat& format : builder::WeightFormats())
      for (const char* const name :
           {"W8A16", "W4A16", "W8A16_GPTQ", "W4A16_GPTQ", "FP8_PER_CHANNEL_PER_TOKEN"})
        if (format.name == name) cases.push_back({model, format});
  return cases;
}

class CudaFormatsTest : public testing::TestWithParam<FormatCase> {};

TEST_P(CudaFormatsTest, LogitsFollowTransformers) {
  NEED_TEST_GPU();
  ExpectLogitsFollow(GetParam(), *TestGpu().value());
}

INSTANTIATE_TEST_SUITE_P(Models, CudaFormatsTest, testing::ValuesIn(CudaFormatsCases()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace inflight::golden
