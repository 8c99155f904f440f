// SPDX-License-Identifier: Apache-2.0
// Every family in every format that the CPU computes (builder/weight_formats.h) but float32, whose
// logits golden_test.cc holds to transformers to the last digits. Formats round weights, so logits
// follow transformers' only as far as that lets them; a weight in another's place does not follow.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <string>

#include "base/check.h"
#include "builder/builder.h"
#include "builder/hf_config.h"
#include "builder/weight_formats.h"
#include "constants.h"
#include "golden_reference.h"
#include "model/families/families.h"
#include "paged_model.h"

namespace inflight::golden {
namespace {

using builder::FormatField;
using builder::WeightFormat;
using model::QuantAlgo;

constexpr int kGroupSize = 16;  // columns, which divide those of many tiny models

struct FormatCase {
  std::string model;
  WeightFormat format;
  std::string name() const { return std::string(format.name) + "_" + model; }
};

// Of each family the first golden model, by name, whose linears have whole groups.
std::map<std::string, std::string> ModelOfFamily() {
  std::map<std::string, std::string> models;
  for (const std::string& name : ModelNames()) {
    auto read = builder::ReadHfConfig(DataDir() / name);
    CHECK(read.ok());
    model::ModelConfig& config = read->config;
    config.quant_algo = QuantAlgo::kW4A16Gptq;
    config.group_size = kGroupSize;
    if (model::Validate(config).ok()) models.emplace(config.architecture, name);
  }
  return models;
}

std::vector<FormatCase> FormatCases() {
  std::vector<FormatCase> cases;
  for (const auto& [architecture, name] : ModelOfFamily())
    for (const WeightFormat& format : builder::WeightFormats()) {
      if (format.field != FormatField::kDType && format.field != FormatField::kQuantAlgo) continue;
      if (format.dtype == DType::kF32) continue;
      const model::Family& family = **model::FamilyOf(architecture);
      if (builder::CheckFormat(family, format, DeviceKind::kCpu).ok())
        cases.push_back({name, format});
    }
  return cases;
}

// How far logits may lie from transformers', in parts of how far those lie from their mean: between
// what rounding adds up to, and sqrt(2) of logits that have nothing to do with them. A rounded
// weight is off by u of its row's spread, and so is what each of 4 linears of 1 to 6 layers adds. u
// is 2^-9 of bfloat16; of codes in steps of s it is s / sqrt(12), with s = max / 2^(bits - 1) and
// rows whose largest weight is about 3 spreads 0.007 of int8 and 0.11 of int4.
double BoundOf(const WeightFormat& format) {
  switch (format.algo) {
    case QuantAlgo::kW4A16:
    case QuantAlgo::kW4A16Gptq:
      return 0.7;
    default:
      return 0.1;
  }
}

double RelativeError(const Expected& expected, const std::vector<std::vector<float>>& logits) {
  const size_t vocab = logits.front().size();
  double error = 0, spread = 0;
  for (size_t i = 0; i < expected.positions.size(); ++i) {
    const std::span<const float> want(expected.logits.data() + i * vocab, vocab);
    const std::vector<float>& got = logits[static_cast<size_t>(expected.positions[i])];
    double mean = 0;
    for (const float value : want) mean += value / static_cast<double>(vocab);
    for (size_t v = 0; v < vocab; ++v) {
      error += std::pow(double{got[v]} - double{want[v]}, 2);
      spread += std::pow(double{want[v]} - mean, 2);
    }
  }
  return std::sqrt(error / spread);
}

class FormatGoldenTest : public testing::TestWithParam<FormatCase> {};

TEST_P(FormatGoldenTest, LogitsFollowTransformers) {
  const auto& [name, format] = GetParam();
  const std::unique_ptr<Device> device = Device::Cpu(2);
  builder::OpenOptions options{
      .dtype = format.field == FormatField::kDType ? format.dtype : DType::kF32,
      .quant_algo = format.algo};
  if (HasGroups(format.algo)) options.group_size = kGroupSize;
  const auto engine = builder::Open(DataDir() / name, *device, options);
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  EXPECT_EQ((*engine)->config.quant_algo, format.algo);
  const ops::OpTable table = ops::CpuOpTables(model::KernelShape((*engine)->config)).front();
  const Expected expected = ReadReference(DataDir() / name).at(1);
  const std::vector<TokenId> ids = expected.Whole();
  const size_t whole[] = {ids.size()};
  PagedModel model(*engine, table, *device, 1, kBlockSize);
  const double error = RelativeError(expected, AllLogits(model, ids, whole));
  EXPECT_LE(error, BoundOf(format));
  RecordProperty("error", std::to_string(error));
}

INSTANTIATE_TEST_SUITE_P(Models, FormatGoldenTest, testing::ValuesIn(FormatCases()),
                         [](const auto& info) { return info.param.name(); });
// INFLIGHT_GOLDEN_MODELS may name models without such.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FormatGoldenTest);

}  // namespace
}  // namespace inflight::golden
