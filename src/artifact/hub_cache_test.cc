// SPDX-License-Identifier: Apache-2.0
#include "artifact/hub_cache.h"

#include <gmock/gmock.h>

#include <map>

#include "artifact/test_files.h"
#include "base/file.h"

namespace inflight::artifact {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kCommit[] = "0123456789abcdef0123456789abcdef01234567";

class HubCacheTest : public FileTest {
 protected:
  // A model as the hub's library lays it out below `cache`.
  static std::filesystem::path AddModel(const std::filesystem::path& cache) {
    const auto model = cache / "models--org--tiny-1.0";
    std::filesystem::create_directories(model / "refs/refs/pr");
    std::filesystem::create_directories(model / "snapshots" / kCommit);
    EXPECT_TRUE(WriteFile(model / "refs/main", kCommit).ok());
    EXPECT_TRUE(WriteFile(model / "refs/v1", std::string(kCommit) + "\n").ok());
    EXPECT_TRUE(WriteFile(model / "refs/refs/pr/1", kCommit).ok());
    return model / "snapshots" / kCommit;
  }

  Result<std::filesystem::path> Resolve(const std::string& argument) const {
    return ResolveModelDir(argument, [this](const char* name) {
      const auto found = variables_.find(name);
      return found == variables_.end() ? std::string() : found->second;
    });
  }
  std::filesystem::path Found(const std::string& argument) const {
    const auto found = Resolve(argument);
    EXPECT_TRUE(found.ok()) << found.status().ToString();
    return found.ok() ? *found : std::filesystem::path();
  }

  std::map<std::string, std::string> variables_;
};

TEST_F(HubCacheTest, TheCacheIsWhereTheHubsLibraryLooks) {
  struct Case {
    std::string place;
    std::string name;
    std::string value;
  };
  // Each later case wins over all before it.
  const Case cases[] = {{"h/.cache/huggingface/hub", "HOME", "h"},
                        {"x/huggingface/hub", "XDG_CACHE_HOME", "x"},
                        {"f/hub", "HF_HOME", "f"},
                        {"old", "HUGGINGFACE_HUB_CACHE", "old"},
                        {"new", "HF_HUB_CACHE", "new"}};
  for (const Case& c : cases) {
    variables_[c.name] = (dir() / c.value).string();
    const auto snapshot = AddModel(dir() / c.place);
    EXPECT_EQ(Found("org/tiny-1.0"), snapshot);
  }
  variables_["HF_HUB_CACHE"] = "~/c";
  const auto snapshot = AddModel(dir() / "h/c");
  EXPECT_EQ(Found("org/tiny-1.0@main"), snapshot);
}

TEST_F(HubCacheTest, RevisionsAreBranchesTagsAndCommits) {
  variables_["HF_HUB_CACHE"] = dir().string();
  const auto snapshot = AddModel(dir());
  for (const std::string revision : {"main", "v1", "refs/pr/1", kCommit})
    EXPECT_EQ(Found("org/tiny-1.0@" + revision), snapshot);
  EXPECT_THAT(Resolve("org/tiny-1.0@v2").status().message(),
              AllOf(HasSubstr("has no revision 'v2'"), HasSubstr("refs: main, refs, v1"),
                    HasSubstr(kCommit), HasSubstr("`inflight pull org/tiny-1.0@v2`")));
}

TEST_F(HubCacheTest, WhatIsMissingIsNamedWithThePlaceAndTheRemedy) {
  variables_["HF_HOME"] = dir().string();
  const auto status = Resolve("org/other").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("org/other: no such directory"),
                    HasSubstr((dir() / "hub/models--org--other").string()), HasSubstr("(HF_HOME)"),
                    HasSubstr("`inflight pull org/other`")));
}

TEST_F(HubCacheTest, DirectoriesAndOtherPathsStayAsTheyAre) {
  variables_["HF_HUB_CACHE"] = dir().string();
  AddModel(dir());
  std::filesystem::create_directories(dir() / "a/b");
  EXPECT_EQ(Found((dir() / "a/b").string()), dir() / "a/b");
  for (const char* path :
       {"name", "/org/tiny-1.0", "./tiny-1.0", "org/tiny-1.0/", "org/a/b", "../x", "org/..",
        "org/a--b", "org/na me", "org/tiny-1.0@../x", "org/x@", ""})
    EXPECT_EQ(Found(path), path);
}

TEST_F(HubCacheTest, ARefCannotLeaveTheCache) {
  variables_["HF_HUB_CACHE"] = dir().string();
  AddModel(dir());
  ASSERT_TRUE(WriteFile(dir() / "models--org--tiny-1.0/refs/main", "../../../etc").ok());
  EXPECT_THAT(Resolve("org/tiny-1.0").status().message(),
              HasSubstr("got '../../../etc', a commit is needed"));
}

TEST_F(HubCacheTest, AQuantisationIsAFileOfTheSnapshot) {
  variables_["HF_HUB_CACHE"] = dir().string();
  const auto snapshot = AddModel(dir());
  ASSERT_TRUE(WriteFile(snapshot / "M-Q4_K_M.gguf", "4").ok());
  EXPECT_EQ(Found("org/tiny-1.0"), snapshot / "M-Q4_K_M.gguf");
  ASSERT_TRUE(WriteFile(snapshot / "M-Q8_0.gguf", "8").ok());
  EXPECT_EQ(Found("org/tiny-1.0:q8_0"), snapshot / "M-Q8_0.gguf");
  EXPECT_EQ(Found("org/tiny-1.0:Q4_K_M@v1"), snapshot / "M-Q4_K_M.gguf");
  EXPECT_THAT(Resolve("org/tiny-1.0").status().message(), HasSubstr("more than one"));
  EXPECT_THAT(Resolve("org/tiny-1.0:Q5").status().message(),
              AllOf(HasSubstr("M-Q8_0.gguf"), HasSubstr("`inflight pull org/tiny-1.0:Q5`")));
}

TEST_F(HubCacheTest, ANameMayBeOfTheModelsFolder) {
  variables_["XDG_DATA_HOME"] = dir().string();
  std::filesystem::create_directories(dir() / "inflight/models/mine");
  EXPECT_EQ(Found("mine"), dir() / "inflight/models/mine");
  EXPECT_EQ(Found("yours"), "yours");
}

TEST(HubIdTest, NamesOfGgufFilesHaveTheirQuantisationAsAPart) {
  EXPECT_TRUE(IsGgufOf("a/M-Q4_K_M.gguf", "q4_k_m"));
  EXPECT_TRUE(IsGgufOf("m.Q8_0.gguf", "Q8_0"));
  EXPECT_FALSE(IsGgufOf("M-Q4_K_M.gguf", "Q4_K"));
  EXPECT_FALSE(IsGgufOf("M-Q4_K_M.bin", "Q4_K_M"));
  EXPECT_FALSE(IsGgufOf("mmproj-Q8_0.gguf", "Q8_0"));
  EXPECT_TRUE(IsGgufPart("M-Q8_0-00002-of-00003.gguf"));
  EXPECT_FALSE(IsGgufPart("M-Q8_0.gguf"));
}

TEST(HubIdTest, IdsAreWrittenAsTheyWereRead) {
  for (const char* text : {"org/name", "org/name:Q4_K_M", "org/name@v1", "org/name:Q4_K_M@v1"})
    EXPECT_EQ(ParseHubId(text)->ToString(), text);
  for (const char* text : {"name", "org/name:", "org/name:../x", "a/b/c", "org/name@../x"})
    EXPECT_FALSE(ParseHubId(text)) << text;
}

}  // namespace
}  // namespace inflight::artifact
