// SPDX-License-Identifier: Apache-2.0
// Which of a server's certificates a client is shown: that of the name by which it calls the server
// (server_name, RFC 6066, section 3).
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>
#include <vector>

namespace inflight::tls {

// The place of the first context whose certificate has the name as it is, else of the first that
// has it by a wildcard for its leftmost label (RFC 6125, section 6.4.3), else 0. `name` is of DNS,
// in any letter case.
size_t FindCertificate(const std::vector<std::shared_ptr<boost::asio::ssl::context>>& contexts,
                       const std::string& name);

// The first context, from which on a handshake goes to the one that has the client's name for the
// server; it keeps the others. They differ in their certificates alone, and there is one at least.
std::shared_ptr<boost::asio::ssl::context> ChooseByName(
    std::vector<std::shared_ptr<boost::asio::ssl::context>> contexts);

}  // namespace inflight::tls
