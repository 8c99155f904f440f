// SPDX-License-Identifier: Apache-2.0
#include "serving/instance_model.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "serving/test_models.h"

namespace inflight::serving {
namespace {

using SenderPtr = std::shared_ptr<ResponseSender>;

class Does final : public Executable {
 public:
  using Work = std::function<void(const SenderPtr&)>;
  explicit Does(Work work) : work_(std::move(work)) {}
  void Execute(const Request&, const SenderPtr& sender) override { work_(sender); }

 private:
  const Work work_;
};

std::shared_ptr<InstanceModel> Make(Does::Work work, const std::string& more = "") {
  ::inference::ModelConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString("name: 'm' " + more, &config));
  return InstanceModel::Create(config, "1", std::make_unique<Does>(std::move(work)));
}

// Holds an instance until it is opened.
class Gate {
 public:
  void Wait() {
    std::unique_lock lock(mutex_);
    is_reached_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_open_; });
  }
  void WaitReached() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_reached_; });
  }
  void Open() {
    std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_reached_ = false;
  bool is_open_ = false;
};

TEST(InstanceModel, WhatARequestThrowsIsItsErrorAndTheOthersGoOn) {
  const auto model = Make([](const SenderPtr&) { throw std::runtime_error("no memory left"); });
  for (int i = 0; i < 2; ++i) {
    Collector got;
    model->Infer(MakeRequest({}), got.Handler());
    got.WaitFinal();
    EXPECT_EQ(got.num_final(), 1);
    EXPECT_EQ(got.status(), Internal("unexpected error: no memory left"));
  }
}

TEST(InstanceModel, WhatItThrowsBehindItsAnswerChangesNothing) {
  const auto model = Make([](const SenderPtr& sender) {
    sender->Finish();
    throw std::runtime_error("too late");
  });
  for (int i = 0; i < 2; ++i) {
    Collector got;
    model->Infer(MakeRequest({}), got.Handler());
    got.WaitFinal();
    EXPECT_TRUE(got.status().ok());
  }
}

TEST(InstanceModel, RequestsInItsQueueArePending) {
  Gate gate;
  const auto model = Make(
      [&](const SenderPtr& sender) {
        gate.Wait();
        sender->Finish();
      },
      "dynamic_batching { default_queue_policy { max_queue_size: 2 } }");
  const auto num_pending = [&] { return model->statistics().Snapshot().pending_requests; };
  Collector running;
  Collector waiting;
  Collector cancelled;
  Collector refused;
  model->Infer(MakeRequest({}), running.Handler());
  gate.WaitReached();
  EXPECT_EQ(num_pending(), 0U);
  model->Infer(MakeRequest({}), waiting.Handler());
  Request request = MakeRequest({});
  request.cancel->Cancel();
  model->Infer(request, cancelled.Handler());
  EXPECT_EQ(num_pending(), 2U);
  model->Infer(MakeRequest({}), refused.Handler());
  refused.WaitFinal();
  EXPECT_EQ(num_pending(), 2U);
  gate.Open();
  for (Collector* got : {&running, &waiting, &cancelled}) got->WaitFinal();
  EXPECT_EQ(num_pending(), 0U);
}

}  // namespace
}  // namespace inflight::serving
