// SPDX-License-Identifier: Apache-2.0
#include "grammar/number_range.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "grammar/dfa_product.h"

namespace inflight::grammar {
namespace {

TEST(NumberRangeTest, DecimalsAreReadWithoutRounding) {
  const auto check = [](std::string_view token, bool is_negative, std::string_view whole,
                        std::string_view fraction) {
    const auto decimal = ParseDecimal(token);
    ASSERT_TRUE(decimal.ok()) << token;
    EXPECT_EQ(decimal->is_negative, is_negative) << token;
    EXPECT_EQ(decimal->whole, whole) << token;
    EXPECT_EQ(decimal->fraction, fraction) << token;
  };
  check("12", false, "12", "");
  check("-0.250", true, "", "25");
  check("0", false, "", "");
  check("-0.0", false, "", "");
  check("1.5e3", false, "1500", "");
  check("1200E-4", false, "", "12");
  check("12345678901234567890.5", false, "12345678901234567890", "5");
  for (const char* token : {"1e33", "1e-33", "1e999999999999", "NaN", "-", ""})
    EXPECT_FALSE(ParseDecimal(token).ok()) << token;
}

// All numbers of up to two digits before the point and behind it, compared in hundredths.
void CheckBound(const char* token, int hundredths) {
  const auto bound = ParseDecimal(token);
  ASSERT_TRUE(bound.ok());
  for (const bool is_exclusive : {false, true}) {
    Budget budget;
    const Dfa from = *NumbersFrom(*bound, is_exclusive, budget);
    const Dfa up_to = *NumbersUpTo(*bound, is_exclusive, budget);
    for (int value = -2100; value <= 2100; ++value) {
      const std::string sign = value < 0 ? "-" : "";
      const int size = std::abs(value);
      std::vector<std::string> texts = {fmt::format("{}{}.{:02}", sign, size / 100, size % 100)};
      if (size % 10 == 0) texts.push_back(fmt::format("{}{}.{}", sign, size / 100, size / 10 % 10));
      if (size % 100 == 0) texts.push_back(fmt::format("{}{}", sign, size / 100));
      for (const std::string& text : texts) {
        ASSERT_EQ(Matches(from, text), is_exclusive ? value > hundredths : value >= hundredths)
            << text << " from " << token;
        ASSERT_EQ(Matches(up_to, text), is_exclusive ? value < hundredths : value <= hundredths)
            << text << " to " << token;
      }
    }
  }
}

TEST(NumberRangeTest, BoundsPartTheNumbers) {
  CheckBound("0", 0);
  CheckBound("7", 700);
  CheckBound("10", 1000);
  CheckBound("-10", -1000);
  CheckBound("9.95", 995);
  CheckBound("-9.9", -990);
  CheckBound("0.05", 5);
  CheckBound("-0.5", -50);
  CheckBound("12.34", 1234);
}

TEST(NumberRangeTest, ZeroIsNotNegative) {
  Budget budget;
  const Dfa below = *NumbersUpTo(Decimal{}, /*is_exclusive=*/true, budget);
  for (const char* text : {"-0", "-0.0", "0"}) EXPECT_FALSE(Matches(below, text)) << text;
  EXPECT_TRUE(Matches(below, "-0.001"));
}

TEST(NumberRangeTest, NumbersHaveBoundedDigits) {
  Budget budget;
  const Dfa integers = *AllNumbers(/*are_integers=*/true, budget);
  EXPECT_TRUE(Matches(integers, std::string(32, '9')));
  EXPECT_FALSE(Matches(integers, std::string(33, '9')));
  for (const char* text : {"01", "1.0", "", "-", "+1"})
    EXPECT_FALSE(Matches(integers, text)) << text;
  const Dfa numbers = *AllNumbers(/*are_integers=*/false, budget);
  EXPECT_TRUE(Matches(numbers, "-1." + std::string(32, '0')));
  EXPECT_FALSE(Matches(numbers, "1." + std::string(33, '0')));
  EXPECT_FALSE(Matches(numbers, "1."));
}

}  // namespace
}  // namespace inflight::grammar
