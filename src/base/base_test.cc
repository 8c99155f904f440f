// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>

#include "base/file.h"
#include "base/log.h"
#include "base/log_settings.h"
#include "base/worker_pool.h"
#include "inflight/status.h"

namespace inflight {
namespace {

Result<int> Half(int x) {
  if (x % 2 != 0)
    return InvalidArgument("x: got " + std::to_string(x) + ", an even number is needed");
  return x / 2;
}

Result<int> Quarter(int x) {
  ASSIGN_OR_RETURN(const int half, Half(x));
  return Half(half);
}

TEST(StatusTest, AssignOrReturnPassesTheFirstErrorUp) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().message(), "x: got 3, an even number is needed");
  EXPECT_EQ(Quarter(6).status().WithPrefix("f").ToString(),
            "INVALID_ARGUMENT: f: x: got 3, an even number is needed");
}

TEST(LogTest, FieldsWithBlanksAreQuotedAndCannotForgeALine) {
  EXPECT_EQ(logging::FormatFields(
                {{"a", 1}, {"b", "x y"}, {"c", "p\nI1121 forged"}, {"d", true}, {"e", 0.5}}),
            R"(a=1 b="x y" c="p\nI1121 forged" d=true e=0.5)");
  EXPECT_EQ(logging::FormatFields({{"q", "say \"hi\"\\"}}), R"(q="say \"hi\"\\")");
}

TEST(LogTest, LevelsAreSwitchedOneByOne) {
  using logging::Level;
  logging::SetLevel(Level::kWarning);
  EXPECT_FALSE(logging::Enabled(Level::kInfo));
  EXPECT_TRUE(logging::Enabled(Level::kWarning));
  logging::SetVerboseLevel(3);
  logging::SetEnabled(Level::kError, false);
  EXPECT_TRUE(logging::Enabled(Level::kVerbose));
  const logging::Settings settings = logging::CurrentSettings();
  EXPECT_FALSE(settings.info);
  EXPECT_TRUE(settings.warning);
  EXPECT_FALSE(settings.error);
  EXPECT_EQ(settings.verbose_level, 3U);
  logging::SetLevel(Level::kInfo);
  EXPECT_EQ(logging::CurrentSettings().verbose_level, 0U);
  EXPECT_TRUE(logging::Enabled(Level::kError));
}

TEST(FileTest, WrittenContentIsReadAndMappedBack) {
  const auto path =
      std::filesystem::temp_directory_path() / ("inflight_file_test_" + std::to_string(getpid()));
  const std::string content("a\0b", 3);
  ASSERT_TRUE(WriteFile(path, content).ok());
  EXPECT_EQ(*ReadFile(path), content);
  auto mapped = MappedFile::Open(path);
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ(mapped->bytes().size(), 3U);
  EXPECT_EQ(ReadFile(path, 2).status().code(), StatusCode::kResourceExhausted);
  std::filesystem::remove(path);
  EXPECT_EQ(ReadFile(path).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadFile("/").status().code(), StatusCode::kInvalidArgument);
}

TEST(WorkerPoolTest, RunsEveryPostedTaskBeforeItEnds) {
  std::atomic<int> count{0};
  {
    WorkerPool pool(3, "test");
    for (int i = 0; i < 1000; ++i) pool.Post([&] { ++count; });
  }
  EXPECT_EQ(count, 1000);
}

}  // namespace
}  // namespace inflight
