// SPDX-License-Identifier: Apache-2.0
// Where a request ends and for whom it is: what two readers of one connection, a proxy and this
// server, could take differently is refused, since the one would answer what the other forwards as
// part of a body.
#pragma once

#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <optional>
#include <string>
#include <utility>  // before Boost 1.74 under C++20

namespace inflight::http_listener {

struct FramingFault {
  int status = 400;  // 501: a transfer coding that is not supported
  std::string reason;
};

// By RFC 9112: Host (3.2) is given once, and always under HTTP/1.1; Content-Length (6.2) once and
// in digits; Transfer-Encoding (6.1, 6.3) ends in chunked, stands without Content-Length and not
// under HTTP/1.0. Of codings chunked alone is supported.
std::optional<FramingFault> FindFramingFault(
    const boost::beast::http::header<true, boost::beast::http::fields>& head);

}  // namespace inflight::http_listener
