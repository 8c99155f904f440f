// SPDX-License-Identifier: Apache-2.0
#include "serving/sequences/sequence_states.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "serving/conformance/conformance.h"
#include "serving/instances/instance_model.h"
#include "serving/tensors/tensor_values.h"
#include "serving/testing/test_requests.h"

namespace inflight::serving {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// OUTPUT0 = INPUT0 + INPUT1 and OUTPUT1 = INPUT0 - INPUT1, of which INPUT1 is what OUTPUT0 was.
constexpr char kSum[] = R"(
  name: "sum" max_batch_size: 4
  input { name: "INPUT0" data_type: TYPE_INT32 dims: 2 }
  output { name: "OUTPUT1" data_type: TYPE_INT32 dims: 2 }
  parameters { key: "kind" value { string_value: "addsub" } }
  sequence_batching { max_sequence_idle_microseconds: 3600000000
    state { input_name: "INPUT1" output_name: "OUTPUT0" data_type: TYPE_INT32 dims: -1 INITIAL } }
)";

class SequenceStatesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = std::filesystem::temp_directory_path() /
           (std::string("inflight_") + info->name() + "_" + std::to_string(::getpid()));
    std::filesystem::create_directories(dir_ / "initial_state");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  static ::inference::ModelConfig Config(std::string text, const std::string& initial) {
    const size_t at = text.find("INITIAL");
    if (at != std::string::npos) text.replace(at, 7, initial);
    ::inference::ModelConfig config;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
    return config;
  }
  void Write(const std::string& file, const std::vector<int32_t>& values) {
    std::ofstream(dir_ / "initial_state" / file, std::ios::binary)
        .write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(int32_t)));
  }
  Status Load(const std::string& initial, const char* text = kSum) {
    const ::inference::ModelConfig config = Config(text, initial);
    RETURN_IF_ERROR(CheckSequenceStates(config));
    ASSIGN_OR_RETURN(auto states, SequenceStates::Make(config, dir_));
    ASSIGN_OR_RETURN(auto executable, MakeConformance(config));
    model_ = InstanceModel::Create(config, "1", std::move(executable), Clock::System(), nullptr,
                                   std::move(states));
    return Status::Ok();
  }
  // OUTPUT1, which is INPUT0 minus the state.
  std::vector<int32_t> Infer(std::vector<int32_t> values, uint64_t sequence, bool start = false,
                             bool end = false) {
    Request request = MakeRequest({Ids("INPUT0", std::move(values))});
    request.sequence_id = sequence;
    request.sequence_start = start;
    request.sequence_end = end;
    Collector got;
    model_->Infer(std::move(request), got.Handler());
    got.WaitFinal();
    status_ = got.status();
    const Tensor* output = Collector::Find(got.last(), "OUTPUT1");
    has_state_output_ = Collector::Find(got.last(), "OUTPUT0") != nullptr;
    return output == nullptr ? std::vector<int32_t>() : ValuesOf<int32_t>(*output);
  }

  std::filesystem::path dir_;
  std::shared_ptr<InstanceModel> model_;
  Status status_;
  bool has_state_output_ = false;
};

constexpr char kZeros[] = "initial_state { data_type: TYPE_INT32 dims: 2 zero_data: true }";

TEST_F(SequenceStatesTest, AResponseLeavesWhatTheNextRequestSees) {
  ASSERT_TRUE(Load(kZeros).ok());
  EXPECT_THAT(Infer({5, 7}, 1, /*start=*/true), ElementsAre(5, 7));
  EXPECT_FALSE(has_state_output_);  // it is no output of the model
  EXPECT_THAT(Infer({1, 1}, 1), ElementsAre(1 - 5, 1 - 7));
  EXPECT_THAT(Infer({2, 3}, 2, /*start=*/true), ElementsAre(2, 3));  // another sequence
  EXPECT_THAT(Infer({0, 0}, 1), ElementsAre(-6, -8));
  EXPECT_THAT(Infer({9, 9}, 1, /*start=*/true), ElementsAre(9, 9));  // the same, anew
  EXPECT_THAT(Infer({0, 0}, 1, false, /*end=*/true), ElementsAre(-9, -9));
  EXPECT_THAT(Infer({4, 4}, 1, /*start=*/true), ElementsAre(4, 4));
}

