// SPDX-License-Identifier: Apache-2.0
#include "protocol/tcp_listener/endpoints.h"

#include <gtest/gtest.h>

namespace inflight::tcp_listener {
namespace {

TEST(Endpoints, LoopbackIsKnownHoweverItIsWritten) {
  for (const char* address : {"127.0.0.1", "127.9.8.7", "localhost", "::1", "[::1]", "ipv6:[::1]",
                              "ipv4:127.0.0.1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(IsLoopback(address)) << address;
  }
  for (const char* address : {"", "0.0.0.0", "::", "[::]", "192.0.2.1", "ipv4:192.0.2.1",
                              "127.example.org", "127.1", "::ffff:192.0.2.1", "fd00::1"}) {
    EXPECT_FALSE(IsLoopback(address)) << address;
  }
}

}  // namespace
}  // namespace inflight::tcp_listener
