// SPDX-License-Identifier: Apache-2.0
#include "serving/ensemble/ensemble_run.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "serving/testing/test_requests.h"

namespace inflight::serving {
namespace {

using ::testing::ElementsAre;

::inference::ModelConfig Config(const std::string& text) {
  ::inference::ModelConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  return config;
}

// A model IN -> OUT that holds its requests until the test answers them.
class Held final : public Model {
 public:
  Held(const std::string& name, bool is_decoupled)
      : Model(Config("name: '" + name +
                     "' input { name: 'IN' data_type: TYPE_INT32 dims: 1 }"
                     " output { name: 'OUT' data_type: TYPE_INT32 dims: 1 }"
                     " model_transaction_policy { decoupled: " +
                     (is_decoupled ? "true" : "false") + " }"),
              "1") {}

  void Infer(Request request, ResponseHandler handler) override {
    std::lock_guard lock(mutex_);
    requests_.push_back({std::move(request), std::move(handler)});
    changed_.notify_all();
  }

  size_t num_held() {
    std::lock_guard lock(mutex_);
    return requests_.size();
  }
  void WaitHeld(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return requests_.size() >= count; });
  }
  // A response of the oldest request, without ending it.
  void Send(int32_t value) {
    ResponseHandler handler;
    {
      std::lock_guard lock(mutex_);
      handler = requests_.front().second;
    }
    handler({.outputs = {Out(value)}});
  }
  void End() { Take(0).second({.is_final = true}); }
  // Answers the request at this place of the queue with its input.
  void Echo(size_t place = 0, Parameters parameters = {}) {
    auto [request, handler] = Take(place);
    Tensor out = *request.FindInput("IN");
    out.name = "OUT";
    handler({.outputs = {out}, .parameters = std::move(parameters), .is_final = true});
  }
  void Fail() { Take(0).second({.status = Internal("broken"), .is_final = true}); }

 private:
  using Item = std::pair<Request, ResponseHandler>;
  static Tensor Out(int32_t value) {
    return Tensor::FromValues<int32_t>("OUT", DataType::kInt32, {1}, {&value, 1});
  }
  Item Take(size_t place) {
    std::lock_guard lock(mutex_);
    const auto at = requests_.begin() + static_cast<std::ptrdiff_t>(place);
    Item taken = std::move(*at);
    requests_.erase(at);
    return taken;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> requests_;
};

// IN -> source (a stream) -> sink -> OUT
struct Chain {
  std::shared_ptr<Held> source = std::make_shared<Held>("source", /*is_decoupled=*/true);
  std::shared_ptr<Held> sink = std::make_shared<Held>("sink", /*is_decoupled=*/false);
  std::shared_ptr<EnsembleModel> ensemble;
  Collector got;

