// SPDX-License-Identifier: Apache-2.0
// FP8 weights and FP8 KV caches of whole models on a GPU, beside what transformers said of models
// rounded alike (make_fp8_golden.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "constants.h"
#include "golden_reference.h"
#include "paged_model.h"
#include "tensor/element.h"
#include "tensor/test_gpu.h"

namespace inflight::golden {
namespace {

// make_fp8_golden.py measured how far rounding to 16 bits moves the logits; a GPU also rounds what
// joins the residual, rotated heads and weights of softmax.
constexpr double kMargin = 1.5;

struct Case {
  const char* model;
  DType dtype;
  const char* form;
  // Rounding to FP8 hides what was rounded before it. Of one layer, in float16, the logits still
  // tell whether anything was rounded to FP8 at all.
  bool is_sharp;

  std::string key() const { return std::string(DTypeName(dtype)) + "." + form; }
  bool has(std::string_view part) const {
    return std::string_view(form).find(part) != std::string_view::npos;
  }
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.model << " " << c.key(); }

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const bool is_f16 = dtype == DType::kF16;
    for (const char* model : {"llama_head64", "gpt2_head64"})
      for (const char* form : {"kv", "fp8", "fp8_kv"})
        cases.push_back({model, dtype, form, is_f16});
    for (const char* form : {"fp8_kv", "fp8_head_kv"})
      cases.push_back({"llama_head80", dtype, form, false});
    cases.push_back({"mixtral_head64", dtype, "fp8", false});
    for (const char* model : {"olmo2_head64", "gptj_head64"})
      cases.push_back({model, dtype, "fp8_kv", false});
  }
  return cases;
}

class CudaFp8Test : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    NEED_TEST_GPU();
    device_ = TestGpu().value().get();
    const Case& c = GetParam();
    auto set = artifact::TensorSet::OpenFile(std::filesystem::path(INFLIGHT_FP8_GOLDEN_DATA) /
                                             (std::string(c.model) + ".safetensors"));
    ASSERT_TRUE(set.ok()) << set.status().ToString();
    const std::vector<Expected> reference = ReadReference(DataDir() / c.model);
    for (int p = 0; set->Find("positions_" + std::to_string(p)) != nullptr; ++p) {
      const std::string suffix = "_" + std::to_string(p);
      const artifact::StoredTensor* logits = set->Find(c.key() + ".logits" + suffix);
      ASSERT_NE(logits, nullptr) << c.key();
      Text text = {.ids = reference[static_cast<size_t>(p)].Whole(),
                   .prompt_len = reference[static_cast<size_t>(p)].prompt.size(),
                   .positions = ValuesOf<int64_t>(*set, "positions" + suffix),
                   .change = ValuesOf<float>(*set, c.key() + ".change" + suffix).at(0),
                   .fp8_change = ValuesOf<float>(*set, c.key() + ".fp8_change" + suffix).at(0)};
      for (int64_t i = 0; i < logits->shape.num_elements(); ++i)
        text.logits.push_back(LoadFloat(logits->data.data(), logits->dtype, i));
      texts_.push_back(std::move(text));
    }
    ASSERT_FALSE(texts_.empty());
    auto engine =
        builder::Open(DataDir() / c.model, *device_,
                      {.dtype = c.dtype,
                       .quant_algo = c.has("fp8") ? model::QuantAlgo::kFp8PerChannelPerToken
                                                  : model::QuantAlgo::kNone,
                       .fp8_kv_cache = c.has("kv"),
                       .quantize_lm_head = c.has("head"),
                       .limits = std::nullopt});
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = *std::move(engine);
    table_ = ops::CudaOpTables(model::KernelShape(engine_->config), *device_).at(0);
  }

  // Logits of every position of `ids`, fed in pieces of the sizes in `chunks`, repeated.
  std::vector<std::vector<float>> AllLogits(std::span<const TokenId> ids,
                                            std::span<const size_t> chunks) {
    PagedModel model(engine_, table_, *device_, 1, kBlockSize);
    return golden::AllLogits(model, ids, chunks);
  }

  struct Text {
    std::vector<TokenId> ids;
    size_t prompt_len = 0;
    std::vector<int64_t> positions;  // [n]
    std::vector<float> logits;       // [n, vocab_size]
    double change = 0;               // rms, by noise as a GPU's rounding is
    double fp8_change = 0;           // rms, by FP8
  };

  Device* device_ = nullptr;
  std::vector<Text> texts_;
  std::shared_ptr<const model::Engine> engine_;
  ops::OpTable table_;
};

TEST_P(CudaFp8Test, LogitsAreThoseOfTheRoundedModel) {
  for (const Text& text : texts_) {
    const size_t whole[] = {text.ids.size()};
    const size_t chunks[] = {1, 7, 64, 3, 16, 130};
    const size_t tokens[] = {text.prompt_len, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    for (const std::span<const size_t> pieces :
         {std::span<const size_t>(whole), std::span<const size_t>(chunks),
          std::span<const size_t>(tokens)}) {
      const auto logits = AllLogits(text.ids, pieces);
      const size_t vocab = logits.front().size();
      double squares = 0;
      for (size_t i = 0; i < text.logits.size(); ++i) {
        const auto position = static_cast<size_t>(text.positions[i / vocab]);
        squares += std::pow(logits[position][i % vocab] - text.logits[i], 2);
      }
      const double error = std::sqrt(squares / static_cast<double>(text.logits.size()));
      EXPECT_LE(error, kMargin * text.change)
          << text.ids.size() << " tokens in pieces of " << pieces[0]
          << "; FP8 itself moves them by " << text.fp8_change;
      std::printf("error %.5f, rounding %.5f, FP8 %.5f\n", error, text.change, text.fp8_change);
    }
    if (GetParam().is_sharp) {
      EXPECT_GT(text.fp8_change, kMargin * text.change);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, CudaFp8Test, testing::ValuesIn(Cases()), [](const auto& info) {
  return std::string(info.param.model) + "_" + std::string(DTypeName(info.param.dtype)) + "_" +
         info.param.form;
});

}  // namespace
}  // namespace inflight::golden
