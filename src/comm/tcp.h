// SPDX-License-Identifier: Apache-2.0
// Sockets over TCP: all of them non-blocking, closed on exec, without Nagle's delay. Waiting is
// done by the functions that take a deadline. Errors are kUnavailable with the system's reason and
// kDeadlineExceeded.
#pragma once

#include <netinet/in.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

#include "base/descriptor.h"
#include "comm/deadline.h"
#include "inflight/status.h"

namespace inflight::comm {

// For poll(2): at least 0, rounded up.
int MillisecondsUntil(Deadline deadline);

// Listens for those who connect to `host`, which is this one: on loopback alone where it is written
// as "localhost", 127.x.y.z or ::1, else on all addresses, since a name that this host's files map
// to loopback is another host's way to this one. Port 0: any.
Result<Descriptor> Listen(const std::string& host, int port);

// IPv4 has its form in IPv6 (::ffff:a.b.c.d).
sockaddr_in6 PeerOf(const Descriptor& socket);
int PortOf(const Descriptor& socket);             // this side's
std::string ToText(const sockaddr_in6& address);  // "10.0.0.1:29500"
bool IsLoopback(const sockaddr_in6& address);

// A connection to the first address of `host` that accepts one.
Result<Descriptor> ConnectTo(const std::string& host, int port, Deadline deadline);
Result<Descriptor> ConnectTo(const sockaddr_in6& address, Deadline deadline);

// The connection at the head of the queue; kUnavailable where there is none.
Result<Descriptor> Accept(const Descriptor& listener);

Status WriteAll(const Descriptor& socket, std::span<const std::byte> bytes, Deadline deadline);
Status ReadAll(const Descriptor& socket, std::span<std::byte> bytes, Deadline deadline);

}  // namespace inflight::comm