  explicit Chain(int max_inflight_requests = 0) {
    const auto config = Config(
        "name: 'chain' platform: 'ensemble'"
        " input { name: 'IN' data_type: TYPE_INT32 dims: 1 }"
        " output { name: 'OUT' data_type: TYPE_INT32 dims: 1 }"
        " ensemble_scheduling { max_inflight_requests: " +
        std::to_string(max_inflight_requests) +
        " step { model_name: 'source' input_map { key: 'IN' value: 'IN' }"
        "        output_map { key: 'OUT' value: 'stream' } }"
        " step { model_name: 'sink' input_map { key: 'IN' value: 'stream' }"
        "        output_map { key: 'OUT' value: 'OUT' } } }");
    auto made = EnsembleModel::Create(
        config, "1", [this](const std::string& name, int64_t) -> std::shared_ptr<Model> {
          return name == "source" ? source : sink;
        });
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    ensemble = *made;
  }
  // Counted as that of a connection, with a parameter of so many bytes.
  std::shared_ptr<CancelToken> Start(std::shared_ptr<AccountShare> memory = nullptr,
                                     size_t parameter_bytes = 0) {
    const int32_t zero = 0;
    Request request =
        MakeRequest({Tensor::FromValues<int32_t>("IN", DataType::kInt32, {1}, {&zero, 1})});
    auto cancel = request.cancel;
    request.memory = std::move(memory);
    if (parameter_bytes > 0) request.parameters["x"] = std::string(parameter_bytes, 'x');
    ensemble->Infer(std::move(request), got.Handler());
    return cancel;
  }
  std::vector<int32_t> Answers() const {
    std::vector<int32_t> values;
    for (const Response& response : got.responses()) {
      const Tensor* out = Collector::Find(response, "OUT");
      if (out != nullptr) values.push_back(*reinterpret_cast<const int32_t*>(out->data.data()));
    }
    return values;
  }
};

TEST(EnsembleRun, AnswersComeInTheOrderOfTheStream) {
  Chain chain;
  chain.Start();
  for (const int32_t value : {10, 11, 12}) chain.source->Send(value);
  chain.source->End();
  ASSERT_EQ(chain.sink->num_held(), 3U);
  chain.sink->Echo(/*place=*/1);
  EXPECT_TRUE(chain.got.responses().empty());
  chain.sink->Echo(/*place=*/0);
  EXPECT_THAT(chain.Answers(), ElementsAre(10, 11));
  chain.sink->Echo();
  EXPECT_THAT(chain.Answers(), ElementsAre(10, 11, 12));
  EXPECT_EQ(chain.got.num_final(), 1);
  EXPECT_TRUE(chain.got.last().is_final);
}

// Some models give back the parameters of their request, of which a client chooses name and type.
TEST(EnsembleRun, AReceiptIsAText) {
  for (const bool is_text : {true, false}) {
    Chain chain;
    chain.Start();
    chain.source->Send(10);
    chain.source->End();
    const ParameterValue number = int64_t{5};
    chain.sink->Echo(0, {{"receipt", is_text ? ParameterValue(std::string("{}")) : number}});
    EXPECT_EQ(chain.got.num_final(), 1);
    EXPECT_THAT(chain.Answers(), ElementsAre(10));
    EXPECT_EQ(chain.got.responses().front().parameters.contains("receipt"), is_text);
  }
}

TEST(EnsembleRun, AStreamWithoutResponsesEndsWithoutAnswer) {
  Chain chain;
  chain.Start();
  chain.source->End();
  ASSERT_EQ(chain.got.responses().size(), 1U);
  EXPECT_TRUE(chain.got.status().ok());
  EXPECT_TRUE(chain.got.last().outputs.empty());
}

TEST(EnsembleRun, AFailureWaitsForTheStepsInFlight) {
  Chain chain;
  chain.Start();
  for (const int32_t value : {1, 2}) chain.source->Send(value);
  chain.sink->Fail();
  chain.source->Send(3);  // nobody takes it any more
  chain.source->End();
  EXPECT_EQ(chain.got.num_final(), 0);
  ASSERT_EQ(chain.sink->num_held(), 1U);
  chain.sink->Echo();
  ASSERT_EQ(chain.got.num_final(), 1);
  EXPECT_EQ(chain.got.status(), Internal("in ensemble 'chain', broken"));
}

TEST(EnsembleRun, ALongStreamFlowsThrough) {
  Chain chain;
  chain.Start();
  std::vector<int32_t> sent;
  for (int32_t value = 0; value < 5'000; ++value) {
    sent.push_back(value);
    chain.source->Send(value);
    chain.sink->Echo();
  }
  chain.source->End();
  EXPECT_EQ(chain.Answers(), sent);
  EXPECT_EQ(chain.got.num_final(), 1);
}

// Each step has a copy of the request's parameters.
TEST(EnsembleRun, WhatStepsHoldOfTheParametersIsCharged) {
  constexpr size_t kBytes = 1 << 20;
  const auto account = MemoryAccount::Make(MemoryLimits::Of(64 * kBytes));
  Chain chain;
  chain.Start(account->NewConnection("client", [] {}), kBytes);
  EXPECT_GE(account->used_bytes(), kBytes);
  for (int32_t value = 0; value < 3; ++value) chain.source->Send(value);
  EXPECT_GE(account->used_bytes(), 4 * kBytes);
  chain.source->End();
  for (int i = 0; i < 3; ++i) chain.sink->Echo();
  EXPECT_EQ(chain.Answers().size(), 3U);
  EXPECT_EQ(account->used_bytes(), 0U);
}

TEST(EnsembleRun, AStepWhoseParametersHaveNoRoomEndsTheRequest) {
  constexpr size_t kBytes = 1 << 20;
  const auto account = MemoryAccount::Make(MemoryLimits::Of(8 * kBytes));  // 4 of a connection
  Chain chain;
  chain.Start(account->NewConnection("client", [] {}), kBytes);
  for (int32_t value = 0; value < 6; ++value) chain.source->Send(value);
  EXPECT_LE(chain.sink->num_held(), 3U);
  chain.source->End();
  while (chain.sink->num_held() > 0) chain.sink->Echo();
  ASSERT_EQ(chain.got.num_final(), 1);
  EXPECT_EQ(chain.got.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(account->used_bytes(), 0U);
}

TEST(EnsembleRun, AStreamIsHeldWhileAsManyRequestsRunAsMay) {
  constexpr int kMax = 2;
  constexpr int kNumSent = 6;
  Chain chain(kMax);
  chain.Start();
  std::atomic<int> num_answered = 0;
  std::thread source([&] {
    for (int32_t i = 0; i < kNumSent; ++i) {
      chain.source->Send(i);
      EXPECT_LE(i + 1, num_answered + kMax);
    }
    chain.source->End();
  });
  for (int i = 0; i < kNumSent; ++i) {
    chain.sink->WaitHeld(static_cast<size_t>(std::min(kMax, kNumSent - i)));
    for (int turn = 0; turn < 20; ++turn) std::this_thread::yield();  // for who is not held
    EXPECT_LE(chain.sink->num_held(), static_cast<size_t>(kMax));
    ++num_answered;
    chain.sink->Echo();
  }
  source.join();
  chain.got.WaitFinal();
  EXPECT_EQ(chain.Answers().size(), static_cast<size_t>(kNumSent));
}

TEST(EnsembleRun, ACancelLetsAHeldStreamGo) {
  Chain chain(/*max_inflight_requests=*/1);
  const auto cancel = chain.Start();
  std::thread source([&] {
    for (int32_t i = 0; i < 3; ++i) chain.source->Send(i);
    chain.source->End();
  });
  chain.sink->WaitHeld(1);
  cancel->Cancel();
  source.join();  // the sink has answered nothing yet
  while (chain.sink->num_held() > 0) chain.sink->Echo();
  EXPECT_EQ(chain.got.num_final(), 1);
}

}  // namespace
}  // namespace inflight::serving
