// SPDX-License-Identifier: Apache-2.0
#include "serving/llm/named_adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class NamedAdaptersTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ =
        fs::path(testing::TempDir()) /
        ("adapters_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(dir_);
    for (const char* name : {"a", "b"}) Write(name, "1");
    fs::create_directories(dir_ / "empty");
  }
  void TearDown() override { fs::remove_all(dir_); }

  void Write(const std::string& name, const std::string& weights) const {
    fs::create_directories(dir_ / name);
    std::ofstream(dir_ / name / "adapter_config.json") << "{}";
    std::ofstream(dir_ / name / "adapter_model.safetensors") << weights;
  }
  std::shared_ptr<NamedAdapters> Make(const std::vector<std::string>& modules,
                                      const std::string& dir) {
    auto adapters = NamedAdapters::Make(modules, dir, [this](const fs::path& folder) {
      read_.push_back(folder.filename());
      return Result<LoraTensors>(LoraTensors{.width = 7});
    });
    EXPECT_TRUE(adapters.ok()) << adapters.status().ToString();
    return *adapters;
  }

  fs::path dir_;
  std::vector<std::string> read_;
};

TEST_F(NamedAdaptersTest, AFolderIsReadWhenTheExecutorAsks) {
  const auto adapters = Make({"first=" + (dir_ / "a").string()}, dir_.string());
  const auto found = adapters->Find("first");
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_TRUE(found->use.is_own);
  EXPECT_TRUE(read_.empty());
  EXPECT_EQ((*found->use.read())->width, 7);
  EXPECT_EQ(read_, std::vector<std::string>{"a"});
  EXPECT_EQ(adapters->Find("first")->use.id, found->use.id);
  EXPECT_NE(adapters->Find("b")->use.id, found->use.id);
}

TEST_F(NamedAdaptersTest, NamesAreThoseThatAreThereNow) {
  const auto adapters = Make({"first=" + (dir_ / "a").string()}, dir_.string());
  EXPECT_EQ(adapters->Names(), (std::vector<std::string>{"a", "b", "first"}));
  Write("late", "1");
  Write(".hidden", "1");
  fs::remove(dir_ / "b" / "adapter_config.json");
  EXPECT_EQ(adapters->Names(), (std::vector<std::string>{"a", "first", "late"}));
  for (const char* name : {"a", "first", "late"}) EXPECT_TRUE(adapters->Find(name).ok()) << name;
  for (const char* name : {"b", "empty", ".hidden", "..", ""})
    EXPECT_FALSE(adapters->Find(name).ok()) << name;
  EXPECT_EQ(Make({"first=" + (dir_ / "a").string()}, "")->Names(),
            std::vector<std::string>{"first"});
}

TEST_F(NamedAdaptersTest, ChangedFilesAreAnotherAdapter) {
  const auto adapters = Make({}, dir_.string());
  const uint64_t id = adapters->Find("a")->use.id;
  Write("a", "longer");
  EXPECT_NE(adapters->Find("a")->use.id, id);
}

TEST_F(NamedAdaptersTest, NamesStandInTheOrderOfTheirIds) {
  const auto adapters = Make({}, dir_.string());
  const uint64_t a = adapters->Find("a")->use.id;
  const uint64_t b = adapters->Find("b")->use.id;
  const auto names = [&](std::vector<uint64_t> ids) { return adapters->NamesOf(ids); };
  EXPECT_EQ(names({b, 999, a}), (std::vector<std::string>{"b", "a"}));
  Write("a", "longer");
  EXPECT_EQ(names({a}), std::vector<std::string>{"a"}) << "nobody has asked for the new files";
  const uint64_t changed = adapters->Find("a")->use.id;
  EXPECT_EQ(names({a}), std::vector<std::string>());
  EXPECT_EQ(names({changed}), std::vector<std::string>{"a"});
}

TEST_F(NamedAdaptersTest, AFolderThatComesLaterIsFound) {
  const auto adapters = Make({}, dir_.string());
  EXPECT_FALSE(adapters->Find("late").ok());
  Write("late", "1");
  EXPECT_TRUE(adapters->Find("late").ok());
}

TEST_F(NamedAdaptersTest, WhatIsNoNameOfThemIsNotFoundAndTellsNoPath) {
  Write("odd\nname", "1");
  const auto adapters = Make({}, (dir_ / "a").parent_path().string());
  const std::vector<std::string> names = {
      "c",  "",     ".",     "..",        "../" + dir_.filename().string() + "/a",
      "a/", "/etc", "empty", "odd\nname", std::string("a\0", 2)};
  for (const std::string& name : names) {
    const Status status = adapters->Find(name).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound) << name;
    EXPECT_THAT(status.message(), HasSubstr("lora_name: the model has no adapter"));
    EXPECT_THAT(status.message(), Not(HasSubstr(dir_.parent_path().string() + "/")));
  }
}

TEST_F(NamedAdaptersTest, AFolderThatCannotBeReadTellsNoPath) {
  auto adapters = NamedAdapters::Make({}, dir_.string(), [](const fs::path& folder) {
    return Result<LoraTensors>(InvalidArgument(folder.string() + ": bad"));
  });
  const Status status = (*adapters)->Find("a")->use.read().status();
  EXPECT_EQ(status.message(), "lora_name: adapter 'a' cannot be read (the server's log says why)");
}

TEST_F(NamedAdaptersTest, OptionsNameWhatIsWrong) {
  const auto error = [&](const std::vector<std::string>& modules, const std::string& dir) {
    return NamedAdapters::Make(modules, dir, nullptr).status().message();
  };
  EXPECT_THAT(error({"a"}, ""), HasSubstr("--lora-modules: got 'a', must be a name, '='"));
  EXPECT_THAT(error({"x=" + (dir_ / "empty").string()}, ""), HasSubstr("is no adapter"));
  EXPECT_THAT(error({}, "/no/such"), HasSubstr("--lora-dir: got '/no/such', which is no folder"));
  const std::string a = "x=" + (dir_ / "a").string();
  EXPECT_THAT(error({a, a}, ""), HasSubstr("--lora-modules: got 'x' twice"));
}

}  // namespace
}  // namespace inflight::serving
