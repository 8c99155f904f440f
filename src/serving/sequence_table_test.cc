// SPDX-License-Identifier: Apache-2.0
#include "serving/sequence_table.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "serving/tensor_values.h"

namespace inflight::serving {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kControls[] = R"(
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
  control_input { name: "END" control { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 1 ] } }
  control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] } }
  control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } })";

class SequenceTableTest : public ::testing::Test {
 protected:
  void Make(const std::string& batching, int num_instances = 1, int max_batch_size = 2) {
    ::inference::ModelConfig config;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        "name: 'm' max_batch_size: " + std::to_string(max_batch_size) +
            " sequence_batching { max_sequence_idle_microseconds: 1000 " + batching + " }",
        &config));
    table_ = std::make_unique<SequenceTable>(
        config, num_instances, clock_, [this](QueuedRequest item, int instance) {
          ran_.push_back(item.request.id + "@" + std::to_string(instance));
          last_ = std::move(item.request);
        });
  }
  Status Add(const std::string& id, uint64_t sequence, bool start = false, bool end = false) {
    QueuedRequest item;
    item.request.id = id;
    item.request.sequence_id = sequence;
    item.request.sequence_start = start;
    item.request.sequence_end = end;
    const int32_t zero = 0;
    item.request.inputs.push_back(
        Tensor::FromValues<int32_t>("INPUT", DataType::kInt32, {1, 1}, {&zero, 1}));
    return table_->Add(item);
  }

  ManualClock clock_;
  std::unique_ptr<SequenceTable> table_;
  std::vector<std::string> ran_;
  Request last_;
};

TEST_F(SequenceTableTest, ASequenceBeginsWithStart) {
  Make("");
  const Status status = Add("a", 7);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "inference request for sequence 7 to model 'm' must specify the START flag on the "
            "first request of the sequence");
  EXPECT_TRUE(Add("b", 7, /*start=*/true).ok());
  EXPECT_TRUE(Add("c", 7).ok());
  EXPECT_TRUE(Add("d", 7, false, /*end=*/true).ok());
  EXPECT_FALSE(Add("e", 7).ok());
  EXPECT_THAT(ran_, ElementsAre("b@0", "c@0", "d@0"));
}

TEST_F(SequenceTableTest, ARequestNeedsASequence) {
  Make("");
  EXPECT_THAT(Add("a", 0, true).message(), HasSubstr("non-zero or non-empty correlation ID"));
}

TEST_F(SequenceTableTest, SequencesBeyondTheSlotsWaitAndKeepTheirOrder) {
  Make("", /*num_instances=*/1, /*max_batch_size=*/2);
  EXPECT_TRUE(Add("a", 1, true).ok());
  EXPECT_TRUE(Add("b", 2, true).ok());
  EXPECT_TRUE(Add("c1", 3, true).ok());
  EXPECT_TRUE(Add("c2", 3, false, true).ok());
  EXPECT_TRUE(Add("d", 4, true).ok());
  EXPECT_THAT(ran_, ElementsAre("a@0", "b@0"));
  EXPECT_TRUE(Add("end", 1, false, true).ok());
  EXPECT_THAT(ran_, ElementsAre("a@0", "b@0", "end@0", "c1@0", "c2@0", "d@0"));
}

TEST_F(SequenceTableTest, TheOldestStrategyHasItsOwnNumberOfSlots) {
  Make("oldest { max_candidate_sequences: 1 }", 1, /*max_batch_size=*/4);
  EXPECT_TRUE(Add("a", 1, true).ok());
  EXPECT_TRUE(Add("b", 2, true).ok());
  EXPECT_THAT(ran_, ElementsAre("a@0"));
}

TEST_F(SequenceTableTest, ASequenceStaysOnItsInstance) {
  Make("", /*num_instances=*/2);
  EXPECT_TRUE(Add("a", 1, true).ok());
  EXPECT_TRUE(Add("b", 2, true).ok());
  EXPECT_TRUE(Add("a2", 1).ok());
  EXPECT_TRUE(Add("b2", 2).ok());
  EXPECT_THAT(ran_, ElementsAre("a@0", "b@1", "a2@0", "b2@1"));
}

TEST_F(SequenceTableTest, AnIdleSequenceGivesItsSlotBack) {
  Make("", 1, /*max_batch_size=*/1);
  EXPECT_TRUE(Add("a", 1, true).ok());
  clock_.AdvanceNs(1'000'001);
  EXPECT_TRUE(Add("b", 2, true).ok());
  EXPECT_THAT(ran_, ElementsAre("a@0", "b@0"));
  EXPECT_FALSE(Add("a2", 1).ok());
}

TEST_F(SequenceTableTest, ControlsFollowTheInputs) {
  Make(kControls);
  EXPECT_TRUE(Add("a", 12, true).ok());
  ASSERT_EQ(last_.inputs.size(), 5U);
  EXPECT_EQ(FirstOr<int32_t>(last_, "START", -1), 1);
  EXPECT_EQ(FirstOr<float>(last_, "END", -1), 0.0F);
  EXPECT_EQ(FirstOr<uint8_t>(last_, "READY", 9), 1);
  EXPECT_EQ(last_.FindInput("ID")->Strings()->front(), "12");
  EXPECT_THAT(last_.FindInput("ID")->shape, ElementsAre(1, 1));
}

}  // namespace
}  // namespace inflight::serving
