// SPDX-License-Identifier: Apache-2.0
// Requests that a browser sends because a web page of somebody else tells it to: they reach ports
// that the page's author cannot (docs/reference/access.md, "Web pages").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "inflight/status.h"
#include "protocol/http_listener/cross_origin.h"
#include "protocol/http_listener/http_message.h"
#include "protocol/kserve/access/api.h"

namespace inflight::kserve_http {

struct WebPageRule {
  // --http-allowed-host: names by which clients call the server, and whose pages may call it.
  std::vector<std::string> allowed_hosts;
  // Requests to other names than these, IP addresses and localhost are refused: a name that a page
  // gave this machine's address would make the page one of ours (DNS rebinding).
  bool knows_its_names = false;
  // --cors-origin: pages that may call it, too. `*` names none, whose pages change nothing.
  http_listener::CrossOrigins cors_origins = {};

  // By the head alone. kPermissionDenied says which header is at fault, and what to do.
  Status Check(const http_listener::HttpRequest& head, kserve::Api api) const;

 private:
  bool IsAllowed(std::string_view name) const;
  Status CheckHost(std::string_view host) const;
  Status CheckOrigin(const http_listener::HttpRequest& head, std::string_view host,
                     bool may_change) const;
};

// A value of --http-allowed-host. kInvalidArgument where it is no bare name.
Status CheckHostName(std::string_view name);

}  // namespace inflight::kserve_http
