// SPDX-License-Identifier: Apache-2.0
// The front end's part of a trace: when a request came and its answer left.
#pragma once

#include <memory>
#include <string>

#include "protocol/http_listener/http_message.h"
#include "serving/server/server.h"

namespace inflight::kserve_http {

// A trace of this request to `model`, with HTTP_RECV_START and HTTP_RECV_END; empty for most.
serving::Trace SampleTrace(serving::Server& server, const std::string& model,
                           const http_listener::HttpRequest& request);

// HTTP_SEND_START now, HTTP_SEND_END when the last byte of the answer is written.
void TraceSending(const serving::Trace& trace, http_listener::HttpResponder& responder);

}  // namespace inflight::kserve_http
