// SPDX-License-Identifier: Apache-2.0
#include "serving/sequences/sequence_table.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "serving/core/input_values.h"

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
        config, clock_, [this](QueuedRequest item, const Status& status) {
          given_up_.push_back(item.request.id + ": " + status.message());
        });
    for (int i = 0; i < num_instances; ++i) AddInstance();
  }
  int AddInstance() {
    const std::string at = "@" + std::to_string(num_instances_++);
    return table_->AddInstance([this, at](QueuedRequest item) {
      ran_.push_back(item.request.id + at);
      slots_.push_back(item.slot);
      last_fate_ = item.fate;
      last_ = std::move(item.request);
    });
  }
  void RemoveInstance(int instance) {
    table_->RemoveInstance(
        instance, [this, instance] { ran_.push_back("gone@" + std::to_string(instance)); });
  }
  Status Add(const std::string& id, uint64_t sequence, bool start = false, bool end = false) {
    QueuedRequest item;
    item.request.id = id;
    item.request.sequence_id = sequence;
    item.request.sequence_start = start;
    item.request.sequence_end = end;
    item.request.client = client_;
    item.request.timeout_us = timeout_us_;
    cancels_[id] = item.request.cancel;
    const int32_t zero = 0;
    item.request.inputs.push_back(
        Tensor::FromValues<int32_t>("INPUT", DataType::kInt32, {1, 1}, {&zero, 1}));
    return table_->Add(item);
  }

  ManualClock clock_;
  std::unique_ptr<SequenceTable> table_;
  int num_instances_ = 0;
  std::vector<std::string> ran_, given_up_;
  std::map<std::string, std::shared_ptr<CancelToken>> cancels_;  // by request id
  std::vector<int> slots_;                                       // of those that ran
  std::shared_ptr<SequenceFate> last_fate_;                      // of the last of them
  uint64_t timeout_us_ = 0;                                      // of what is added next
  std::shared_ptr<const Client> client_;                         // of it too
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

