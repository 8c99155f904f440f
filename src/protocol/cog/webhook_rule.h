// SPDX-License-Identifier: Apache-2.0
// Which hosts webhooks may call (docs/reference/protocol/cog.md, "Where webhooks may go"): clients
// name them, so that the server must not become their way into its own machine.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <string>
#include <vector>

#include "inflight/status.h"

namespace inflight::cog {

class WebhookRule {
 public:
  // By default every address but those of this machine, of its links and of no single machine.
  WebhookRule() = default;
  // Hosts by name, "*.example.com" for all below a name, addresses and networks ("10.1.0.0/16");
  // "*" is all. Empty: the default. kInvalidArgument names one that is none of these.
  static Result<WebhookRule> Parse(const std::vector<std::string>& allowed);

  // Whether this host may be called at this address, which it has.
  bool Allows(const std::string& host, const boost::asio::ip::address& address) const;
  // False where no address can make it so: told before anything is looked up.
  bool MayAllow(const std::string& host) const;

 private:
  struct Network {
    boost::asio::ip::address address;
    int prefix_bits = 0;

    bool Has(const boost::asio::ip::address& other) const;
  };

  bool AllowsName(const std::string& host) const;

  bool has_list_ = false;
  bool allows_all_ = false;
  std::vector<std::string> names_;  // lower case; those with a leading dot are of all below
  std::vector<Network> networks_;
};

}  // namespace inflight::cog
