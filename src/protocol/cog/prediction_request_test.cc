// SPDX-License-Identifier: Apache-2.0
#include "protocol/cog/prediction_request.h"

#include <gtest/gtest.h>

namespace inflight::cog {
namespace {

TEST(NormalizeTimeTest, WhatPydanticTakesComesBackInIsoFormat) {
  // The right sides are str(datetime.isoformat()) of pydantic 1.10's parse_datetime.
  const std::pair<const char*, const char*> cases[] = {
      {R"("2024-01-02T03:04:05Z")", "2024-01-02T03:04:05+00:00"},
      {R"("2024-01-02 03:04")", "2024-01-02T03:04:00"},
      {R"("2024-01-02T03:04:05.1234567-08:00")", "2024-01-02T03:04:05.123456-08:00"},
      {R"("2024-01-02T03:04:05+0530")", "2024-01-02T03:04:05+05:30"},
      {R"("2024-02-29T00:00:00")", "2024-02-29T00:00:00"},
      {"0", "1970-01-01T00:00:00+00:00"},
      {"1700000000.25", "2023-11-14T22:13:20.250000+00:00"},
      {"1700000000123", "2023-11-14T22:13:20.123000+00:00"},
  };
  for (const auto& [json, time] : cases)
    EXPECT_EQ(NormalizeTime(*json::Value::Parse(json)), time) << json;
}

TEST(NormalizeTimeTest, WhatIsNoTime) {
  for (const char* json :
       {R"("")", R"("today")", R"("2024-01-02")", R"("2023-02-29T00:00:00")",
        R"("2024-01-02T24:00:00")", R"("2024-01-02T03:04:05Zx")", R"("2024-01-02T03:04:05+25:00")",
        "NaN", "Infinity", "true", "[]", "{}"}) {
    EXPECT_EQ(NormalizeTime(*json::Value::Parse(json)), std::nullopt) << json;
  }
}

TEST(PredictionRequestTest, MembersOfTheObjectItselfAreNotEchoed) {
  std::vector<FieldError> errors;
  const auto request = ParsePredictionRequest(
      R"({"input":{"prompt":"a"},"status":"x","output":1,"mine":{"a":
[1]},"id":"i"})",
      {}, errors);
  EXPECT_TRUE(errors.empty());
  ASSERT_EQ(request.echoed.size(), 4);
  EXPECT_EQ(request.echoed.back(), std::pair(std::string("mine"), std::string(R"({"a": [1]})")));
  EXPECT_EQ(request.events, kAllEvents);
}

TEST(PredictionRequestTest, TheFilterChoosesEvents) {
  std::vector<FieldError> errors;
  const auto request = ParsePredictionRequest(
      R"({"input":{"prompt":"a"},"webhook":"https://h/x","webhook_events_filter":["start","completed"]})",
      {}, errors);
  EXPECT_TRUE(errors.empty());
  EXPECT_EQ(request.webhook, "https://h/x");
  EXPECT_EQ(request.events, 9);
}

}  // namespace
}  // namespace inflight::cog
