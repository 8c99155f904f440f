// SPDX-License-Identifier: Apache-2.0
#include "protocol/sagemaker/model_place.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace inflight::sagemaker {
namespace {

namespace fs = std::filesystem;

class ModelPlaceTest : public testing::Test {
 protected:
  ModelPlaceTest() { fs::create_directories(root_); }
  ~ModelPlaceTest() override { fs::remove_all(root_); }

  void AddModel(const fs::path& dir, const std::string& config) {
    fs::create_directories(root_ / dir);
    std::ofstream(root_ / dir / "config.pbtxt") << config;
  }
  static std::string Error(const fs::path& url) { return FindModelPlace(url).status().message(); }

  const fs::path root_ = fs::canonical(fs::temp_directory_path()) /
                         ("inflight_model_place_" + std::to_string(getpid()));
};

TEST_F(ModelPlaceTest, ADirectoryWithAConfigurationIsAModelOfItsParent) {
  AddModel("h/model", R"(backend: "b")");
  AddModel("h/other", R"(backend: "b")");
  const auto place = FindModelPlace(root_ / "h" / "model" / ".." / "model");
  ASSERT_TRUE(place.ok()) << place.status().ToString();
  EXPECT_EQ(place->repository, root_ / "h");
  EXPECT_EQ(place->directory, "model");
}

TEST_F(ModelPlaceTest, ADirectoryOfOneModelIsARepository) {
  AddModel("h/only", R"(backend: "b")");
  fs::create_directories(root_ / "h" / "notes");
  const auto place = FindModelPlace(root_ / "h");
  ASSERT_TRUE(place.ok()) << place.status().ToString();
  EXPECT_EQ(place->repository, root_ / "h");
  EXPECT_EQ(place->directory, "only");
}

TEST_F(ModelPlaceTest, OfSeveralModelsTheEnsembleIsMeant) {
  AddModel("h/a", R"(backend: "b")");
  AddModel("h/b", R"(platform: "ensemble" ensemble_scheduling { })");
  AddModel("h/c", R"(backend: "b")");
  EXPECT_EQ(FindModelPlace(root_ / "h")->directory, "b");
  AddModel("h/d", R"(platform: "ensemble" ensemble_scheduling { })");
  EXPECT_NE(Error(root_ / "h").find("several ensembles"), std::string::npos);
}

TEST_F(ModelPlaceTest, WhatNamesNoModelIsRefused) {
  AddModel("h/a", R"(backend: "b")");
  AddModel("h/b", R"(backend: "b")");
  EXPECT_NE(Error(root_ / "h").find("no ensemble"), std::string::npos);
  EXPECT_NE(Error(root_ / "nowhere").find("no such directory"), std::string::npos);
  EXPECT_NE(Error(root_ / "h" / "a" / "config.pbtxt").find("no such directory"), std::string::npos);
  fs::create_directories(root_ / "empty");
  EXPECT_NE(Error(root_ / "empty").find("holds no model"), std::string::npos);
  EXPECT_EQ(FindModelPlace("").status().code(), StatusCode::kInvalidArgument);
  // Of "PATH\0..." the system would open PATH.
  fs::remove_all(root_ / "h" / "b");
  EXPECT_TRUE(FindModelPlace((root_ / "h").string()).ok());
  EXPECT_NE(Error((root_ / "h").string() + std::string("\0/elsewhere", 11)).find("control bytes"),
            std::string::npos);
}

TEST_F(ModelPlaceTest, SystemDirectoriesAreRefusedAlsoByOtherNames) {
  fs::create_directory_symlink("/proc/self", root_ / "link");
  for (const std::string url : {"/proc", "/proc/self", "/dev", "/sys/kernel", "/tmp/../dev/./"}) {
    EXPECT_NE(Error(url).find("nothing is loaded from /"), std::string::npos) << url;
  }
  EXPECT_NE(Error(root_ / "link").find("nothing is loaded from /proc"), std::string::npos);
}

}  // namespace
}  // namespace inflight::sagemaker
