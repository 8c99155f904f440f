// SPDX-License-Identifier: Apache-2.0
#include "contract/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "contract/tensor_values.h"

namespace inflight::contract {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor Ints(std::string name, std::vector<int64_t> shape, const std::vector<int32_t>& values) {
  return Tensor::FromValues<int32_t>(std::move(name), DataType::kInt32, std::move(shape), values);
}

Tensor Floats(std::string name, std::vector<int64_t> shape, const std::vector<float>& values) {
  return Tensor::FromValues<float>(std::move(name), DataType::kFp32, std::move(shape), values);
}

std::vector<float> FloatsOf(const Tensor& tensor) {
  std::vector<float> values(tensor.data.size() / sizeof(float));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

TEST(SplitRows, EachRowHasItsShareOfEveryTensor) {
  const std::vector<std::string> texts = {"a", "bc", "", "def"};
  const std::vector<Tensor> inputs = {
      Ints("ids", {2, 3}, {1, 2, 3, 4, 5, 6}), Ints("none", {2, 0}, {}),
      Ints("words", {2, 2, 1}, {7, 1, 8, -1}), Tensor::FromStrings("text", {2, 2}, texts)};
  const auto rows = SplitRows(inputs, 2);
  ASSERT_TRUE(rows.ok()) << rows.status().ToString();
  ASSERT_EQ(rows->size(), 2U);
  EXPECT_THAT((*rows)[0][0].shape, ElementsAre(1, 3));
  EXPECT_THAT(*ReadInt32s((*rows)[0][0]), ElementsAre(1, 2, 3));
  EXPECT_THAT(*ReadInt32s((*rows)[1][0]), ElementsAre(4, 5, 6));
  EXPECT_THAT((*rows)[1][1].shape, ElementsAre(1, 0));
  EXPECT_THAT((*rows)[1][2].shape, ElementsAre(1, 2, 1));
  EXPECT_THAT(*ReadInt32s((*rows)[1][2]), ElementsAre(8, -1));
  EXPECT_THAT(*(*rows)[0][3].Strings(), ElementsAre("a", "bc"));
  EXPECT_THAT(*(*rows)[1][3].Strings(), ElementsAre("", "def"));
}

TEST(SplitRows, RowsOutliveTheRequest) {
  std::vector<Tensor> inputs = {Ints("ids", {2, 1}, {1, 2})};
  const auto rows = SplitRows(inputs, 2);
  inputs.clear();
  EXPECT_THAT(*ReadInt32s((*rows)[1][0]), ElementsAre(2));
}

TEST(SplitRows, ATensorOfOtherRowsIsNamed) {
  const std::vector<Tensor> inputs = {Ints("ids", {2, 1}, {1, 2}), Ints("seed", {3, 1}, {1, 2, 3})};
  const auto rows = SplitRows(inputs, 2);
  EXPECT_EQ(rows.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(rows.status().message(), HasSubstr("seed: got 3 rows, the request has 2"));
}

TEST(JoinRows, ShorterRowsArePaddedAtTheirEnd) {
  const std::vector<std::vector<Tensor>> rows = {
      {Ints("ids", {1, 2, 2}, {1, 2, 3, 4}), Floats("log_probs", {1, 1, 1}, {0.5F})},
      {Ints("ids", {1, 1, 3}, {5, 6, 7}), Floats("log_probs", {1, 1, 2}, {1, 2})}};
  const auto joined = JoinRows(rows);
  ASSERT_EQ(joined.size(), 2U);
  EXPECT_THAT(joined[0].shape, ElementsAre(2, 2, 3));
  EXPECT_THAT(*ReadInt32s(joined[0]), ElementsAre(1, 2, -1, 3, 4, -1, 5, 6, 7, -1, -1, -1));
  EXPECT_THAT(joined[1].shape, ElementsAre(2, 1, 2));
  EXPECT_THAT(FloatsOf(joined[1]), ElementsAre(0.5F, 0, 1, 2));
}

TEST(JoinRows, ARowWithoutATensorIsPadding) {
  const std::vector<std::vector<Tensor>> rows = {
      {Ints("ids", {1, 1}, {1})}, {Ints("ids", {1, 1}, {2}), Floats("cum", {1, 1}, {3})}};
  const auto joined = JoinRows(rows);
  ASSERT_EQ(joined.size(), 2U);
  EXPECT_THAT(joined[1].shape, ElementsAre(2, 1));
  EXPECT_THAT(FloatsOf(joined[1]), ElementsAre(0, 3));
}

TEST(JoinRows, StringsOfBeamsArePadded) {
  const std::vector<std::string> one = {"a", "b"}, two = {"c"};
  const std::vector<std::vector<Tensor>> rows = {
      {Tensor::FromStrings("reason", {1, 2}, one)},
      {},
      {Tensor::FromStrings("reason", {1, 1}, two)},
  };
  const auto joined = JoinRows(rows);
  EXPECT_THAT(joined[0].shape, ElementsAre(3, 2));
  EXPECT_THAT(*joined[0].Strings(), ElementsAre("a", "b", "", "", "c", ""));
}

TEST(JoinRows, TextsFollowEachOther) {
  const std::vector<std::string> one = {"a", "b"}, two = {"c", "d"};
  const std::vector<std::vector<Tensor>> rows = {{Tensor::FromStrings("text", {2}, one)},
                                                 {Tensor::FromStrings("text", {2}, two)}};
  const auto joined = JoinRows(rows);
  EXPECT_THAT(joined[0].shape, ElementsAre(4));
  EXPECT_THAT(*joined[0].Strings(), ElementsAre("a", "b", "c", "d"));
}

}  // namespace
}  // namespace inflight::contract
