// SPDX-License-Identifier: Apache-2.0
#include "builder/weight_formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "builder/hf_config.h"
#include "model/families/families.h"

namespace inflight::builder {
namespace {

using testing::HasSubstr;

std::string RefusalOf(std::string_view architecture, std::string_view name, DeviceKind device) {
  for (const WeightFormat& format : WeightFormats())
    if (format.name == name)
      return CheckFormat(**model::FamilyOf(architecture), format, device).message();
  ADD_FAILURE() << name;
  return {};
}

TEST(WeightFormats, EveryFamilyHasBFloat16OnEveryBackend) {
  for (const model::Family& family : model::Families())
    for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda})
      EXPECT_EQ(RefusalOf(family.architecture, "bfloat16", device), "") << family.architecture;
}

TEST(WeightFormats, WhatIsNotSupportedIsRefusedForItsOwnReason) {
  // A refusal that is not the backend's or the format's would be one of the sizes in use here.
  for (const model::Family& family : model::Families())
    for (const WeightFormat& format : WeightFormats())
      for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda}) {
        const Status status = CheckFormat(family, format, device);
        EXPECT_TRUE(status.ok() || status.code() == StatusCode::kUnimplemented)
            << family.architecture << ", " << format.name << ": " << status.ToString();
      }
}

TEST(WeightFormats, RefusalsAreThoseOfLoading) {
  constexpr DeviceKind kCpu = DeviceKind::kCpu;
  constexpr DeviceKind kCuda = DeviceKind::kCuda;
  EXPECT_EQ(RefusalOf("MixtralForCausalLM", "W8A16", kCpu), "");
  EXPECT_EQ(RefusalOf("MixtralForCausalLM", "W8A16", kCuda), "");
  EXPECT_EQ(RefusalOf("LlamaForCausalLM", "W4A16_GPTQ", kCuda), "");
  EXPECT_THAT(RefusalOf("LlamaForCausalLM", "FP8_PER_CHANNEL_PER_TOKEN", kCpu),
              HasSubstr("quant_algo: got FP8_PER_CHANNEL_PER_TOKEN for target cpu"));
  EXPECT_EQ(RefusalOf("LlamaForCausalLM", "awq", kCuda), "");
  EXPECT_EQ(RefusalOf("GPT2LMHeadModel", "awq", kCpu),
            "quantised weights of GPT2LMHeadModel are not supported");
  EXPECT_EQ(RefusalOf("GptOssForCausalLM", "mxfp4", kCuda), "");
  EXPECT_THAT(RefusalOf("MixtralForCausalLM", "mxfp4", kCpu),
              HasSubstr("mxfp4 is of experts that one tensor holds"));
  EXPECT_EQ(RefusalOf("MixtralForCausalLM", "GGUF", kCpu), "");
  EXPECT_EQ(RefusalOf("MixtralForCausalLM", "GGUF", kCuda), "");
  EXPECT_THAT(RefusalOf("OPTForCausalLM", "GGUF", kCpu),
              HasSubstr("general.architecture: got \"opt\", "));
}

// Of a directory, by the same words.
TEST(WeightFormats, ADirectoryIsRefusedByTheNameOfItsMethod) {
  const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                 {"hidden_size", 16},
                                 {"intermediate_size", 32},
                                 {"num_hidden_layers", 1},
                                 {"num_attention_heads", 2},
                                 {"vocab_size", 10},
                                 {"quantization_config", {{"quant_method", "mxfp4"}}}};
  EXPECT_EQ(ParseHfConfig(config, "config.json").status().message(),
            "config.json: quantization_config: MXFP4, blocks of 32, of experts: " +
                RefusalOf("LlamaForCausalLM", "mxfp4", DeviceKind::kCpu));
}

}  // namespace
}  // namespace inflight::builder
