// SPDX-License-Identifier: Apache-2.0
// What a message holds while it grows is charged to who asked for it.
#include "protocol/openai/message_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/memory_account.h"
#include "protocol/openai/start_answer.h"
#include "serving/core/generation.h"

namespace inflight::openai {
namespace {

using testing::HasSubstr;

// Keeps its texts, and notes how it ended.
class KeepingWriter final : public MessageWriter {
 public:
  struct Seen {
    std::string text;
    Status failed;
    bool has_ended = false;
  };

  explicit KeepingWriter(Seen& seen) : seen_(seen) {}

  void Begin(const MessageUsage&) override {}
  void Open(answer_parts::Part::Kind, std::string_view) override {}
  void Append(std::string_view text) override { seen_.text.append(text); }
  void Close(bool) override {}
  void Step() override {}
  size_t held_bytes() const override { return seen_.text.size(); }
  void End(const MessageEnd&) override { seen_.has_ended = true; }
  void Fail(const Status& status) override { seen_.failed = status; }

 private:
  Seen& seen_;
};

class MessageAnswerTest : public testing::Test {
 protected:
  // `most`: that a connection may hold.
  void Start(size_t most) {
    MemoryLimits limits;
    limits.connection_bytes = most;
    account_ = MemoryAccount::Make(limits);
    const MakeSink make =
        AnswerByMessage([this](const Started&) { return std::make_unique<KeepingWriter>(seen_); });
    sink_ = make({.cancels = {cancel_},
                  .begins_in = std::make_shared<answer_parts::BeginsIn>(),
                  .memory = account_->NewConnection("client", [] {})});
  }
  void Say(const std::string& text, bool is_final = false) {
    auto generated = std::make_shared<serving::Generated>();
    generated->text = text;
    generated->response.is_sequence_final = is_final;
    serving::Response response;
    response.is_final = is_final;
    response.generated = std::move(generated);
    sink_->OnResponse(0, response);
  }

  KeepingWriter::Seen seen_;
  const std::shared_ptr<serving::CancelToken> cancel_ = std::make_shared<serving::CancelToken>();
  std::shared_ptr<MemoryAccount> account_;
  std::shared_ptr<AnswerSink> sink_;
};

TEST_F(MessageAnswerTest, WhatItHoldsIsChargedUntilItEnds) {
  Start(size_t{1} << 20);
  for (int i = 0; i < 10; ++i) Say(std::string(10'000, 'x'));
  EXPECT_GE(account_->used_bytes(), 100'000U);
  Say("", /*is_final=*/true);
  EXPECT_TRUE(seen_.has_ended);
  sink_.reset();
  EXPECT_EQ(account_->used_bytes(), 0U);
}

TEST_F(MessageAnswerTest, OneThatHasNoRoomEndsAndIsNotGeneratedFurther) {
  Start(64 * 1024);
  for (int i = 0; i < 6; ++i) Say(std::string(10'000, 'x'));
  EXPECT_TRUE(seen_.failed.ok());
  Say(std::string(10'000, 'x'));
  EXPECT_EQ(seen_.failed.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(seen_.failed.message(), HasSubstr("--request-memory-byte-size"));
  EXPECT_TRUE(cancel_->cancelled());
  Say("more", /*is_final=*/true);
  EXPECT_FALSE(seen_.has_ended);
  EXPECT_EQ(seen_.text.size(), 70'000U);
}

}  // namespace
}  // namespace inflight::openai
