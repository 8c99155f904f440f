// SPDX-License-Identifier: Apache-2.0
// What passes an error on: the only macros of control. They stand apart from inflight/status.h,
// because a macro has no namespace and the programs that include that header have macros of their
// own.
#pragma once

#include "inflight/status.h"

#define INFLIGHT_CONCAT_(a, b) a##b
#define INFLIGHT_CONCAT(a, b) INFLIGHT_CONCAT_(a, b)

// Return the status of `expr` from the enclosing function unless it is OK.
#define RETURN_IF_ERROR(expr)                                               \
  do {                                                                      \
    if (::inflight::Status status_ = (expr); !status_.ok()) return status_; \
  } while (false)

// ASSIGN_OR_RETURN(auto x, MakeX()): bind the value or return the status.
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_IMPL_(INFLIGHT_CONCAT(result_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_IMPL_(result, lhs, expr) \
  auto result = (expr);                           \
  if (!result.ok()) return result.status();       \
  lhs = *std::move(result)
