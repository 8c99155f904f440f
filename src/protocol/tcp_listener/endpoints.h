// SPDX-License-Identifier: Apache-2.0
// Where a server listens, from how its address is written.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <string>
#include <vector>

#include "inflight/status.h"

namespace inflight::tcp_listener {

// An IP address as it is or in the forms of Triton and of gRPC: [::1], ipv6:[::1], ipv4:127.0.0.1.
// kInvalidArgument for anything else, with `name` before the text.
Result<std::vector<boost::asio::ip::tcp::endpoint>> EndpointOf(const std::string& name,
                                                               const std::string& address,
                                                               int port);

// All addresses of a host by its name, or an IP address as above; 0.0.0.0 and :: are both families,
// as gRPC has it: `::` comes first and is to serve IPv4 too. kUnavailable: there is no such host.
Result<std::vector<boost::asio::ip::tcp::endpoint>> EndpointsOfHost(const std::string& host,
                                                                    int port);

// An address of IPv4 that is written as one of IPv6, as such; others as they are.
boost::asio::ip::address Unmapped(const boost::asio::ip::address& address);

// Whether what listens on an address of the forms above, or on "localhost", is reached from this
// machine alone.
bool IsLoopback(const std::string& address);

}  // namespace inflight::tcp_listener
