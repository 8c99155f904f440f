// SPDX-License-Identifier: Apache-2.0
#include "serving/tensors/data_types.h"

#include <gtest/gtest.h>

namespace inflight::serving {
namespace {

TEST(DataTypes, AllOfThemSurviveTheConfiguration) {
  for (int i = 1; i <= static_cast<int>(DataType::kBf16); ++i) {
    const auto type = static_cast<DataType>(i);
    EXPECT_EQ(FromProto(ToProto(type)), type);
    EXPECT_EQ(DataTypeFromName(DataTypeName(type)), type);
  }
}

}  // namespace
}  // namespace inflight::serving
