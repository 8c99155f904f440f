// SPDX-License-Identifier: Apache-2.0
// CHECK: conditions that only a defect of ours can break. Prints both values and aborts. No client
// byte and no file may reach one.
#pragma once

#include <sstream>
#include <string>

namespace inflight::internal {

[[noreturn]] void CheckFailed(const char* file, int line, const std::string& what);

template <typename A, typename B>
[[noreturn]] void CheckOpFailed(const char* file, int line, const char* expr, const A& a,
                                const B& b) {
  std::ostringstream out;
  out << expr << " (" << a << " vs. " << b << ")";
  CheckFailed(file, line, out.str());
}

}  // namespace inflight::internal

#define CHECK(cond)                                                            \
  do {                                                                         \
    if (!(cond)) ::inflight::internal::CheckFailed(__FILE__, __LINE__, #cond); \
  } while (false)

#define INFLIGHT_CHECK_OP(a, op, b)                                                       \
  do {                                                                                    \
    const auto& check_a = (a);                                                            \
    const auto& check_b = (b);                                                            \
    if (!(check_a op check_b))                                                            \
      ::inflight::internal::CheckOpFailed(__FILE__, __LINE__, #a " " #op " " #b, check_a, \
                                          check_b);                                       \
  } while (false)

#define CHECK_EQ(a, b) INFLIGHT_CHECK_OP(a, ==, b)
#define CHECK_NE(a, b) INFLIGHT_CHECK_OP(a, !=, b)
#define CHECK_LT(a, b) INFLIGHT_CHECK_OP(a, <, b)
#define CHECK_LE(a, b) INFLIGHT_CHECK_OP(a, <=, b)
#define CHECK_GT(a, b) INFLIGHT_CHECK_OP(a, >, b)
#define CHECK_GE(a, b) INFLIGHT_CHECK_OP(a, >=, b)
