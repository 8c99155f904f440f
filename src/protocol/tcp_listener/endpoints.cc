// SPDX-License-Identifier: Apache-2.0
#include "protocol/tcp_listener/endpoints.h"

#include <netdb.h>

#include <cstring>
#include <memory>
#include <string_view>

namespace inflight::tcp_listener {
namespace {

using boost::asio::ip::tcp;

// Without the scheme and the brackets.
std::string HostOf(std::string_view text) {
  for (const std::string_view scheme : {"ipv4:", "ipv6:"}) {
    if (text.starts_with(scheme)) text.remove_prefix(scheme.size());
  }
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  return std::string(text);
}

}  // namespace

Result<std::vector<tcp::endpoint>> EndpointOf(const std::string& name, const std::string& address,
                                              int port) {
  boost::system::error_code ec;
  const auto parsed = boost::asio::ip::make_address(HostOf(address), ec);
  if (ec) return InvalidArgument(name + " address '" + address + "' is no IP address");
  return std::vector{tcp::endpoint(parsed, static_cast<unsigned short>(port))};
}

Result<std::vector<tcp::endpoint>> EndpointsOfHost(const std::string& host, int port) {
  const std::string name = HostOf(host);
  const auto number = static_cast<unsigned short>(port);
  std::vector<tcp::endpoint> endpoints;
  if (name == "0.0.0.0" || name == "::") endpoints.emplace_back(tcp::v6(), number);
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(name.c_str(), nullptr, &hints, &found);
  if (error != 0) return Unavailable("'" + name + "': " + gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    tcp::endpoint endpoint;
    endpoint.resize(info->ai_addrlen);
    std::memcpy(endpoint.data(), info->ai_addr, info->ai_addrlen);
    endpoint.port(number);
    endpoints.push_back(endpoint);
  }
  return endpoints;
}

boost::asio::ip::address Unmapped(const boost::asio::ip::address& address) {
  namespace ip = boost::asio::ip;
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address;
  return ip::make_address_v4(ip::v4_mapped, address.to_v6());
}

bool IsLoopback(const std::string& address) {
  if (address == "localhost") return true;
  boost::system::error_code ec;
  const auto parsed = boost::asio::ip::make_address(HostOf(address), ec);
  return !ec && Unmapped(parsed).is_loopback();
}

}  // namespace inflight::tcp_listener
