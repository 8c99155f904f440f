// SPDX-License-Identifier: Apache-2.0
#include "base/open_beneath.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/machine_fixture.h"

namespace inflight {
namespace {

namespace fs = std::filesystem;

class OpenBeneathTest : public testing::TestWithParam<BeneathBy> {
 protected:
  void SetUp() override {
    if (GetParam() == BeneathBy::kKernel && BeneathByDefault() != BeneathBy::kKernel) {
      SKIP_FOR_LACK_OF("openat2 (Linux 5.6)");
    }
    root_ = fs::temp_directory_path() / ("inflight_open_beneath_" + std::to_string(getpid()));
    fs::create_directories(root_ / "folder" / "sub");
    ASSERT_TRUE(WriteFile(root_ / "secret", "secret").ok());
    ASSERT_TRUE(WriteFile(root_ / "folder" / "file", "content").ok());
  }
  void TearDown() override { fs::remove_all(root_); }

  Result<std::string> Read(const std::string& name, const std::string& folder = "folder") {
    auto opened = OpenBeneath(root_ / folder, name, O_RDONLY, GetParam());
    if (!opened.ok()) return opened.status();
    return ReadOpenFile(*opened, name, 100);
  }

  fs::path root_;
};

TEST_P(OpenBeneathTest, WhatLiesBelowIsOpened) {
  EXPECT_EQ(*Read("file"), "content");
  fs::create_symlink("../file", root_ / "folder" / "sub" / "link");
  EXPECT_EQ(*Read("sub/link"), "content");
  fs::create_directory_symlink("folder", root_ / "linked");
  EXPECT_EQ(*Read("sub/link", "linked"), "content");
  EXPECT_EQ(Read("absent").status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(OpenBeneath(root_ / "folder", ".", O_PATH | O_DIRECTORY, GetParam()).ok());
}

TEST_P(OpenBeneathTest, NothingElseIsNorIsItsAbsenceTold) {
  fs::create_symlink(root_ / "secret", root_ / "folder" / "to_file");
  fs::create_symlink(root_ / "absent", root_ / "folder" / "to_nothing");
  fs::create_directory_symlink("..", root_ / "folder" / "up");
  fs::create_directory_symlink("/proc/self", root_ / "folder" / "self");
  for (const std::string& name :
       {std::string("../secret"), std::string("../absent"), (root_ / "secret").string(),
        (root_ / "absent").string(), std::string("sub/../../secret"), std::string("to_file"),
        std::string("to_nothing"), std::string("up/secret"), std::string("up/absent"),
        std::string("self/root/etc/passwd"), std::string("file\0x", 6), std::string("sub\n/file"),
        std::string("file\x7f")}) {
    EXPECT_EQ(Read(name).status().code(), StatusCode::kPermissionDenied) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Both, OpenBeneathTest,
                         testing::Values(BeneathBy::kKernel, BeneathBy::kCanonicalPaths));

}  // namespace
}  // namespace inflight
