// SPDX-License-Identifier: Apache-2.0
#include "serving/memory/registrant.h"

#include <arpa/inet.h>
#include <netinet/in.h>

namespace inflight::serving {
namespace {

bool IsLoopback(const std::string& address) {
  in_addr v4{};
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1)
    return ntohl(v4.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
  in6_addr v6{};
  return inet_pton(AF_INET6, address.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace

Registrant RegistrantAt(const std::string& address, const Client* key) {
  if (key == nullptr) return {.client = address, .is_local = IsLoopback(address)};
  return {.client = "key " + key->name, .is_local = IsLoopback(address), .identity = key->identity};
}

}  // namespace inflight::serving
