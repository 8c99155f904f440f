// SPDX-License-Identifier: Apache-2.0
// Captures over a profiler of the test, and by a server over fake executors.
#include "serving/server/profile_capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "serving/testing/server_test_fixture.h"

namespace inflight::serving {
namespace {

using ::testing::HasSubstr;

// Has a turn from the start of each profile; tells when one begins.
class OneTurnProfiler : public StepProfiler {
 public:
  bool Begin(int64_t begin_ns, size_t max_turns) override {
    const std::lock_guard lock(mutex_);
    turn_.begin_ns = begin_ns;
    turn_.num_tokens_generated = 5;
    turn_.num_phases = 1;
    turn_.phases[0] = TurnPhase::kCollect;
    turn_.ends_ns[0] = begin_ns + 10;
    max_turns_ = max_turns;
    is_on_ = true;
    began_.notify_all();
    return true;
  }
  StepProfile End() override {
    const std::lock_guard lock(mutex_);
    if (!is_on_) return {};
    is_on_ = false;
    return {.turns = {turn_}};
  }
  size_t WaitForBegin() {
    std::unique_lock lock(mutex_);
    began_.wait(lock, [this] { return is_on_; });
    return max_turns_;
  }
  bool is_on() {
    const std::lock_guard lock(mutex_);
    return is_on_;
  }
  size_t max_turns() {
    const std::lock_guard lock(mutex_);
    return max_turns_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable began_;
  bool is_on_ = false;
  size_t max_turns_ = 0;
  TurnProfile turn_;
};

using Answer = std::future<Result<ProfileText>>;

class ProfileCaptureTest : public ::testing::Test {
 protected:
  static ProfileHandler Into(Answer& answer) {
    auto promise = std::make_shared<std::promise<Result<ProfileText>>>();
    answer = promise->get_future();
    return [promise](Result<ProfileText> text) { promise->set_value(std::move(text)); };
  }

  Answer Start(ProfileRequest request) {
    Answer answer;
    std::vector<ProfiledLoop> loops;
    for (const auto& profiler : profilers_) {
      loops.push_back(
          {.facts = {.model = "m", .version = "1", .device = "cpu"}, .profiler = profiler});
    }
    capture_.Start(std::move(request), std::move(loops), Into(answer));
    return answer;
  }

