// SPDX-License-Identifier: Apache-2.0
#include "serving/instances/warm_up.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>

#include "base/file.h"
#include "serving/tensors/tensor_values.h"

namespace inflight::serving {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Keeps what it is asked.
class AskedModel final : public Model {
 public:
  explicit AskedModel(::inference::ModelConfig config) : Model(std::move(config), "1") {}

  int num_instances() const override { return instances; }
  void Infer(Request request, ResponseHandler handler) override {
    requests.push_back(std::move(request));
    statistics().RequestSucceeded({});
    handler({.status = answer, .is_final = true});
  }

  int instances = 1;
  Status answer;
  std::vector<Request> requests;
};

class WarmUpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = std::filesystem::temp_directory_path() /
           (std::string("inflight_") + info->name() + "_" + std::to_string(::getpid()));
    std::filesystem::create_directories(dir_ / "warmup");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  AskedModel& Make(const std::string& samples, int max_batch_size = 0) {
    ::inference::ModelConfig config;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
        name: "m" input { name: "I" data_type: TYPE_INT32 dims: 2 }
        input { name: "T" data_type: TYPE_STRING dims: 1 optional: true }
        input { name: "B" data_type: TYPE_BOOL dims: 64 optional: true })" +
                                                                  samples,
                                                              &config));
    config.set_max_batch_size(max_batch_size);
    model_ = std::make_unique<AskedModel>(std::move(config));
    return *model_;
  }
  Status Run() { return WarmUp(*model_, dir_); }

  std::filesystem::path dir_;
  std::unique_ptr<AskedModel> model_;
};

constexpr char kInts[] = R"(inputs { key: "I" value { data_type: TYPE_INT32 dims: 2 )";

TEST_F(WarmUpTest, WithoutSamplesNothingRuns) {
  AskedModel& model = Make("");
  EXPECT_TRUE(Run().ok());
  EXPECT_TRUE(model.requests.empty());
}

TEST_F(WarmUpTest, BatchCountAndInstancesMultiply) {
  AskedModel& model = Make(std::string("model_warmup { name: \"w\" batch_size: 2 count: 3 ") +
                               kInts + "zero_data: true } } }",
                           /*max_batch_size=*/8);
  model.instances = 2;
  ASSERT_TRUE(Run().ok());
  ASSERT_EQ(model.requests.size(), 12u);
  const Tensor& input = model.requests.front().inputs.front();
  EXPECT_THAT(input.shape, ElementsAre(1, 2));
  EXPECT_THAT(ValuesOf<int32_t>(input), ElementsAre(0, 0));
}

TEST_F(WarmUpTest, ABatchOfZeroIsSkipped) {
  AskedModel& model =
      Make(std::string("model_warmup { name: \"w\" ") + kInts + "zero_data: true } } }");
  EXPECT_TRUE(Run().ok());
  EXPECT_TRUE(model.requests.empty());
}

TEST_F(WarmUpTest, LeavesNoTraceInTheStatistics) {
  AskedModel& model = Make(std::string("model_warmup { name: \"w\" batch_size: 1 ") + kInts +
                           "random_data: true } } }");
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(model.requests.size(), 1u);
  EXPECT_EQ(model.statistics().Snapshot().success.count, 0u);
}

TEST_F(WarmUpTest, RandomTextsAreEmptyAndRandomBoolsAreBools) {
  AskedModel& model = Make(std::string("model_warmup { name: \"w\" batch_size: 1 ") + kInts +
                           R"(random_data: true } }
      inputs { key: "T" value { data_type: TYPE_STRING dims: 1 random_data: true } }
      inputs { key: "B" value { data_type: TYPE_BOOL dims: 64 random_data: true } } })");
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(*model.requests.front().FindInput("T")->Strings(), ElementsAre(""));
  EXPECT_THAT(ValuesOf<uint8_t>(*model.requests.front().FindInput("B")), Each(::testing::Le(1)));
}

TEST_F(WarmUpTest, FilesGiveTheBytes) {
  const int32_t values[] = {7, -9};
  ASSERT_TRUE(
      WriteFile(dir_ / "warmup" / "ints", {reinterpret_cast<const char*>(values), sizeof(values)})
          .ok());
  AskedModel& model = Make(std::string("model_warmup { name: \"w\" batch_size: 1 ") + kInts +
                           "input_data_file: \"ints\" } } }");
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(ValuesOf<int32_t>(model.requests.front().inputs.front()), ElementsAre(7, -9));
}

TEST_F(WarmUpTest, AFailureNamesTheSample) {
  Make(std::string("model_warmup { name: \"w\" batch_size: 1 ") + kInts + "zero_data: true } } }")
      .answer = Internal("out of order");
  const Status failed = Run();
  EXPECT_EQ(failed.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(failed.message(), "failed to run warmup sample 'w': out of order");
}

TEST_F(WarmUpTest, FaultySamplesAreNamed) {
  ASSERT_TRUE(WriteFile(dir_ / "warmup" / "short", "abc").ok());
  const std::pair<std::string, std::string> cases[] = {
      {"dims: -1 zero_data: true", "got -1"},
      {"dims: 3 zero_data: true", "I"},  // the model's own shape is another one
      {"dims: 2", "expected zero_data, random_data or input_data_file"},
      {"dims: 2 input_data_file: \"none\"", "none"},
      {"dims: 2 input_data_file: \"short\"", "got 3 bytes, expected 8"},
      {"dims: 2 input_data_file: \"../../etc/passwd\"", "outside"},
      {"dims: [ 4000000000, 4000000000 ] zero_data: true", "too many elements"}};
  for (const auto& [input, expected] : cases) {
    Make(
        "model_warmup { name: \"w\" batch_size: 1 inputs { key: \"I\" value { data_type: "
        "TYPE_INT32 " +
        input + " } } }");
    const Status failed = Run();
    EXPECT_EQ(failed.code(), StatusCode::kInvalidArgument) << input;
    EXPECT_THAT(failed.message(), HasSubstr("warmup sample 'w'")) << input;
    EXPECT_THAT(failed.message(), HasSubstr(expected)) << input;
    EXPECT_TRUE(model_->requests.empty()) << input;
  }
}

}  // namespace
}  // namespace inflight::serving
