// SPDX-License-Identifier: Apache-2.0
// Experts in int4 on a GPU, of every family that has some. Rows are multiples of 128, which those
// of one golden model are; of the others this makes models of that width of the same random codes
// for a GPU and for the CPU, whose kernels share nothing with the GPU's.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "builder/builder.h"
#include "constants.h"
#include "format_case.h"
#include "golden_reference.h"
#include "paged_model.h"
#include "tensor/test_gpu.h"

namespace inflight::golden {
namespace {

using model::QuantAlgo;

constexpr int kInt4Width = 128;
constexpr int kInt4Group = 32;

struct Int4Case {
  const char* model;
  QuantAlgo algo;
  std::string name() const { return std::string(QuantAlgoName(algo)) + "_" + model; }
};

void PrintTo(const Int4Case& of, std::ostream* out) { *out << of.name(); }

std::vector<Int4Case> Int4Cases(const std::vector<const char*>& models) {
  std::vector<Int4Case> cases;
  for (const char* const model : models)
    for (const QuantAlgo algo : {QuantAlgo::kW4A16, QuantAlgo::kW4A16Gptq})
      cases.push_back({model, algo});
  return cases;
}

class CudaInt4ExpertsTest : public testing::TestWithParam<Int4Case> {
 protected:
  void SetUp() override { NEED_TEST_GPU(); }
};

TEST_P(CudaInt4ExpertsTest, LogitsFollowTransformers) {
  const Int4Case& of = GetParam();
  for (const builder::WeightFormat& format : builder::WeightFormats())
    if (format.name == QuantAlgoName(of.algo))
      ExpectLogitsFollow({of.model, format}, *TestGpu().value());
}

INSTANTIATE_TEST_SUITE_P(Golden, CudaInt4ExpertsTest,
                         testing::ValuesIn(Int4Cases({"qwen2_moe_ranks"})),
                         [](const auto& info) { return info.param.name(); });

class CudaWideExpertsTest : public CudaInt4ExpertsTest {
 protected:
  // The family's flags as the golden model has them, in widths of whole slabs of int4.
  static model::ModelConfig Config(const Int4Case& of, DType dtype) {
    const auto described = builder::Describe(DataDir() / of.model);
    EXPECT_TRUE(described.ok()) << described.status().ToString();
    model::ModelConfig config = described.ok() ? described->config : model::ModelConfig{};
    config.dtype = dtype;
    config.quant_algo = of.algo;
    config.group_size = HasGroups(of.algo) ? kInt4Group : 0;
    config.slot_forms.clear();
    config.hidden_size = config.intermediate_size = config.expert_intermediate_size = kInt4Width;
    return config;
  }

  static std::vector<std::vector<float>> Logits(const Int4Case& of, Device& device) {
    const bool is_cpu = device.kind() == DeviceKind::kCpu;
    const auto engine = builder::Random(Config(of, is_cpu ? DType::kF32 : DType::kBF16), {},
                                        /*seed=*/5, device);
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    if (!engine.ok()) return {};
    const model::ModelConfig& config = (*engine)->config;
    EXPECT_EQ(config.quant_algo, of.algo);
    const ops::ShapeClass shape = model::KernelShape(config);
    const ops::OpTable table =
        is_cpu ? ops::CpuOpTables(shape).front() : ops::CudaOpTables(shape, device).front();
    std::vector<TokenId> ids;
    for (int i = 0; i < 40; ++i) ids.push_back((7 * i * i + 3 * i + 1) % config.vocab_size);
    const size_t whole[] = {ids.size()};
    PagedModel model(*engine, table, device, 1, kBlockSize);
    return AllLogits(model, ids, whole);
  }
};

// The CPU rounds activations to int8 and the GPU to bfloat16: 0.01 of each product together, and of
// few tokens another expert, where two were as likely. Logits that have nothing to do with each
// other differ by sqrt(2) of their spread.
TEST_P(CudaWideExpertsTest, LogitsFollowTheCpus) {
  const std::unique_ptr<Device> host = Device::Cpu(2);
  const auto want = Logits(GetParam(), *host);
  const auto got = Logits(GetParam(), *TestGpu().value());
  ASSERT_EQ(got.size(), want.size());
  ASSERT_FALSE(want.empty());
  double error = 0, spread = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    double mean = 0;
    for (const float value : want[i]) mean += value / static_cast<double>(want[i].size());
    for (size_t v = 0; v < want[i].size(); ++v) {
      error += std::pow(double{got[i][v]} - double{want[i][v]}, 2);
      spread += std::pow(double{want[i][v]} - mean, 2);
    }
  }
  ASSERT_GT(spread, 0);
  EXPECT_LE(std::sqrt(error / spread), 0.25);
  testing::Test::RecordProperty("error", std::to_string(std::sqrt(error / spread)));
}

INSTANTIATE_TEST_SUITE_P(Random, CudaWideExpertsTest,
                         testing::ValuesIn(Int4Cases({"granitemoe_head64", "gpt_oss_mxfp4",
                                                      "mixtral_head64", "olmoe_head64",
                                                      "qwen3_moe_renormalized"})),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace inflight::golden
