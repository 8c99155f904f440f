// SPDX-License-Identifier: Apache-2.0
// For tests of what a machine may lack.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

// Ends a test, or SetUp, that needs it: skipped, and failed where INFLIGHT_TEST_WHOLE_MACHINE is
// set
// (.ci/run), whose machine has it all.
#define SKIP_FOR_LACK_OF(what)                                 \
  do {                                                         \
    if (std::getenv("INFLIGHT_TEST_WHOLE_MACHINE") != nullptr) \
      FAIL() << "this machine has no " << (what);              \
    GTEST_SKIP() << "this machine has no " << (what);          \
  } while (false)
