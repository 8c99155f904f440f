// SPDX-License-Identifier: Apache-2.0
// Every family with experts in int8 and FP8 on a GPU. Rows of int4 are longer than those of most of
// these models (cuda_int4_experts_test.cc).
#include <gtest/gtest.h>

#include "format_case.h"
#include "tensor/test_gpu.h"

namespace inflight::golden {
namespace {

std::vector<FormatCase> CudaExpertFormatsCases() {
  std::vector<FormatCase> cases;
  for (const char* const model : {"granitemoe_head64", "gpt_oss_mxfp4", "mixtral_head64",
                                  "olmoe_head64", "qwen2_moe_ranks", "qwen3_moe_renormalized"})
    for (const builder::WeightFormat& format : builder::WeightFormats())
      for (const char* const name : {"W8A16", "W8A16_GPTQ", "FP8_PER_CHANNEL_PER_TOKEN"})
        if (format.name == name) cases.push_back({model, format});
  return cases;
}

class CudaExpertFormatsTest : public testing::TestWithParam<FormatCase> {};

TEST_P(CudaExpertFormatsTest, LogitsFollowTransformers) {
  NEED_TEST_GPU();
  ExpectLogitsFollow(GetParam(), *TestGpu().value());
}

INSTANTIATE_TEST_SUITE_P(Models, CudaExpertFormatsTest, testing::ValuesIn(CudaExpertFormatsCases()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace inflight::golden
