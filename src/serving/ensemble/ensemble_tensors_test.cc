// SPDX-License-Identifier: Apache-2.0
#include "serving/ensemble/ensemble_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace inflight::serving {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr auto kAnswer = EnsembleTensors::kAnswer;

// Step 0 makes the stream S of the constant A; step 1 takes S and the constant B, and makes OUT;
// step 2 is not needed.
EnsembleGraph Graph() {
  EnsembleGraph graph;
  graph.steps.push_back({.model = nullptr, .inputs = {{"x", "A"}}, .outputs = {{"y", "S"}}});
  graph.steps.push_back({.model = nullptr,
                         .inputs = {{"x", "S"}, {"again", "S"}, {"b", "B"}},
                         .outputs = {{"y", "OUT"}},
                         .has_streaming_input = true});
  graph.steps.push_back({.model = nullptr, .inputs = {{"x", "S"}}, .outputs = {{"y", "UNUSED"}}});
  graph.streaming = {"S", "OUT", "UNUSED"};
  return graph;
}

class EnsembleTensorsTest : public ::testing::Test {
 protected:
  // Sees whether the tensor is still held.
  std::weak_ptr<const void> Set(const std::string& name, uint64_t round) {
    Tensor tensor;
    tensor.name = name;
    const auto owner = std::make_shared<int>(0);
    tensor.owner = owner;
    tensors_.Set(name, round, std::move(tensor));
    return owner;
  }

  const EnsembleGraph graph_ = Graph();
  EnsembleTensors tensors_{graph_, {0, 1}, {"OUT"}};
};

TEST_F(EnsembleTensorsTest, AStepIsReadyOnceInEachRoundOfItsInputs) {
  EXPECT_FALSE(tensors_.IsReady(0, 0));
  Set("A", 0);
  EXPECT_TRUE(tensors_.IsReady(0, 0));
  tensors_.Release(0, 0);
  EXPECT_FALSE(tensors_.IsReady(0, 0));
  Set("S", 0);
  Set("S", 1);
  EXPECT_FALSE(tensors_.IsReady(1, 0));
  Set("B", 0);
  for (const uint64_t round : {1, 0}) {
    EXPECT_TRUE(tensors_.IsReady(1, round));
    tensors_.Release(1, round);
    EXPECT_FALSE(tensors_.IsReady(1, round));
  }
  EXPECT_FALSE(tensors_.IsReady(1, 2));
}

TEST_F(EnsembleTensorsTest, ValuesGoWhenAllHaveTakenThem) {
  const auto a = Set("A", 0);
  const auto b = Set("B", 0);
  tensors_.Release(0, 0);
  EXPECT_TRUE(a.expired());
  const auto first = Set("S", 0);
  const auto second = Set("S", 1);
  tensors_.Release(1, 0);
  EXPECT_TRUE(first.expired());
  EXPECT_FALSE(second.expired());
  EXPECT_FALSE(b.expired());  // each round takes it
  EXPECT_THAT(tensors_.Rounds(), ElementsAre(1));
  const auto out = Set("OUT", 0);
  EXPECT_TRUE(tensors_.IsReady(kAnswer, 0));
  EXPECT_FALSE(tensors_.IsReady(kAnswer, 1));
  tensors_.Release(kAnswer, 0);
  EXPECT_TRUE(out.expired());
}

TEST_F(EnsembleTensorsTest, WhatNobodyTakesIsNotKept) {
  EXPECT_TRUE(Set("UNUSED", 0).expired());
  EXPECT_THAT(tensors_.Rounds(), IsEmpty());
}

TEST_F(EnsembleTensorsTest, WhatIsLeftOutIsDecidedToo) {
  tensors_.Set("OUT", 0, std::nullopt);
  EXPECT_TRUE(tensors_.IsReady(kAnswer, 0));
  EXPECT_EQ(tensors_.Get("OUT", 0), nullptr);
}

TEST_F(EnsembleTensorsTest, TakersOfAStreamAreKnown) {
  EXPECT_FALSE(tensors_.streams(0));
  EXPECT_TRUE(tensors_.streams(1));
  EXPECT_TRUE(tensors_.streams(kAnswer));
}

}  // namespace
}  // namespace inflight::serving