TEST_F(SequenceStatesTest, TheFirstStateMayComeFromAFile) {
  Write("first", {100, 200});
  ASSERT_TRUE(
      Load("initial_state { data_type: TYPE_INT32 dims: 2 data_file: 'first' name: 'f' }").ok());
  EXPECT_THAT(Infer({1, 2}, 1, /*start=*/true), ElementsAre(-99, -198));
  EXPECT_THAT(Infer({0, 0}, 1), ElementsAre(-101, -202));
}

TEST_F(SequenceStatesTest, AStateThatIsAnOutputGoesToTheClientToo) {
  std::string text = kSum;
  text += "output { name: 'OUTPUT0' data_type: TYPE_INT32 dims: 2 }";
  ASSERT_TRUE(Load(kZeros, text.c_str()).ok());
  Infer({5, 7}, 1, /*start=*/true);
  EXPECT_TRUE(has_state_output_);
}

// The model's error leaves the state as it was; so does an output that is not what was announced.
TEST_F(SequenceStatesTest, AFailedRequestLeavesNothing) {
  ASSERT_TRUE(Load(kZeros).ok());
  Infer({5, 7}, 1, /*start=*/true);
  Infer({5, 7, 9}, 1);  // addsub: INPUT1 has two elements
  EXPECT_FALSE(status_.ok());
  EXPECT_THAT(Infer({0, 0}, 1), ElementsAre(-5, -7));
  std::string text = kSum;
  text.replace(text.find("TYPE_INT32 dims: -1"), 19, "TYPE_UINT32 dims: -1");
  ASSERT_TRUE(
      Load("initial_state { data_type: TYPE_UINT32 dims: 2 zero_data: true }", text.c_str()).ok());
  Infer({5, 7}, 1, /*start=*/true);
  EXPECT_EQ(status_.message(),
            "state 'OUTPUT0' is INT32 [1,2], its configuration says UINT32 [1,-1]");
}

TEST_F(SequenceStatesTest, WrongConfigurationsSayWhatIsWrong) {
  const auto error = [&](const std::string& initial) { return Load(initial).message(); };
  const std::string where = "sequence batching state 'INPUT1' of model 'sum'";
  EXPECT_EQ(error("initial_state { data_type: TYPE_INT32 dims: 2 }"),
            where + ": its initial state must have zero_data or data_file");
  EXPECT_EQ(error("initial_state { data_type: TYPE_INT64 dims: 2 zero_data: true }"),
            where + ": its initial state must have its data_type");
  EXPECT_EQ(error("initial_state { data_type: TYPE_INT32 dims: -1 zero_data: true }"),
            where + ": its initial state must have fixed dims that fit the state's");
  EXPECT_THAT(error(std::string(kZeros) + kZeros), HasSubstr("at most one is possible"));
  EXPECT_THAT(error("use_growable_memory: true"), HasSubstr("use_growable_memory is of GPUs"));
  const std::string from_file = "initial_state { data_type: TYPE_INT32 dims: 2 data_file: ";
  EXPECT_THAT(error(from_file + "'none' }"), HasSubstr("initial_state/none"));
  EXPECT_THAT(error(from_file + "'../none' }"),
              HasSubstr("data_file: '../none' lies outside of the model's initial_state"));
  Write("short", {1});
  EXPECT_EQ(error(from_file + "'short' }"), where + ": got 4 bytes, expected 8");
  const auto of = [&](const std::string& state) {
    return CheckSequenceStates(
               Config("name: 'sum' input { name: 'I' } sequence_batching { " + state + " }", ""))
        .message();
  };
  EXPECT_THAT(of("state { input_name: 'A' }"), HasSubstr("must have input_name and output_name"));
  EXPECT_THAT(of("state { input_name: 'A' output_name: 'B' dims: 1 }"), HasSubstr("data_type"));
  EXPECT_THAT(of("state { input_name: 'I' output_name: 'B' data_type: TYPE_INT8 dims: 1 }"),
              HasSubstr("an input of the model has its input_name"));
  const std::string once =
      "state { input_name: 'A' output_name: 'B' data_type: TYPE_INT8 dims: 1 }";
  EXPECT_EQ(of(once), "");
  EXPECT_THAT(of(once + once), HasSubstr("another state has its input_name or output_name"));
}

}  // namespace
}  // namespace inflight::serving
