// SPDX-License-Identifier: Apache-2.0
#include "serving/core/apply_output_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace inflight::serving {
namespace {

using ::testing::ElementsAre;

template <typename T>
Tensor Make(DataType type, std::vector<int64_t> shape, std::vector<T> values) {
  return Tensor::FromValues<T>("O", type, std::move(shape), values);
}

std::vector<std::string> Texts(const Result<Tensor>& tensor) {
  EXPECT_TRUE(tensor.ok()) << tensor.status().ToString();
  std::vector<std::string> texts;
  const auto strings = tensor->Strings();
  for (const auto text : *strings) texts.emplace_back(text);
  return texts;
}

TEST(Classify, LargestFirstAndOfEqualOnesTheFirst) {
  const auto tensor = Make<int32_t>(DataType::kInt32, {5}, {3, 9, -1, 9, 0});
  const auto classes = Classify(tensor, /*has_batch=*/false, 3, {});
  EXPECT_THAT(Texts(classes), ElementsAre("9:1", "9:3", "3:0"));
  EXPECT_THAT(classes->shape, ElementsAre(3));
}

TEST(Classify, EachItemOfABatchWithItsLabels) {
  const auto tensor = Make<float>(DataType::kFp32, {2, 2}, {1, 2, 4, 3});
  const auto classes = Classify(tensor, /*has_batch=*/true, 1, {"cat"});
  EXPECT_THAT(Texts(classes), ElementsAre("2.000000:1", "4.000000:0:cat"));
  EXPECT_THAT(classes->shape, ElementsAre(2, 1));
}

TEST(Classify, NoMoreThanThereAreAndNanIsLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto tensor = Make<float>(DataType::kFp32, {1, 3}, {nan, 1, -1});
  EXPECT_THAT(Texts(Classify(tensor, true, 9, {})),
              ElementsAre("1.000000:1", "-1.000000:2", "nan:0"));
}

TEST(Classify, TypesWithoutAnOrderAreRefused) {
  const auto tensor = Make<uint8_t>(DataType::kBool, {1}, {1});
  EXPECT_EQ(Classify(tensor, false, 1, {}).status().message(),
            "class result not available for output due to unsupported type 'BOOL'");
}

TEST(Classify, AnEmptyBatchHasNoClasses) {
  const auto tensor = Make<float>(DataType::kFp32, {0, 4}, {});
  EXPECT_TRUE(Texts(Classify(tensor, true, 2, {})).empty());
}

}  // namespace
}  // namespace inflight::serving
