// SPDX-License-Identifier: Apache-2.0
#include "base/create_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/file.h"

namespace inflight {
namespace {

namespace fs = std::filesystem;

class CreateFileTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("inflight_create_file_" + std::to_string(getpid()));
    fs::create_directories(root_);
    ASSERT_TRUE(WriteFile(root_ / "victim", "kept").ok());
  }
  void TearDown() override { fs::remove_all(root_); }

  static int Mode(const fs::path& path) {
    struct stat info {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return static_cast<int>(info.st_mode & 07777);
  }

  fs::path root_;
};

TEST_F(CreateFileTest, ANewFileIsItsOwnersAlone) {
  const mode_t before = umask(0);
  const auto made = CreateFile(root_ / "new", Existing::kTruncate);
  umask(before);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(Mode(root_ / "new"), 0600);
  EXPECT_TRUE((fcntl(made->get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_F(CreateFileTest, APlantedLinkIsRefused) {
  fs::create_symlink(root_ / "victim", root_ / "link");
  fs::create_symlink(root_ / "absent", root_ / "dangling");
  for (const char* name : {"link", "dangling"}) {
    for (const Existing existing : {Existing::kTruncate, Existing::kAppend}) {
      EXPECT_EQ(CreateFile(root_ / name, existing).status(),
                InvalidArgument((root_ / name).string() +
                                ": is a link; name the file that is to be written"));
    }
    EXPECT_FALSE(CreateFile(root_ / name, Existing::kRefuse).ok());
  }
  EXPECT_EQ(*ReadFile(root_ / "victim"), "kept");
  EXPECT_FALSE(fs::exists(root_ / "absent"));
  EXPECT_TRUE(CreateFile("/dev/stderr", Existing::kAppend).ok());
}

TEST_F(CreateFileTest, AFileThatIsThereIsWrittenAsAsked) {
  ASSERT_EQ(chmod((root_ / "victim").c_str(), 0640), 0);
  EXPECT_FALSE(CreateFile(root_ / "victim", Existing::kRefuse).ok());
  const auto appended = CreateFile(root_ / "victim", Existing::kAppend);
  ASSERT_TRUE(WriteAll(*appended, "victim", " and more").ok());
  EXPECT_EQ(*ReadFile(root_ / "victim"), "kept and more");
  EXPECT_EQ(Mode(root_ / "victim"), 0640);
  const auto written = CreateFile(root_ / "victim", Existing::kTruncate);
  ASSERT_TRUE(WriteAll(*written, "victim", "new").ok());
  EXPECT_EQ(*ReadFile(root_ / "victim"), "new");
}

// As a process of this number may have left it behind, or a stranger have put it there.
TEST_F(CreateFileTest, ALinkInTheWayOfATemporaryFileIsPassedBy) {
  fs::path in_the_way = root_ / "out";
  in_the_way += ".tmp" + std::to_string(getpid());
  fs::create_symlink(root_ / "victim", in_the_way);
  const mode_t before = umask(027);
  EXPECT_TRUE(WriteFile(root_ / "out", "content").ok());
  umask(before);
  EXPECT_EQ(*ReadFile(root_ / "victim"), "kept");
  EXPECT_EQ(*ReadFile(root_ / "out"), "content");
  EXPECT_FALSE(fs::is_symlink(root_ / "out"));
  EXPECT_EQ(Mode(root_ / "out"), 0640);
  EXPECT_TRUE(fs::is_symlink(in_the_way));
}

TEST_F(CreateFileTest, ATemporaryFileIsItsOwnersAloneUntilItHasItsName) {
  const mode_t before = umask(0);
  const auto temporary = CreateTemporary(root_ / "out");
  umask(before);
  ASSERT_TRUE(temporary.ok());
  EXPECT_EQ(Mode(temporary->path), 0600);
  EXPECT_TRUE(Publish(*temporary, root_ / "out").ok());
  EXPECT_FALSE(fs::exists(temporary->path));
  EXPECT_TRUE(fs::exists(root_ / "out"));
}

}  // namespace
}  // namespace inflight
