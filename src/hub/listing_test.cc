// SPDX-License-Identifier: Apache-2.0
#include "hub/listing.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace inflight::hub {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kCommit[] = "0123456789abcdef0123456789abcdef01234567";

HubListing Of(const std::vector<std::string>& paths) {
  HubListing listing{.commit = kCommit, .files = {}};
  for (const std::string& path : paths) listing.files.push_back({.path = path, .digest = {}});
  return listing;
}

std::vector<std::string> Chosen(const std::vector<std::string>& paths,
                                std::string_view quant = {}) {
  const auto chosen = ChooseFiles(Of(paths), quant);
  EXPECT_TRUE(chosen.ok()) << chosen.status().ToString();
  std::vector<std::string> names;
  if (chosen.ok())
    for (const HubFile& file : *chosen) names.push_back(file.path);
  return names;
}

std::string Refusal(const std::vector<std::string>& paths, std::string_view quant = {}) {
  const auto chosen = ChooseFiles(Of(paths), quant);
  return chosen.ok() ? "" : chosen.status().message();
}

TEST(HubListingTest, SafetensorsComeWithWhatTheyNeedAndNothingElse) {
  EXPECT_THAT(Chosen({".gitattributes", "LICENSE", "README.md", "config.json", "model.safetensors",
                      "onnx/model.onnx", "original/params.json", "pytorch_model.bin",
                      "tokenizer.json", "tokenizer.model", "a.gguf"}),
              ElementsAre("LICENSE", "config.json", "model.safetensors", "tokenizer.json",
                          "tokenizer.model"));
  EXPECT_THAT(Chosen({"config.json", "model.safetensors", "original/consolidated.00.pth",
                      "original/tokenizer.model"}),
              ElementsAre("config.json", "model.safetensors", "original/tokenizer.model"));
  EXPECT_THAT(Chosen({"assets/qwen.tiktoken", "model.safetensors", "original/tokenizer.model",
                      "qwen.tiktoken"}),
              ElementsAre("model.safetensors", "qwen.tiktoken"));
  EXPECT_THAT(Chosen({"config.json", "pytorch_model.bin", "training_args.bin"}),
              ElementsAre("config.json", "pytorch_model.bin"));
  EXPECT_THAT(
      Chosen({"config.json", "consolidated.safetensors", "consolidated.safetensors.index.json",
              "model-00001-of-00001.safetensors", "model.safetensors.index.json"}),
      ElementsAre("config.json", "model-00001-of-00001.safetensors",
                  "model.safetensors.index.json"));
}

TEST(HubListingTest, AQuantisationIsOneFile) {
  const std::vector<std::string> files = {"M-Q4_K_M.gguf", "M-Q4_K_S.gguf", "M-Q8_0.gguf",
                                          "mmproj-Q8_0.gguf"};
  EXPECT_THAT(Chosen(files, "q8_0"), ElementsAre("M-Q8_0.gguf"));
  EXPECT_THAT(Chosen(files), ElementsAre("M-Q4_K_M.gguf"));
  EXPECT_THAT(Chosen(files, "M-Q4_K_S.gguf"), ElementsAre("M-Q4_K_S.gguf"));
  EXPECT_THAT(Chosen({"only-F16.gguf"}), ElementsAre("only-F16.gguf"));
  EXPECT_THAT(Refusal(files, "Q4_K"), HasSubstr("no GGUF file is 'Q4_K'"));
  EXPECT_THAT(Refusal(files, "Q5_K_M"), HasSubstr("M-Q4_K_M.gguf, M-Q4_K_S.gguf, M-Q8_0.gguf"));
  EXPECT_THAT(Refusal({"README.md"}), HasSubstr("there are none"));
  EXPECT_THAT(Refusal({"M-Q8_0-00001-of-00002.gguf", "M-Q8_0-00002-of-00002.gguf"}, "Q8_0"),
              HasSubstr("one part of several"));
}

TEST(HubListingTest, WhatTheHubSaysIsChecked) {
  const auto parse = [](const char* siblings, const char* sha = kCommit) {
    return ParseListing(std::string(R"({"sha": ")") + sha + R"(", "siblings": )" + siblings + "}");
  };
  const auto listing = parse(
      R"([{"rfilename": "b", "size": 3, "blobId": "89abcdef0123456789abcdef0123456789abcdef"},
          {"rfilename": "a", "size": 5, "blobId": "x", "lfs": {"sha256": "no"}}])");
  ASSERT_TRUE(listing.ok());
  EXPECT_EQ(listing->files[0].path, "a");
  EXPECT_EQ(listing->files[0].digest, "");
  EXPECT_EQ(listing->files[1].size, 3U);
  for (const char* path : {"../a", "/a", "a/../b", "a//b", ""})
    EXPECT_FALSE(parse((std::string(R"([{"rfilename": ")") + path + R"("}])").c_str()).ok())
        << path;
  EXPECT_FALSE(parse("[]", "main").ok());
  EXPECT_FALSE(parse("{}").ok());
  EXPECT_FALSE(parse(R"([{"rfilename": "a"}, {"rfilename": "a"}])").ok());
  EXPECT_FALSE(ParseListing("[").ok());
}

}  // namespace
}  // namespace inflight::hub
