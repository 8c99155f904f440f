// SPDX-License-Identifier: Apache-2.0
// Every family in every format that the CPU computes (builder/weight_formats.h) but float32, whose
// logits golden_test.cc holds to transformers to the last digits. Formats round weights, so logits
// follow transformers' only as far as that lets them; a weight in another's place does not follow.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/check.h"
#include "builder/hf_config.h"
#include "format_case.h"
#include "golden_reference.h"
#include "model/families/families.h"

namespace inflight::golden {
namespace {

using builder::FormatField;
using builder::WeightFormat;
using model::QuantAlgo;

// Of each family the first golden model, by name, whose linears have whole groups.
std::map<std::string, std::string> ModelOfFamily() {
  std::map<std::string, std::string> models;
  for (const std::string& name : ModelNames()) {
    auto read = builder::ReadHfConfig(DataDir() / name);
    CHECK(read.ok());
    model::ModelConfig& config = read->config;
    config.quant_algo = QuantAlgo::kW4A16Gptq;
    config.group_size = kFormatGroupSize;
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

class FormatGoldenTest : public testing::TestWithParam<FormatCase> {};

TEST_P(FormatGoldenTest, LogitsFollowTransformers) {
  ExpectLogitsFollow(GetParam(), *Device::Cpu(2));
}

INSTANTIATE_TEST_SUITE_P(Models, FormatGoldenTest, testing::ValuesIn(FormatCases()),
                         [](const auto& info) { return info.param.name(); });
// INFLIGHT_GOLDEN_MODELS may name models without such.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FormatGoldenTest);

}  // namespace
}  // namespace inflight::golden
