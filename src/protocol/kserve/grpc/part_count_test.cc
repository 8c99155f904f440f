// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/part_count.h"

#include <gmock/gmock.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>

#include <string>

#include "grpc_service.pb.h"

namespace inflight::kserve_grpc {
namespace {

using ::inference::ModelInferRequest;

bool HasFew(const std::string& bytes) {
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  return !CountParts(stream, *ModelInferRequest::descriptor()).IsTooLarge();
}

TEST(PartCount, EverySubmessageCounts) {
  ModelInferRequest top, nested;
  for (int64_t i = 0; i < kMaxSubmessages; ++i) top.add_inputs();
  EXPECT_TRUE(HasFew(top.SerializeAsString()));
  top.add_outputs();
  EXPECT_FALSE(HasFew(top.SerializeAsString()));
  auto& parameters = *nested.add_inputs()->mutable_parameters();  // an entry and its value each
  for (int64_t i = 0; i < kMaxSubmessages / 2; ++i) parameters[std::to_string(i)];
  EXPECT_FALSE(HasFew(nested.SerializeAsString()));
  parameters.erase("0");
  EXPECT_TRUE(HasFew(nested.SerializeAsString()));
}

TEST(PartCount, TextsAndUnknownFieldsCount) {
  ModelInferRequest message;
  auto& contents = *message.add_inputs()->mutable_contents();
  for (int64_t i = 0; i < kMaxTexts; ++i) contents.add_bytes_contents();
  EXPECT_TRUE(HasFew(message.SerializeAsString()));
  EXPECT_FALSE(HasFew(message.SerializeAsString() + "\xa8\x06\x01"));  // field 101, a number
  contents.add_bytes_contents();
  EXPECT_FALSE(HasFew(message.SerializeAsString()));
}

TEST(PartCount, TellsWhichModelIsMeant) {
  ModelInferRequest message;
  message.set_model_name("m");
  message.set_model_version("3");
  message.set_id("request");
  message.add_inputs()->set_name("not the model's");
  message.add_raw_input_contents("raw");
  const std::string bytes = message.SerializeAsString() + "\x0a\x03two";  // model_name again
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  const PartCount count = CountParts(stream, *ModelInferRequest::descriptor());
  EXPECT_THAT(count.first_texts, testing::ElementsAre("two", "3", "request"));
  EXPECT_EQ(count.num_submessages, 1);
}

TEST(PartCount, NumbersAndBytesDoNot) {
  ModelInferRequest message;
  auto& input = *message.add_inputs();
  input.mutable_contents()->mutable_fp32_contents()->Resize(kMaxTexts + 1, 1.0F);
  input.mutable_shape()->Resize(kMaxTexts + 1, 1);
  message.add_raw_input_contents(std::string(1 << 24, 'x'));
  EXPECT_TRUE(HasFew(message.SerializeAsString()));
}

TEST(PartCount, WhatIsNoMessageIsTheParsersAffair) {
  EXPECT_TRUE(HasFew(""));
  EXPECT_TRUE(HasFew("\x2a\x05"));          // an input that ends early
  EXPECT_TRUE(HasFew("\x2a\x02\x0a\x05"));  // a name longer than its input
  EXPECT_TRUE(HasFew(std::string(1000, '\xff')));
}

}  // namespace
}  // namespace inflight::kserve_grpc
