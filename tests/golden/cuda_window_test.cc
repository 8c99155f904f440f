// SPDX-License-Identifier: Apache-2.0
// Sliding windows with sinks on a GPU in bfloat16 and float16 against full attention with a mask
// (make_window_golden.py): logits within what rounding may change.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "constants.h"
#include "golden_reference.h"
#include "paged_model.h"
#include "tensor/test_gpu.h"
#include "window_cases.h"
#include "worse.h"

namespace inflight::golden {
namespace {

// The logits of the case's positions, its tokens fed in pieces of the sizes in `chunks`, repeated.
std::vector<std::vector<float>> LogitsOf(PagedModel& model, const WindowCase& c,
                                         std::span<const size_t> chunks) {
  std::vector<TokenId> ids = c.prompt;
  ids.insert(ids.end(), c.greedy.begin(), c.greedy.end() - 1);
  const std::vector<std::vector<float>> all = AllLogits(model, ids, chunks);
  std::vector<std::vector<float>> logits;
  for (const int position : c.positions) logits.push_back(all[static_cast<size_t>(position)]);
  return logits;
}

class CudaWindowTest : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override { NEED_TEST_GPU(); }
};

TEST_P(CudaWindowTest, LogitsStayNearMaskedFullAttention) {
  Device& device = *TestGpu().value();
  int num_cases = 0;
  for (const WindowCase& c : ReadWindowCases()) {
    // Without a bound of rounding.
    if (c.noise_gain == 0 && GetParam() != DType::kF32) continue;
    ++num_cases;
    const auto engine =
        builder::Open(DataDir() / c.model, device, {.dtype = GetParam(), .limits = std::nullopt});
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    const auto tables = ops::CudaOpTables(model::KernelShape((*engine)->config), device);
    ASSERT_FALSE(tables.empty());
    const float bound = RoundingBound(GetParam(), {.noise_gain = c.noise_gain});
    const size_t whole[] = {c.prompt.size() + c.greedy.size()};
    const size_t chunks[] = {1, 7, 64, 3, 16, 1, 1};
    const size_t prompt_then_steps[] = {c.prompt.size(), 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    for (const std::span<const size_t> sizes :
         {std::span<const size_t>(whole), std::span<const size_t>(chunks),
          std::span<const size_t>(prompt_then_steps)}) {
      PagedModel model(*engine, tables.front(), device, 1, kBlockSize,
                       {c.options.attention_windows, c.options.sink_tokens});
      const auto logits = LogitsOf(model, c, sizes);
      float worst = 0;
      for (size_t i = 0; i < logits.size(); ++i)
        for (size_t v = 0; v < logits[i].size(); ++v) {
          const float error = std::abs(logits[i][v] - c.logits[i][v]);
          worst = Worse(worst, error);
        }
      EXPECT_LE(worst, bound) << c.Name() << ", " << sizes.size() << " sizes of pieces";
    }
  }
  EXPECT_GE(num_cases, 4);
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaWindowTest,
                         testing::Values(DType::kBF16, DType::kF16, DType::kF32),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

}  // namespace
}  // namespace inflight::golden
