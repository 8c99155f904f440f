// SPDX-License-Identifier: Apache-2.0
#include "serving/memory/registrant.h"

#include <arpa/inet.h>
#include <netinet/in.h>

namespace inflight::serving {
namespace {

// `text` without `begin` and `end`, if it has both.
std::string_view Inside(std::string_view text, std::string_view begin, std::string_view end) {
  if (!text.starts_with(begin) || !text.ends_with(end)) return text;
  return text.substr(begin.size(), text.size() - begin.size() - end.size());
}

Registrant AtAddress(std::string_view address) {
  if (address.empty() || address == "unix") return {.client = "unix", .is_local = true};
  address = Inside(Inside(address, "ipv4:", ""), "ipv6:", "");
  std::string text(Inside(Inside(address, "[", "]"), "%5B", "%5D"));
  constexpr std::string_view kMapped = "::ffff:";
  in_addr v4{};
  const char* const as_v4 = text.c_str() + (text.starts_with(kMapped) ? kMapped.size() : 0);
  if (inet_pton(AF_INET, as_v4, &v4) == 1) {
    return {.client = as_v4, .is_local = ntohl(v4.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET};
  }
  in6_addr v6{};
  const bool is_v6 = inet_pton(AF_INET6, text.c_str(), &v6) == 1;
  return {.client = std::move(text), .is_local = is_v6 && IN6_IS_ADDR_LOOPBACK(&v6)};
}

}  // namespace

Registrant RegistrantAt(std::string_view address, const Client* key) {
  Registrant from = AtAddress(address);
  if (key != nullptr) from.client = "key " + key->name;
  return from;
}

}  // namespace inflight::serving
