// SPDX-License-Identifier: Apache-2.0
#include "protocol/cog/webhook_rule.h"

#include <algorithm>
#include <boost/asio/ip/address_v4.hpp>
#include <boost/asio/ip/address_v6.hpp>
#include <charconv>
#include <string_view>

#include "base/letter_case.h"
#include "base/status_macros.h"

namespace inflight::cog {
namespace {

namespace ip = boost::asio::ip;

// The address of IPv4 that one of IPv6 stands for: ::ffff:a.b.c.d, or by a translator
// 64:ff9b::a.b.c.d (RFC 6052).
ip::address PlainAddress(const ip::address& address) {
  if (!address.is_v6()) return address;
  const auto bytes = address.to_v6().to_bytes();
  static constexpr unsigned char kTranslated[12] = {0, 0x64, 0xff, 0x9b};
  const bool is_translated =
      std::equal(std::begin(kTranslated), std::end(kTranslated), bytes.begin());
  if (!is_translated && !address.to_v6().is_v4_mapped()) return address;
  return ip::address_v4({bytes[12], bytes[13], bytes[14], bytes[15]});
}

// Of this machine, of its links (where clouds answer with credentials), or of many machines.
bool IsOffLimits(const ip::address& any) {
  const ip::address address = PlainAddress(any);
  if (address.is_loopback() || address.is_unspecified() || address.is_multicast()) return true;
  if (address.is_v4()) {
    const auto bytes = address.to_v4().to_bytes();
    return bytes[0] == 0 || bytes[0] == 127 || bytes[0] >= 240 ||
           (bytes[0] == 169 && bytes[1] == 254);
  }
  static const ip::address kMetadata = ip::make_address("fd00:ec2::254");
  return address.to_v6().is_link_local() || address == kMetadata;
}

bool IsHostName(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
  });
}

}  // namespace

Result<WebhookRule> WebhookRule::Parse(const std::vector<std::string>& allowed) {
  WebhookRule rule;
  rule.has_list_ = !allowed.empty();
  for (const std::string& entry : allowed) {
    if (entry == "*") {
      rule.allows_all_ = true;
      continue;
    }
    const size_t slash = std::min(entry.find('/'), entry.size());
    boost::system::error_code no_address;
    const ip::address address = ip::make_address(entry.substr(0, slash), no_address);
    const std::string name = AsciiLower(entry.starts_with("*.") ? entry.substr(1) : entry);
    if (no_address && IsHostName(name)) {
      rule.names_.push_back(name);
      continue;
    }
    const int all_bits = !no_address && address.is_v6() ? 128 : 32;
    int bits = all_bits;
    if (slash < entry.size()) {
      const char* end = entry.data() + entry.size();
      const auto [parsed, error] = std::from_chars(entry.data() + slash + 1, end, bits);
      if (error != std::errc{} || parsed != end) bits = -1;
    }
    if (no_address || bits < 0 || bits > all_bits) {
      return InvalidArgument("--cog-webhook-allow",
                             "got '" + entry +
                                 "', known are a host's name, *.NAME, an address, a network as "
                                 "10.1.0.0/16, and * for all");
    }
    rule.networks_.push_back({address, bits});
  }
  return rule;
}

bool WebhookRule::Network::Has(const ip::address& other) const {
  if (address.is_v4() != other.is_v4()) return false;
  const auto matches = [this](const auto& own, const auto& asked) {
    for (int bit = 0; bit < prefix_bits; ++bit) {
      const auto byte = static_cast<size_t>(bit / 8);
      const int mask = 0x80 >> (bit % 8);
      if (((own[byte] ^ asked[byte]) & mask) != 0) return false;
    }
    return true;
  };
  if (address.is_v4()) return matches(address.to_v4().to_bytes(), other.to_v4().to_bytes());
  return matches(address.to_v6().to_bytes(), other.to_v6().to_bytes());
}

bool WebhookRule::AllowsName(const std::string& host) const {
  const std::string name = AsciiLower(host);
  return std::ranges::any_of(names_, [&](const std::string& allowed) {
    return allowed.starts_with('.') ? name.ends_with(allowed) : name == allowed;
  });
}

bool WebhookRule::Allows(const std::string& host, const ip::address& address) const {
  if (!has_list_) return !IsOffLimits(address);
  if (allows_all_ || AllowsName(host)) return true;
  const ip::address plain = PlainAddress(address);
  return std::ranges::any_of(networks_, [&](const Network& network) {
    return network.Has(address) || network.Has(plain);
  });
}

bool WebhookRule::MayAllow(const std::string& host) const {
  boost::system::error_code no_address;
  const ip::address address = ip::make_address(host, no_address);
  if (!no_address) return Allows(host, address);
  if (!has_list_) return !EqualInAnyCase(host, "localhost");
  return allows_all_ || !networks_.empty() || AllowsName(host);
}

}  // namespace inflight::cog
