// SPDX-License-Identifier: Apache-2.0
#include "object_store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "base/descriptor.h"

namespace inflight::object_store {
namespace {

Environment With(const std::string& variable, const std::string& value) {
  return [=](const char* name) {
    if (name == std::string("AWS_EC2_METADATA_DISABLED")) return std::string("true");
    return name == variable ? value : std::string();
  };
}

// Of loopback, where nobody listens: it is bound, and so nobody else's.
class ClosedPort {
 public:
  ClosedPort() : bound_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in place{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof place;
    EXPECT_EQ(bind(bound_.get(), reinterpret_cast<sockaddr*>(&place), size), 0);
    EXPECT_EQ(getsockname(bound_.get(), reinterpret_cast<sockaddr*>(&place), &size), 0);
    port_ = ntohs(place.sin_port);
  }
  std::string address() const { return "s3://127.0.0.1:" + std::to_string(port_) + "/bucket/a"; }

 private:
  const Descriptor bound_;
  int port_ = 0;
};

TEST(Store, GivesUpAfterSoManyAttempts) {
  const ClosedPort port;
  const auto store =
      Store::Open(*ParseAddress(port.address()),
                  {.environment = With("", ""), .max_attempts = 3, .first_delay_ms = 1});
  ASSERT_TRUE(store.ok());
  const auto client = (*store)->MakeClient();
  ASSERT_TRUE(client.ok());
  const auto listing = (*store)->List(**client, "", true);
  EXPECT_EQ(listing.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(listing.status().message(), testing::HasSubstr("3 attempts in a row failed"));
}

TEST(Store, WaitsForNobodyWhoseOwnerEnds) {
  const ClosedPort port;
  const auto store =
      Store::Open(*ParseAddress(port.address()), {.environment = With("", ""),
                                                  .first_delay_ms = 1'000'000,
                                                  .is_cancelled = [] { return true; }});
  ASSERT_TRUE(store.ok());
  const auto client = (*store)->MakeClient();
  ASSERT_TRUE(client.ok());
  EXPECT_EQ((*store)->List(**client, "", true).status().code(), StatusCode::kCancelled);
}

TEST(Store, RefusesSettingsThatContradictTheAddress) {
  const auto store = Store::Open(*ParseAddress("as://account/container"),
                                 {.environment = With("AZURE_STORAGE_CONNECTION_STRING",
                                                      "AccountName=other;AccountKey=bm8=")});
  EXPECT_EQ(store.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace inflight::object_store
