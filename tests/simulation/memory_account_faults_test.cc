// SPDX-License-Identifier: Apache-2.0
// The account of memory where there is no memory to keep it.
#include <gtest/gtest.h>

#include <new>

#include "base/memory_account.h"
#include "simulation/heap.h"

namespace inflight::testing {
namespace {

TEST(MemoryAccountFaultsTest, AConnectionThatFindsNoneLeavesTheNextAlone) {
  constexpr char kClient[] = "a client whose name is longer than what strings keep in themselves";
  const auto account = MemoryAccount::Make({});
  int num_faults = 0;
  for (uint64_t nth = 1; nth < 100; ++nth) {
    bool has_struck = false;
    try {
      const HeapFault fault(nth);
      const auto share = account->NewConnection(kClient, [] {});
      has_struck = fault.has_struck();
    } catch (const std::bad_alloc&) {
      has_struck = true;
    }
    const auto next = account->NewConnection(kClient, [] {});
    ASSERT_NE(next, nullptr);
    const auto beside = account->NewConnection(kClient, [] {});
    EXPECT_EQ(next->client(), beside->client());
    if (!has_struck) break;
    ++num_faults;
  }
  EXPECT_GE(num_faults, 4);  // the client, its name, its place, the connection
  EXPECT_LT(num_faults, 99);
}

}  // namespace
}  // namespace inflight::testing
