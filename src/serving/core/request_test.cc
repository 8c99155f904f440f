// SPDX-License-Identifier: Apache-2.0
#include "serving/core/request.h"

#include <gtest/gtest.h>

#include <latch>

namespace inflight::serving {
namespace {

TEST(CancelToken, ListenerRunsOnceWhenCancelled) {
  CancelToken token;
  int calls = 0;
  token.SetListener([&] { ++calls; });
  EXPECT_FALSE(token.cancelled());
  token.Cancel();
  token.Cancel();
  EXPECT_TRUE(token.cancelled());
  EXPECT_EQ(calls, 1);
}

TEST(CancelToken, LateListenerRunsAtOnce) {
  CancelToken token;
  token.Cancel();
  int calls = 0;
  token.SetListener([&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST(CancelToken, ReplacedAndRemovedListenersDoNotRun) {
  CancelToken token;
  int first = 0;
  int second = 0;
  token.SetListener([&] { ++first; });
  token.SetListener([&] { ++second; });
  token.SetListener(nullptr);
  token.Cancel();
  EXPECT_EQ(first + second, 0);
}

TEST(CancelToken, ListenerMayReplaceItself) {
  CancelToken token;
  int calls = 0;
  token.SetListener([&] {
    ++calls;
    token.SetListener(nullptr);
  });
  token.Cancel();
  EXPECT_EQ(calls, 1);
}

TEST(CancelToken, RemovingWaitsForARunningListener) {
  CancelToken token;
  std::latch entered(1);
  std::atomic<bool> go{false};
  std::atomic<bool> done{false};
  token.SetListener([&] {
    entered.count_down();
    go.wait(false);
    done = true;
  });
  std::thread canceller([&] { token.Cancel(); });
  entered.wait();
  std::thread releaser([&] {
    go = true;
    go.notify_all();
  });
  token.SetListener(nullptr);
  EXPECT_TRUE(done);
  canceller.join();
  releaser.join();
}

TEST(Request, FindsInputsAndWantsAllOutputsByDefault) {
  Request request;
  request.inputs.push_back(Tensor::FromBytes("a", DataType::kInt8, {1}, "x"));
  EXPECT_EQ(request.FindInput("a"), &request.inputs.front());
  EXPECT_EQ(request.FindInput("b"), nullptr);
  EXPECT_TRUE(request.WantsOutput("anything"));
  request.requested_outputs = {"y"};
  EXPECT_TRUE(request.WantsOutput("y"));
  EXPECT_FALSE(request.WantsOutput("z"));
}

}  // namespace
}  // namespace inflight::serving
