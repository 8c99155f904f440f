// SPDX-License-Identifier: Apache-2.0
#include "artifact/fingerprint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "base/file.h"

namespace inflight::artifact {
namespace {

TEST(FingerprintTest, ChangesWithTheFilesOfAModelAlone) {
  const auto dir =
      std::filesystem::path(testing::TempDir()) / ("fingerprint_" + std::to_string(getpid()));
  std::filesystem::create_directory(dir);
  const auto write = [&](const char* name, const std::string& content) {
    ASSERT_TRUE(WriteFile(dir / name, content).ok());
  };
  const std::string large(3'000'000, 'x');
  write("config.json", "{}");
  write("model.safetensors", large);
  const auto first = Fingerprint(dir);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(*Fingerprint(dir), *first);
  write("README.md", "of no account");
  EXPECT_EQ(*Fingerprint(dir), *first);

  std::string other = large;
  other.back() = 'y';
  write("model.safetensors", other);
  EXPECT_NE(*Fingerprint(dir), *first);
  write("model.safetensors", large + "x");
  EXPECT_NE(*Fingerprint(dir), *first);
  write("model.safetensors", large);
  EXPECT_EQ(*Fingerprint(dir), *first);
  write("config.json", "[]");
  EXPECT_NE(*Fingerprint(dir), *first);
  write("config.json", "{}");
  std::filesystem::rename(dir / "model.safetensors", dir / "model2.safetensors");
  EXPECT_NE(*Fingerprint(dir), *first);
  std::filesystem::remove_all(dir);
  EXPECT_EQ(Fingerprint(dir).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace inflight::artifact
