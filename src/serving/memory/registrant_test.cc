// SPDX-License-Identifier: Apache-2.0
#include "serving/memory/registrant.h"

#include <gtest/gtest.h>

namespace inflight::serving {
namespace {

TEST(Registrant, LoopbackIsLocal) {
  for (const char* address : {"127.0.0.1", "127.9.8.7", "::1"}) {
    EXPECT_TRUE(RegistrantAt(address, nullptr).is_local) << address;
  }
  for (const char* address :
       {"", "unix", "192.0.2.2", "::", "0.0.0.0", "fd00::2", "::2", "128.0.0.1", "fe80::1%lo",
        "127.0.0.1.example.org", "127.1", "localhost"}) {
    EXPECT_FALSE(RegistrantAt(address, nullptr).is_local) << address;
  }
  EXPECT_EQ(RegistrantAt("192.0.2.2", nullptr).client, "192.0.2.2");
}

TEST(Registrant, AClientWithAKeyIsItsKeyWhereverItIs) {
  Client key;
  key.name = "ci";
  key.identity = {7};
  for (const char* address : {"127.0.0.1", "10.0.0.1"}) {
    EXPECT_EQ(RegistrantAt(address, &key).client, "key ci");
    EXPECT_EQ(RegistrantAt(address, &key).identity, key.identity);
    EXPECT_EQ(RegistrantAt(address, nullptr).identity, Identity{});
    EXPECT_EQ(RegistrantAt(address, &key).is_local, RegistrantAt(address, nullptr).is_local);
  }
}

}  // namespace
}  // namespace inflight::serving
