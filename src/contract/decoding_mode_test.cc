// SPDX-License-Identifier: Apache-2.0
#include "contract/decoding_mode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace inflight::contract {
namespace {

using ::testing::HasSubstr;
using enum DecodingMode;

Status Check(DecodingMode mode, const SamplingParams& sampling) {
  return CheckDecodingMode(mode, sampling,
                           [](std::string_view name) { return "my " + std::string(name); });
}

const SamplingParams kGreedy;
const SamplingParams kTopOne = {.top_k = 1, .top_p = 0.5F};
const SamplingParams kCold = {.temperature = 0.0F, .top_k = 5, .top_p = 0.5F};
const SamplingParams kK = {.top_k = 5};
const SamplingParams kKAndP = {.top_k = 5, .top_p = 0.5F};
const SamplingParams kP = {.top_p = 0.5F};
const SamplingParams kMinP = {.min_p = 0.5F};
const SamplingParams kBeams = {.beam_width = 2};

TEST(DecodingMode, EachServesWhatItsSamplersCan) {
  struct Case {
    DecodingMode mode;
    std::vector<SamplingParams> refused;
    const char* named;
  };
  const std::vector<Case> cases = {
      {kAuto, {}, ""},
      {kTopKTopP, {kBeams}, "my beam_width: decoding_mode top_k_top_p"},
      {kTopK, {kP}, "my runtime_top_p: decoding_mode top_k of the model"},
      {kTopK, {kMinP}, "my min_p: decoding_mode top_k"},
      {kTopK, {kBeams}, "my beam_width"},
      {kTopP, {kK, kKAndP}, "my runtime_top_k: decoding_mode top_p"},
      {kTopP, {kBeams}, "my beam_width"},
      {kBeamSearch, {kK, kKAndP}, "my runtime_top_k: decoding_mode beam_search"},
      {kBeamSearch, {kP}, "my runtime_top_p"},
      {kBeamSearch, {kMinP}, "my min_p"},
  };
  for (const auto& [mode, refused, named] : cases) {
    for (const SamplingParams& sampling : refused) {
      EXPECT_EQ(Check(mode, sampling).code(), StatusCode::kInvalidArgument) << named;
      EXPECT_THAT(Check(mode, sampling).message(), HasSubstr(named));
    }
  }
  const std::vector<std::pair<DecodingMode, std::vector<SamplingParams>>> served = {
      {kAuto, {kK, kKAndP, kP, kMinP, kBeams}},
      {kTopKTopP, {kK, kKAndP, kP, kMinP}},
      {kTopK, {kK, kKAndP}},
      {kTopP, {kP, kMinP}},
      {kBeamSearch, {kBeams}},
  };
  for (const auto& [mode, all] : served) {
    for (const SamplingParams& sampling : all) EXPECT_TRUE(Check(mode, sampling).ok());
    for (const SamplingParams& greedy : {kGreedy, kTopOne, kCold}) {
      EXPECT_TRUE(Check(mode, greedy).ok());
    }
  }
}

TEST(DecodingMode, WithoutBeamsAutoAndBeamSearchAreTopKTopP) {
  const auto resolve = [](DecodingMode asked, int max_beam_width) {
    KeyReport report = {{.key = "decoding_mode", .value = "as written"}};
    const DecodingMode mode = ResolveDecodingMode(asked, max_beam_width, false, &report);
    EXPECT_EQ(report.front().value, "as written");
    return std::pair(mode, report.front().reason);
  };
  const std::string replaced = "top_k_top_p, since max_beam_width is 1";
  EXPECT_EQ(resolve(kAuto, 1), std::pair(kTopKTopP, replaced));
  EXPECT_EQ(resolve(kBeamSearch, 1), std::pair(kTopKTopP, replaced));
  EXPECT_EQ(resolve(kAuto, 2),
            std::pair(kAuto, std::string("beam_search where beam_width is above 1, else "
                                         "top_k_top_p")));
  EXPECT_EQ(resolve(kBeamSearch, 2), std::pair(kBeamSearch, std::string()));
  EXPECT_EQ(resolve(kTopK, 2), std::pair(kTopK, std::string()));
}

TEST(DecodingMode, NamesAreUpstreams) {
  EXPECT_EQ(FindDecodingMode("top_k_top_p"), kTopKTopP);
  EXPECT_EQ(FindDecodingMode("beam_search"), kBeamSearch);
  EXPECT_EQ(FindDecodingMode("medusa"), DecodingMode::kMedusa);
  EXPECT_EQ(FindDecodingMode("eagle"), std::nullopt);
}

TEST(DecodingMode, MedusaIsAutoAndSaysWhereTheModelDiffers) {
  const auto reason = [](DecodingMode asked, bool has_medusa) {
    KeyReport report = {{.key = "decoding_mode", .value = "as written"}};
    const DecodingMode mode = ResolveDecodingMode(asked, 2, has_medusa, &report);
    EXPECT_EQ(mode, asked == DecodingMode::kMedusa ? kAuto : asked);
    return report.front().reason;
  };
  const std::string beams = "beam_search where beam_width is above 1, else top_k_top_p";
  EXPECT_EQ(reason(DecodingMode::kMedusa, true), beams);
  EXPECT_EQ(reason(DecodingMode::kMedusa, false),
            "medusa is replaced by auto, since no Medusa heads propose tokens; " + beams);
  EXPECT_EQ(reason(kTopK, true),
            "the model's Medusa heads propose tokens, which medusa would say; no answer depends on "
            "it");
  EXPECT_EQ(reason(kTopK, false), "");
}

}  // namespace
}  // namespace inflight::contract
