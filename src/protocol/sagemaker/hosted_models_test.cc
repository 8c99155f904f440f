// SPDX-License-Identifier: Apache-2.0
#include "protocol/sagemaker/hosted_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "protocol/sagemaker/fake_hosting.h"

namespace inflight::sagemaker {
namespace {

namespace fs = std::filesystem;
using http_listener::Headers;
using http_listener::HttpRequest;
using testing::ElementsAre;
using testing::HasSubstr;

class HostedModelsTest : public testing::Test {
 protected:
  HostedModelsTest() {
    fs::create_directories(root_ / "m");
    std::ofstream(root_ / "m" / "config.pbtxt") << R"(backend: "b")";
  }
  ~HostedModelsTest() override { fs::remove_all(root_); }

  http_listener::HttpResponse Load(const std::string& body, Headers headers = {}) {
    HttpRequest request{.method = "POST", .target = "/models", .headers = std::move(headers)};
    request.body = std::make_shared<const std::string>(body);
    return hosted_.Load(request);
  }
  std::string LoadBody(const std::string& name) const {
    return R"({"model_name":")" + name + R"(","url":")" + url() + "\"}";
  }
  std::string url() const { return root_.string(); }

  const fs::path root_ = fs::canonical(fs::temp_directory_path()) /
                         ("inflight_hosted_models_" + std::to_string(getpid()));
  FakeHosting server_;
  HostedModels hosted_{server_, std::chrono::milliseconds(0)};
};

TEST_F(HostedModelsTest, ALoadRegistersTheDirectoryAndServesItsModelUnderTheName) {
  EXPECT_EQ(Load(LoadBody("h1")).status, 200);
  EXPECT_THAT(server_.calls, ElementsAre("add " + url() + " m as h1", "load h1"));
  EXPECT_EQ(hosted_.ServedName("h1"), "h1");
  const std::string model = R"({"modelName":"h1","modelUrl":")" + url() + "\"}";
  EXPECT_EQ(hosted_.Describe("h1").body, model);
  EXPECT_EQ(hosted_.List().body, "{\"models\":[" + model + "]}");
}

TEST_F(HostedModelsTest, TheTargetModelIsTheNameThatItIsServedUnder) {
  EXPECT_EQ(Load(LoadBody("h1"), {{"x-amzn-sagemaker-target-model", "m.tar.gz"}}).status, 200);
  EXPECT_THAT(server_.calls, ElementsAre("add " + url() + " m as m.tar.gz", "load m.tar.gz"));
  EXPECT_EQ(hosted_.ServedName("h1"), "m.tar.gz");
  EXPECT_EQ(hosted_.ServedName("m.tar.gz"), std::nullopt);
  EXPECT_THAT(hosted_.Describe("h1").body, HasSubstr(R"("modelName":"h1")"));
}

TEST_F(HostedModelsTest, AModelThatIsNotReadyIsAnEmptyObjectOfTheList) {
  EXPECT_EQ(hosted_.List().body, R"({"models":[]})");
  Load(LoadBody("h1"));
  std::dynamic_pointer_cast<kserve_http::FakeModel>(server_.models().front())->is_ready = false;
  EXPECT_EQ(hosted_.List().body, R"({"models":[{}]})");
}

TEST_F(HostedModelsTest, WhatIsThereAlreadyIsAConflict) {
  server_.add_status = AlreadyExists("the repository is there");
  EXPECT_EQ(Load(LoadBody("h1")).status, 409);
  EXPECT_EQ(hosted_.Describe("h1").status, 404);
  server_.add_status = {};
  EXPECT_EQ(Load(LoadBody("h1")).status, 200);
  EXPECT_EQ(Load(LoadBody("h1")).status, 409);
}

TEST_F(HostedModelsTest, AFailedLoadLeavesNothingBehind) {
  server_.load_status = InvalidArgument("version 1 is broken");
  const auto answer = Load(LoadBody("h1"));
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.body, R"({"error":"version 1 is broken"})");
  EXPECT_EQ(server_.calls.back(), "remove " + url());
  EXPECT_EQ(hosted_.Describe("h1").status, 404);
  server_.load_status = OutOfMemory("CUDA out of memory")
                            .WithMessage(
                                "load failed for model 'h1': version 1 is at UNAVAILABLE "
                                "state: Internal: CUDA out of memory;");
  EXPECT_EQ(Load(LoadBody("h1")).status, 507);
}

TEST_F(HostedModelsTest, BodiesThatSayNoNameOrPlaceAreRefused) {
  for (const std::string body :
       {"", "x", "[]", "{}", R"({"model_name":"h1"})", R"({"url":"/tmp"})",
        R"({"model_name":1,"url":"/tmp"})", R"({"model_name":"","url":"/tmp"})",
        R"({"model_name":"h1","url":"/no such place"})",
        R"({"model_name":"h1","url":"/proc/1"})"}) {
    EXPECT_EQ(Load(body).status, 400) << body;
  }
  for (const std::string control : {R"(h\u0000)", R"(h\n1)", "h\x7f"})
    EXPECT_EQ(Load(LoadBody(control)).status, 400) << control;
  EXPECT_TRUE(server_.calls.empty());
}

TEST_F(HostedModelsTest, AnUnloadTakesTheStepsAlongAndUnregisters) {
  EXPECT_EQ(hosted_.Unload("h1", {}).status, 404);
  Load(LoadBody("h1"), {{"X-Amzn-SageMaker-Target-Model", "t"}});
  server_.calls.clear();
  EXPECT_EQ(hosted_.Unload("h1", {}).status, 200);
  EXPECT_THAT(server_.calls, ElementsAre("unload t with steps", "remove " + url()));
  EXPECT_EQ(hosted_.Describe("h1").status, 404);
  EXPECT_EQ(Load(LoadBody("h1")).status, 200);
}

TEST_F(HostedModelsTest, AnUnloadThatTakesTooLongOrIsStoppedKeepsTheModelForAnother) {
  Load(LoadBody("h1"));
  server_.unloads = false;
  EXPECT_EQ(hosted_.Unload("h1", {}).status, 500);
  EXPECT_EQ(hosted_.Describe("h1").status, 200);
  HostedModels patient(server_, std::chrono::hours(1));
  HttpRequest request{.method = "POST", .target = "/models"};
  request.body = std::make_shared<const std::string>(LoadBody("h2"));
  ASSERT_EQ(patient.Load(request).status, 200);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(patient.Unload("h2", stop.get_token()).status, 500);
  server_.unloads = true;
  EXPECT_EQ(hosted_.Unload("h1", {}).status, 200);
}

TEST_F(HostedModelsTest, MemoryThatIsMissingIsKnownByItsReasonWhateverTheText) {
  const std::string text = "weights: needs 10 bytes, 3 of 8 are free";
  server_.load_status = OutOfMemory(text);
  const auto answer = Load(LoadBody("h1"));
  EXPECT_EQ(answer.status, 507);
  EXPECT_EQ(answer.body, "{\"error\":\"" + text + "\"}");
  for (const Status& other : {InvalidArgument(text), ResourceExhausted("out of memory"),
                              Internal("cudaMalloc: out of memory (cudaErrorMemoryAllocation)")}) {
    server_.load_status = other;
    EXPECT_EQ(Load(LoadBody("h1")).status, 400) << other.ToString();
  }
}

}  // namespace
}  // namespace inflight::sagemaker
