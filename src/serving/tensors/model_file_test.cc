// SPDX-License-Identifier: Apache-2.0
#include "serving/tensors/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ModelFileTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("inflight_model_file_test_" + std::to_string(getpid()));
    fs::create_directories(root_ / "model" / "warmup");
    ASSERT_TRUE(WriteFile(root_ / "secret", "secret").ok());
    ASSERT_TRUE(WriteFile(root_ / "model" / "labels", "cat").ok());
  }
  void TearDown() override { fs::remove_all(root_); }
  Result<std::string> Read(const std::string& file) {
    return ReadModelFile(root_ / "model", "directory", file, "label_filename", 100);
  }

  fs::path root_;
};

TEST_F(ModelFileTest, AFileBelowIsRead) {
  EXPECT_EQ(*Read("labels"), "cat");
  fs::create_symlink("../labels", root_ / "model" / "warmup" / "same");
  EXPECT_EQ(*Read("warmup/same"), "cat");
  fs::create_directory_symlink(root_ / "model", root_ / "linked");  // as folders of versions are
  EXPECT_EQ(*ReadModelFile(root_ / "linked", "directory", "labels", "f", 100), "cat");
  EXPECT_EQ(Read("absent").status().code(), StatusCode::kNotFound);
}

TEST_F(ModelFileTest, NothingElseIs) {
  fs::create_symlink(root_ / "secret", root_ / "model" / "link");
  fs::create_directory_symlink("..", root_ / "model" / "up");
  for (const std::string& file :
       {std::string("../secret"), (root_ / "secret").string(), std::string("warmup/../../secret"),
        std::string("link"), std::string("up/secret"), std::string("..\0/secret", 10),
        std::string("labels\0x", 8), std::string("labels\n"), std::string()}) {
    const auto read = Read(file);
    ASSERT_FALSE(read.ok()) << file;
    EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument) << file;
    EXPECT_THAT(read.status().message(), HasSubstr("lies outside of the model's directory"));
  }
}

TEST_F(ModelFileTest, APlaceBelowIsFoundByItsNameOrByItsWholePath) {
  const auto find = [&](const std::string& name) {
    return FindBeneath(root_ / "model", "directory", name, "gpt_model_path");
  };
  const fs::path real = fs::canonical(root_ / "model" / "warmup");
  EXPECT_EQ(*find("warmup"), real);
  EXPECT_EQ(*find(root_ / "model" / "warmup"), real);
  EXPECT_EQ(find("absent").status(), NotFound("gpt_model_path: 'absent' does not exist"));
  for (const char* outside : {"..", "../secret", "../absent", "/", "/etc", "/absent"}) {
    EXPECT_EQ(find(outside).status(), InvalidArgument(std::string("gpt_model_path: '") + outside +
                                                      "' lies outside of the model's directory"));
  }
}

}  // namespace
}  // namespace inflight::serving
