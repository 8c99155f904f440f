// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/traced.h"

namespace inflight::kserve_http {
namespace {

std::string HeaderOf(const http_listener::HttpRequest& request, std::string_view name) {
  const std::string* value = request.FindHeader(name);
  return value == nullptr ? std::string() : *value;
}

}  // namespace

serving::Trace SampleTrace(serving::Server& server, const std::string& model,
                           const http_listener::HttpRequest& request) {
  serving::Tracer& tracer = server.tracer();
  if (!tracer.is_on()) return {};
  serving::Trace trace = tracer.Sample(model, {.traceparent = HeaderOf(request, "traceparent"),
                                               .tracestate = HeaderOf(request, "tracestate")});
  trace.Mark("HTTP_RECV_START", request.receive_started_ns);
  trace.Mark("HTTP_RECV_END", request.received_ns);
  return trace;
}

void TraceSending(const serving::Trace& trace, http_listener::HttpResponder& responder) {
  if (!trace) return;
  trace.Mark("HTTP_SEND_START");
  responder.OnSent([trace] { trace.Mark("HTTP_SEND_END"); });
}

}  // namespace inflight::kserve_http
