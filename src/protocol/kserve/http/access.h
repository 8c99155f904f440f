// SPDX-License-Identifier: Apache-2.0
// What a request's head decides over HTTP: whether the client may ask what it asks for.
#pragma once

#include <memory>
#include <optional>

#include "protocol/http_listener/http_message.h"
#include "protocol/kserve/access/access_policy.h"
#include "protocol/kserve/http/web_pages.h"

namespace inflight::kserve_http {

struct Access {
  WebPageRule web_pages;  // --http-allowed-host
  kserve::Entrance entrance = kserve::Entrance::kHttp;
  std::shared_ptr<kserve::AccessPolicy> policy = std::make_shared<kserve::AccessPolicy>();
};

// What the rules say of a request, or of one whose head alone is there: that counts for no rate.
kserve::Admission Look(const Access& access, kserve::Api api,
                       const http_listener::HttpRequest& request, bool is_whole);

// The answer to a request that a web page of somebody else sends, or that the policy refuses. None:
// its caller is set.
std::optional<http_listener::HttpResponse> Admit(const Access& access, kserve::Api api,
                                                 http_listener::HttpRequest& request);
// The same of a request whose head alone is there: it counts for no rate.
std::optional<http_listener::HttpResponse> RefusalOfHead(const Access& access, kserve::Api api,
                                                         const http_listener::HttpRequest& head);

// Of one that may read metrics and statistics: whether they tell what was found in the KV cache.
bool SeesReuse(const Access& access, const http_listener::HttpRequest& request);

}  // namespace inflight::kserve_http
