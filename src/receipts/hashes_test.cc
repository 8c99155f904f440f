// SPDX-License-Identifier: Apache-2.0
// Hashes: SHA-256 of FIPS 180-4's example, and of bytes that Python's hashlib was given.
#include "receipts/hashes.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace inflight::receipts {
namespace {

namespace fs = std::filesystem;

class HashesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(::testing::TempDir()) /
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  void Write(const std::string& name, const std::string& content) {
    std::ofstream(dir_ / name, std::ios::binary) << content;
  }

  fs::path dir_;
};

TEST_F(HashesTest, OfTextIdsAndNumbers) {
  EXPECT_EQ(HashOfText("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  // hashlib.sha256(struct.pack("<3i", 1, 2, -1))
  const std::vector<TokenId> ids = {1, 2, -1};
  EXPECT_EQ(HashOfIds(ids), "0a1ce634879f6a487527c9a185b1a4a3de7f41238ad4139e3c6d9e0da723628c");
  // hashlib.sha256(struct.pack("<2f", -0.5, -1.25))
  const std::vector<float> numbers = {-0.5F, -1.25F};
  EXPECT_EQ(HashOfNumbers(numbers),
            "34bea0d1df1de51219c2d3a6c5925e8cfce2340be76f296c48349ef17087b6f4");
}

TEST_F(HashesTest, OfAnAdapter) {
  LoraTensors adapter{.rows = {{.module = 1, .layer = 0, .rank = 8}},
                      .dtype = LoraDType::kFloat32,
                      .width = 3,
                      .weights = std::vector<std::byte>(3),
                      .biases = {{.module = 2, .layer = 1, .replaces = true, .values = {0.5F}}}};
  std::memcpy(adapter.weights.data(), "abc", 3);
  // struct.pack("<QQQ", 2, 3, 1) + pack("<3i", 1, 0, 8) + pack("<Q", 3) + b"abc" +
  // pack("<3i", 2, 1, 1) + pack("<Q", 1) + pack("<f", 0.5)
  EXPECT_EQ(HashOfAdapter(adapter),
            "65337d2d97dce7e2e14ecd32cd2b6da0554536088e434c45b9b467f06e464812");
  adapter.rows.front().layer = 1;
  EXPECT_NE(HashOfAdapter(adapter),
            "65337d2d97dce7e2e14ecd32cd2b6da0554536088e434c45b9b467f06e464812");
}

TEST_F(HashesTest, OfAModelByNamesSizesAndBytes) {
  Write("model.safetensors", "weights");
  Write("config.json", "{}");
  Write("empty.bin", "");
  Write("tokenizer.json", "changes no number");
  Write("README.md", "neither");
  constexpr char kHash[] = "e048af22a185b63c9acea8caa748f7ec10be0855d008af9bd86c5249ff88d178";
  EXPECT_EQ(*HashOfModel(dir_), kHash);
  Write("generation_config.json", "{}");
  EXPECT_EQ(*HashOfModel(dir_), kHash);
  Write("model.safetensors", "weightz");
  EXPECT_NE(*HashOfModel(dir_), kHash);
}

// As of a cache of Hugging Face, in whatever order the system lists them.
TEST_F(HashesTest, LinksToNothingAreNoFiles) {
  Write("model.safetensors", "weights");
  const std::string hash = *HashOfModel(dir_);
  fs::remove(dir_ / "model.safetensors");
  for (int i = 0; i < 40; ++i) {
    if (i == 20) Write("model.safetensors", "weights");
    fs::create_symlink(dir_ / "none", dir_ / ("deleted" + std::to_string(i) + ".bin"));
  }
  const auto found = HashOfModel(dir_);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(*found, hash);
}

// The loader takes the names of an index as they are.
TEST_F(HashesTest, OfShardsByTheirIndex) {
  Write("model.safetensors.index.json",
        R"({"weight_map": {"a": "one.weights", "b": "one.weights", "c": "../none"}})");
  Write("one.weights", "weights");
  Write("other.weights", "nobody's");
  const std::string hash = *HashOfModel(dir_);
  Write("other.weights", "changed");
  EXPECT_EQ(*HashOfModel(dir_), hash);
  Write("one.weights", "weightz");
  EXPECT_NE(*HashOfModel(dir_), hash);
}

TEST_F(HashesTest, OfAFileOfSeveralPieces) {
  std::array<char, 256> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i);
  std::string content;
  while (content.size() < size_t{33} << 20) content.append(bytes.data(), bytes.size());
  Write("model.bin", content);
  constexpr char kHash[] = "65300717c010cd35379b6fdf769de95daa2215c894ed4067a986990d006e9112";
  EXPECT_EQ(*HashOfModel(dir_), kHash);
  EXPECT_EQ(*HashOfModel(dir_ / "model.bin"), kHash);
  content[content.size() / 2 + 12345] ^= 1;  // one bit
  Write("model.bin", content);
  EXPECT_NE(*HashOfModel(dir_), kHash);
}

TEST_F(HashesTest, SayWhatCannotBeHashed) {
  EXPECT_EQ(HashOfModel(dir_).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(HashOfModel(dir_ / "none").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace inflight::receipts
