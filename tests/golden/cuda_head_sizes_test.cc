// SPDX-License-Identifier: Apache-2.0
// Models with heads of 8, 16, 24 and 40, for which attention on GPUs has no kernel of that size.
#include <gtest/gtest.h>

#include "format_case.h"
#include "tensor/test_gpu.h"

namespace inflight::golden {
namespace {

std::vector<FormatCase> CudaHeadSizesCases() {
  std::vector<FormatCase> cases;
  for (const char* const model :
       {"falcon_grouped",  "falcon_one_norm",     "gemma3_rope",       "gemma_old",
        "gpt2_relu",       "gpt2_untied",         "gpt_neox_parallel", "gptj_rotary",
        "granite_factors", "llama_gqa2",          "llama_gqa4",        "llama_gqa8",
        "llama_llama3",    "llama_yarn",          "mistral_window",    "olmo2_wide_norms",
        "opt_tied",        "phi3_longrope_short", "phi3_part",         "qwen2_tied",
        "qwen3_gqa2",      "smollm3_layers",      "starcoder2_window"})
    for (const builder::WeightFormat& format : builder::WeightFormats())
      for (const char* const name : {"bfloat16", "float16"})
        if (format.name == name) cases.push_back({model, format});
  return cases;
}

class CudaHeadSizesTest : public testing::TestWithParam<FormatCase> {};

TEST_P(CudaHeadSizesTest, LogitsFollowTransformers) {
  NEED_TEST_GPU();
  ExpectLogitsFollow(GetParam(), *TestGpu().value());
}

INSTANTIATE_TEST_SUITE_P(Models, CudaHeadSizesTest, testing::ValuesIn(CudaHeadSizesCases()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace inflight::golden