TEST_F(SequenceTableTest, EachIdentityHasSequencesOfItsOwn) {
  Make("");
  EXPECT_TRUE(Add("a1", 7, true).ok());
  client_ = std::make_shared<Client>(Client{.identity = {1}, .name = "b"});
  EXPECT_THAT(Add("b0", 7, false, /*end=*/true).message(), HasSubstr("must specify the START"));
  EXPECT_TRUE(Add("b1", 7, true).ok());
  EXPECT_TRUE(Add("b2", 7, false, /*end=*/true).ok());
  client_ = nullptr;
  EXPECT_TRUE(Add("a2", 7, false, /*end=*/true).ok());
  EXPECT_THAT(ran_, ElementsAre("a1@0", "b1@0", "b2@0", "a2@0"));
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

TEST_F(SequenceTableTest, WhoWaitsGetsTheSlotOfAnIdleSequenceWithoutANewRequest) {
  Make("", 1, /*max_batch_size=*/1);
  EXPECT_TRUE(Add("a", 1, true).ok());
  EXPECT_TRUE(Add("b", 2, true).ok());
  table_->Tick();
  EXPECT_THAT(ran_, ElementsAre("a@0"));
  clock_.AdvanceNs(1'000'001);
  table_->Tick();
  EXPECT_THAT(ran_, ElementsAre("a@0", "b@0"));
}

TEST_F(SequenceTableTest, ANewSequenceGoesBehindThoseThatWait) {
  Make("", 1, /*max_batch_size=*/1);
  EXPECT_TRUE(Add("a", 1, true).ok());
  EXPECT_TRUE(Add("b", 2, true, /*end=*/true).ok());
  clock_.AdvanceNs(1'000'001);
  EXPECT_TRUE(Add("c", 3, true).ok());
  EXPECT_THAT(ran_, ElementsAre("a@0", "b@0", "c@0"));
}

TEST_F(SequenceTableTest, ACancelledRequestWaitsNoLonger) {
  Make("", 1, /*max_batch_size=*/1);
  EXPECT_TRUE(Add("a", 1, true).ok());
  EXPECT_TRUE(Add("b1", 2, true).ok());
  EXPECT_TRUE(Add("b2", 2).ok());
  EXPECT_TRUE(Add("c1", 3, true).ok());
  EXPECT_TRUE(Add("c2", 3).ok());
  EXPECT_TRUE(Add("d1", 4, true).ok());
  cancels_["b1"]->Cancel();  // and with it the sequence
  cancels_["c2"]->Cancel();
  table_->Tick();
  EXPECT_THAT(
      given_up_,
      ElementsAre("b1: the request was cancelled before it ran", "b2: its sequence was cancelled",
                  "c1: its sequence was cancelled", "c2: the request was cancelled before it ran"));
  EXPECT_TRUE(Add("end", 1, false, true).ok());
  EXPECT_THAT(ran_, ElementsAre("a@0", "end@0", "d1@0"));
}

// As an instance finds out that it was cancelled (instance_model.cc).
TEST_F(SequenceTableTest, ACancelledSequenceEndsAndBeginsAnew) {
  Make("", 1, /*max_batch_size=*/1);
  EXPECT_TRUE(Add("a1", 1, true).ok());
  EXPECT_TRUE(Add("b1", 2, true).ok());
  last_fate_->is_cancelled = true;
  table_->Tick();
  EXPECT_THAT(ran_, ElementsAre("a1@0", "b1@0"));
  EXPECT_EQ(Add("a2", 1).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Add("end", 2, false, true).ok());
  EXPECT_TRUE(Add("a3", 1, true).ok());
  EXPECT_FALSE(last_fate_->is_cancelled);
}

TEST_F(SequenceTableTest, TheLowestFreeSlotIsTaken) {
  Make("", 1, /*max_batch_size=*/3);
  EXPECT_TRUE(Add("a", 1, true).ok());
  EXPECT_TRUE(Add("b", 2, true).ok());
  EXPECT_TRUE(Add("c", 3, true).ok());
  EXPECT_TRUE(Add("b", 2, false, true).ok());
  EXPECT_TRUE(Add("d", 4, true).ok());
  EXPECT_TRUE(Add("c", 3).ok());
  EXPECT_THAT(slots_, ElementsAre(0, 1, 2, 1, 1, 2));
}

TEST_F(SequenceTableTest, ASequenceWaitsAsLongAsItsRequestsAllow) {
  Make("", 1, /*max_batch_size=*/1);
  EXPECT_TRUE(Add("a", 1, true).ok());
  timeout_us_ = 500;
  EXPECT_TRUE(Add("b1", 2, true).ok());
  timeout_us_ = 0;
  EXPECT_TRUE(Add("b2", 2).ok());
  clock_.AdvanceNs(499'999);
  table_->Tick();
  EXPECT_TRUE(given_up_.empty());
  clock_.AdvanceNs(1);
  table_->Tick();
  EXPECT_THAT(given_up_, ElementsAre("b1: timeout of the corresponding sequence has been expired",
                                     "b2: timeout of the corresponding sequence has been expired"));
}

TEST_F(SequenceTableTest, SoManyMayWait) {
  Make("", 1, /*max_batch_size=*/1);
  EXPECT_TRUE(Add("a", 1, true).ok());
  for (uint64_t i = 0; i < SequenceTable::kMaxWaiting; ++i) {
    ASSERT_TRUE(Add("b", 2, /*start=*/i == 0).ok()) << i;
  }
  const Status status = Add("c", 3, true);
  EXPECT_EQ(status, Unavailable("Exceeds maximum queue size").WithReason(Reason::kQueueFull));
  EXPECT_TRUE(Add("a2", 1).ok());  // its sequence has a slot
}

TEST_F(SequenceTableTest, WhoWaitsGetsTheSlotsOfANewInstance) {
  Make("", 1, /*max_batch_size=*/1);
  EXPECT_TRUE(Add("a", 1, true).ok());
  EXPECT_TRUE(Add("b1", 2, true).ok());
  EXPECT_TRUE(Add("b2", 2).ok());
  AddInstance();
  EXPECT_TRUE(Add("b3", 2).ok());
  EXPECT_THAT(ran_, ElementsAre("a@0", "b1@1", "b2@1", "b3@1"));
}

TEST_F(SequenceTableTest, AnInstanceGoesWhenItsSequencesHaveEnded) {
  Make("", /*num_instances=*/2);
  EXPECT_TRUE(Add("a1", 1, true).ok());
  EXPECT_TRUE(Add("b1", 2, true).ok());
  EXPECT_TRUE(Add("c1", 3, true).ok());
  RemoveInstance(0);
  EXPECT_TRUE(Add("d1", 4, true).ok());  // of the free slots, one of those that stay
  EXPECT_TRUE(Add("e1", 5, true).ok());  // none is left, although one of the other instance is free
  EXPECT_TRUE(Add("a2", 1).ok());
  EXPECT_TRUE(Add("c2", 3, false, /*end=*/true).ok());
  EXPECT_TRUE(Add("a3", 1, false, /*end=*/true).ok());
  EXPECT_TRUE(Add("b2", 2, false, /*end=*/true).ok());
  EXPECT_THAT(ran_, ElementsAre("a1@0", "b1@1", "c1@0", "d1@1", "a2@0", "c2@0", "a3@0", "gone@0",
                                "b2@1", "e1@1"));
}

TEST_F(SequenceTableTest, AnInstanceGoesWhenItsSequencesFallIdle) {
  Make("", /*num_instances=*/2, /*max_batch_size=*/1);
  EXPECT_TRUE(Add("a", 1, true).ok());
  RemoveInstance(1);  // has none
  RemoveInstance(0);
  EXPECT_THAT(ran_, ElementsAre("a@0", "gone@1"));
  clock_.AdvanceNs(1'000'001);
  table_->Tick();
  EXPECT_THAT(ran_, ElementsAre("a@0", "gone@1", "gone@0"));
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
