// SPDX-License-Identifier: Apache-2.0
#include "serving/memory/registrant.h"

#include <gtest/gtest.h>

namespace inflight::serving {
namespace {

TEST(Registrant, LoopbackAndUnixSocketsAreLocal) {
  for (const char* address :
       {"", "unix", "127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.1", "ipv4:127.0.0.1",
        "ipv6:[::1]", "ipv6:%5B::1%5D", "ipv6:[::ffff:127.0.0.1]"}) {
    EXPECT_TRUE(RegistrantAt(address, nullptr).is_local) << address;
  }
  for (const char* address :
       {"192.0.2.2", "::", "0.0.0.0", "fd00::2", "ipv4:10.0.0.1", "::2", "::ffff:192.0.2.2",
        "127.0.0.1.example.org", "localhost", "128.0.0.1", "ipv6:[fe80::1]", "unix2"}) {
    EXPECT_FALSE(RegistrantAt(address, nullptr).is_local) << address;
  }
}

TEST(Registrant, AClientIsTheSameOverEitherProtocol) {
  for (const char* address : {"10.0.0.1", "ipv4:10.0.0.1", "::ffff:10.0.0.1"}) {
    EXPECT_EQ(RegistrantAt(address, nullptr).client, "10.0.0.1");
  }
  EXPECT_EQ(RegistrantAt("ipv6:%5Bfd00::2%5D", nullptr).client,
            RegistrantAt("fd00::2", nullptr).client);
}

TEST(Registrant, AClientWithAKeyIsItsKeyWhereverItIs) {
  Client key;
  key.name = "ci";
  for (const char* address : {"127.0.0.1", "10.0.0.1", "unix"}) {
    EXPECT_EQ(RegistrantAt(address, &key).client, "key ci");
    EXPECT_EQ(RegistrantAt(address, &key).is_local, RegistrantAt(address, nullptr).is_local);
  }
}

}  // namespace
}  // namespace inflight::serving