  std::vector<std::shared_ptr<OneTurnProfiler>> profilers_{std::make_shared<OneTurnProfiler>()};
  ProfileCapture capture_;
};

constexpr int64_t kEndless = kMaxProfileMs;

TEST_F(ProfileCaptureTest, AnswersWithTheTurnsOfItsTime) {
  profilers_.push_back(std::make_shared<OneTurnProfiler>());
  const auto text = Start({.duration_ms = 1}).get();
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  EXPECT_THAT(**text, HasSubstr(R"("tokens_generated":5)"));
  EXPECT_THAT(**text, HasSubstr(R"("ended_by":"duration")"));
  EXPECT_THAT(**text, HasSubstr(R"("tid":2)"));
  for (const auto& profiler : profilers_) {
    EXPECT_FALSE(profiler->is_on());
    EXPECT_EQ(profiler->max_turns(), ProfileCapture::kMaxTurns / 2);
  }
}

TEST_F(ProfileCaptureTest, OneAtATimeAndTheNextRightBehindIt) {
  const ProfileRequest request = {.duration_ms = kEndless};
  Answer first = Start(request);
  profilers_[0]->WaitForBegin();
  const auto refused = Start({.duration_ms = 1}).get();
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.status().reason(), Reason::kOverLimit);
  EXPECT_GE(refused.status().retry_after_s(), 1);
  EXPECT_LE(refused.status().retry_after_s(), 61);
  EXPECT_THAT(refused.status().message(), HasSubstr("another profile is being taken"));
  EXPECT_TRUE(profilers_[0]->is_on()) << "the first goes on";
  request.cancel->Cancel();
  EXPECT_EQ(first.get().status().code(), StatusCode::kCancelled);
  EXPECT_FALSE(profilers_[0]->is_on());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Start({.duration_ms = 1}).get().ok());
}

TEST_F(ProfileCaptureTest, AClientThatHasGoneBeforeItBeganEndsIt) {
  const ProfileRequest request = {.duration_ms = kEndless};
  request.cancel->Cancel();
  EXPECT_EQ(Start(request).get().status().code(), StatusCode::kCancelled);
}

TEST_F(ProfileCaptureTest, TheEndOfTheServerAnswersWithWhatThereIs) {
  Answer answer = Start({.duration_ms = kEndless});
  profilers_[0]->WaitForBegin();
  capture_.Stop();
  const auto text = answer.get();
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(**text, HasSubstr(R"("ended_by":"exit")"));
  EXPECT_EQ(Start({.duration_ms = 1}).get().status().code(), StatusCode::kUnavailable);
}

TEST_F(ProfileCaptureTest, TurnsAndTextAreChargedAndGivenBack) {
  const auto account = MemoryAccount::Make(MemoryLimits::Of(size_t{1} << 30));
  const ProfileRequest request = {.duration_ms = kEndless,
                                  .memory = account->NewConnection("client", [] {})};
  Answer answer = Start(request);
  EXPECT_EQ(profilers_[0]->WaitForBegin(), ProfileCapture::kMaxTurns);
  EXPECT_GE(account->used_bytes(),
            ProfileCapture::kMaxTurns * (sizeof(TurnProfile) + kMaxTurnJsonBytes));
  capture_.Stop();
  auto text = answer.get();
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(account->used_bytes(), (*text)->size());
  text = Internal("let go");
  EXPECT_EQ(account->used_bytes(), 0U);
}

TEST_F(ProfileCaptureTest, LittleMemoryIsRoomForFewTurnsAndLessIsRefused) {
  const auto account = MemoryAccount::Make(MemoryLimits::Of(size_t{4} << 20));
  const auto memory = account->NewConnection("client", [] {});
  ASSERT_TRUE(Start({.duration_ms = 1, .memory = memory}).get().ok());
  const size_t max_turns = profilers_[0]->max_turns();
  EXPECT_LT(max_turns, ProfileCapture::kMaxTurns / 8);
  EXPECT_GE(max_turns, ProfileCapture::kMinTurns);

  const auto least = MemoryAccount::Make(MemoryLimits::Of(size_t{64} << 10));
  const auto refused =
      Start({.duration_ms = 1, .memory = least->NewConnection("client", [] {})}).get();
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(least->used_bytes(), 0U);
  EXPECT_TRUE(Start({.duration_ms = 1, .memory = memory}).get().ok()) << "it holds up no other";
}

class ServerProfileTest : public ServerTest {
 protected:
  static Result<ProfileText> Capture(Server& server, ProfileRequest request) {
    std::promise<Result<ProfileText>> text;
    server.CaptureProfile(std::move(request),
                          [&](Result<ProfileText> got) { text.set_value(std::move(got)); });
    return text.get_future().get();
  }
};

TEST_F(ServerProfileTest, ModelsAreFoundByTheirNames) {
  const auto server = Serve({.model_dirs = {ModelDir()}});
  ASSERT_NE(server, nullptr);
  const Result<ProfileText> without = Capture(*server, {.duration_ms = 1});
  EXPECT_EQ(without.status().code(), StatusCode::kFailedPrecondition) << "fakes have no step loop";
  executor_->profiler = std::make_shared<OneTurnProfiler>();
  for (const char* model : {"", "tensorrt_llm"}) {
    const Result<ProfileText> text = Capture(*server, {.duration_ms = 1, .model = model});
    ASSERT_TRUE(text.ok()) << text.status().ToString();
    EXPECT_THAT(**text, HasSubstr(R"("name":"tensorrt_llm 1")"));
    EXPECT_THAT(**text, HasSubstr(R"("device":"cpu")"));
  }
  const Status other = Capture(*server, {.duration_ms = 1, .model = "ensemble"}).status();
  EXPECT_EQ(other.message(),
            "model: got 'ensemble', must be one that has a step loop of its own: tensorrt_llm");
  EXPECT_EQ(other.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Capture(*server, {.duration_ms = 1, .model = "nobody"}).status().code(),
            StatusCode::kNotFound);
}

TEST_F(ServerProfileTest, WhatWasKeptOfAModelStaysWhenItIsUnloaded) {
  WriteServable("repo");
  const auto server = Serve({.model_repositories = {Path("repo")},
                             .control_mode = ControlMode::kExplicit,
                             .load_models = {"*"}});
  ASSERT_NE(server, nullptr);
  const auto profiler = std::make_shared<OneTurnProfiler>();
  executor_->profiler = profiler;
  const std::weak_ptr<FakeExecutor> executor = std::exchange(executor_, nullptr);
  const auto promise = std::make_shared<std::promise<Result<ProfileText>>>();
  server->CaptureProfile({.duration_ms = kEndless}, [promise](Result<ProfileText> text) {
    promise->set_value(std::move(text));
  });
  profiler->WaitForBegin();
  for (const auto& model : server->models())
    ASSERT_TRUE(server->UnloadModel(model->name(), /*with_steps=*/false).ok());
  WaitUntilUnloaded(*server, "tensorrt_llm");
  while (!executor.expired()) std::this_thread::yield();  // a capture keeps no model
  server->BeginExit();
  const auto text = promise->get_future().get();
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  EXPECT_THAT(**text, HasSubstr(R"("tokens_generated":5)"));
}

}  // namespace
}  // namespace inflight::serving
