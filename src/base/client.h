// SPDX-License-Identifier: Apache-2.0
// A client that the server tells from others by its key (docs/reference/access.md, "Tenants"): what
// came with the key points to it. Nobody can choose an identity.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

namespace inflight {

using Identity = std::array<uint8_t, 32>;  // zeros: of all who are not told apart

struct Client {
  Identity identity = {};
  std::string name;  // by which errors call it; no secret
};

inline Identity IdentityOf(const std::shared_ptr<const Client>& client) {
  return client != nullptr ? client->identity : Identity{};
}

}  // namespace inflight
