// SPDX-License-Identifier: Apache-2.0
// What calls take is charged to the account of memory, and a request for no model takes nothing.
#include <gmock/gmock.h>

#include <string>

#include "protocol/kserve/grpc/grpc_test_fixture.h"

namespace inflight::kserve_grpc {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMib = size_t{1} << 20;

class GrpcMemoryTest : public GrpcServerTest {
 protected:
  void SetUp() override { Start({.memory = memory_}); }
  void ExpectAllReturned() const {
    for (int i = 0; i < 10'000 && memory_->used_bytes() > 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(memory_->used_bytes(), 0U);
  }
  static ::inference::ModelInferRequest LargeRequest(const std::string& model, size_t num_bytes) {
    auto request = Request(model, "large");
    request.set_raw_input_contents(0, std::string(num_bytes, 'x'));
    return request;
  }

  const std::shared_ptr<MemoryAccount> memory_ = MemoryAccount::Make(MemoryLimits::Of(16 * kMib));
};

TEST_F(GrpcMemoryTest, ARunningRequestHoldsItsMessage) {
  ::grpc::ClientContext context;
  ::inference::ModelInferResponse response;
  auto status = Infer(context, LargeRequest("single", 3 * kMib), response);
  {
    const ReceivedRequest received = *single_->Take();
    EXPECT_GE(memory_->used_bytes(), 3 * kMib);
    EXPECT_LE(memory_->used_bytes(), 4 * kMib);
    context.TryCancel();
    received.Respond({.status = Cancelled("enough"), .is_final = true});
  }
  EXPECT_FALSE(status.get().ok());
  ExpectAllReturned();
}

// A connection may have 8 MiB: one message does not fit as it comes, one with what it is parsed to.
TEST_F(GrpcMemoryTest, AMessageThatHasNoRoomIsRefused) {
  for (const auto& [num_bytes, words] :
       {std::pair(9 * kMib, "8: the requests under way of this connection would take more than"),
        std::pair(5 * kMib, "8: the requests under way leave no room")}) {
    const uint64_t num_refused = memory_->num_refused();
    EXPECT_THAT(InferError(LargeRequest("single", num_bytes)), HasSubstr(words));
    EXPECT_EQ(memory_->num_refused(), num_refused + 1);
    ExpectAllReturned();
    Stream stream(*stub_);
    stream.Write(LargeRequest("many", num_bytes));
    EXPECT_EQ(stream.Read(), "end");
    EXPECT_EQ(stream.Finish().error_code(), ::grpc::StatusCode::RESOURCE_EXHAUSTED);
    ExpectAllReturned();
  }
}

// It is told so by its name, before room is asked for what it would be parsed to.
TEST_F(GrpcMemoryTest, AMessageForNoModelIsNotParsed) {
  const std::string error = InferError(LargeRequest("none", 5 * kMib));
  EXPECT_EQ(error, InferError(Request("none", "small")));
  EXPECT_THAT(error, HasSubstr("none"));
  Stream stream(*stub_);
  stream.Write(LargeRequest("none", 5 * kMib));
  EXPECT_THAT(stream.Read(), ::testing::StartsWith("large!"));
  stream.HalfClose();
  EXPECT_EQ(stream.Read(), "end");
  EXPECT_EQ(memory_->num_refused(), 0U);
  ExpectAllReturned();
}

// Until its last call is over; the channel stays.
TEST_F(GrpcMemoryTest, WhatAConnectionReadsIntoIsCharged) {
  Stream stream(*stub_);
  stream.Write(LargeRequest("none", 5 * kMib));
  EXPECT_THAT(stream.Read(), ::testing::StartsWith("large!"));
  for (int i = 0; i < 10'000 && memory_->used_bytes() > kMib; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_GE(memory_->used_bytes(), kMib / 16);
  EXPECT_LE(memory_->used_bytes(), kMib);
  stream.HalfClose();
  EXPECT_EQ(stream.Read(), "end");
  ExpectAllReturned();
  EXPECT_THAT(InferError(Request("none", "small")), HasSubstr("none"));
}

TEST_F(GrpcMemoryTest, WhatAStreamsReaderLeavesIsCharged) {
  Stream stream(*stub_);
  stream.Write(Request("many", "r"));
  {
    const ReceivedRequest received = *many_->Take();
    const std::string text(kMib, 'x');
    for (int i = 0; i < 40; ++i) received.RespondText(text, /*is_final=*/false);
    EXPECT_TRUE(IsCancelled(received));
    received.Respond({.status = Cancelled("enough"), .is_final = true});
  }
  while (stream.Read() != "end") {
  }
  EXPECT_EQ(stream.Finish().error_code(), ::grpc::StatusCode::RESOURCE_EXHAUSTED);
  ExpectAllReturned();
}

}  // namespace
}  // namespace inflight::kserve_grpc
