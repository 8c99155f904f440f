// SPDX-License-Identifier: Apache-2.0
// Who gives way to a new connection where a listener is full, so that no client can keep others out
// by the connections that it holds.
#pragma once

#include "protocol/http_listener/connection.h"

namespace inflight::http_listener {

// Of `thread`'s connections one that waits for its client, or null. Of the client that has most of
// those that wait: an idle one, else one that had its last answer, else one within a request; that
// whose last request is longest ago. One within a request gives way to clients alone that have
// fewer: a newcomer must not cut off what is under way for nothing.
//
// Looks at kMaxLooked connections, others at each call: a client who holds many is among them.
Connection* FindRoom(IoThread& thread, const boost::asio::ip::address& newcomer);

inline constexpr size_t kMaxLooked = 256;

}  // namespace inflight::http_listener
