// SPDX-License-Identifier: Apache-2.0
// One function per endpoint, in a file of its name: parse, handle, write.
#pragma once

#include <cstddef>
#include <memory>

#include "protocol/http_listener/http_message.h"
#include "protocol/kserve/access/header_forward.h"
#include "protocol/kserve/http/binary_framing.h"
#include "protocol/kserve/http/route.h"
#include "serving/server/server.h"

namespace inflight::kserve_http {

struct Context {
  serving::Server& server;
  size_t max_input_bytes;
  const kserve::HeaderForward& header_forward;
  const BinaryFraming& framing;
  bool with_compression;  // of infer's bodies, both ways
};

// Answered at once.
http_listener::HttpResponse HandleLive(const Context& context);
http_listener::HttpResponse HandleReady(const Context& context);
http_listener::HttpResponse HandleModelReady(const Context& context, const Route& route);
http_listener::HttpResponse HandleServerMetadata(const Context& context);
http_listener::HttpResponse HandleModelMetadata(const Context& context, const Route& route);
http_listener::HttpResponse HandleModelConfig(const Context& context, const Route& route);
http_listener::HttpResponse HandleStatistics(const Context& context, const Route& route);
http_listener::HttpResponse HandleIndex(const Context& context,
                                        const http_listener::HttpRequest& request);
http_listener::HttpResponse HandleSharedMemoryStatus(const Context& context, const Route& route);
http_listener::HttpResponse HandleSharedMemoryRegister(const Context& context, const Route& route,
                                                       const http_listener::HttpRequest& request);
http_listener::HttpResponse HandleSharedMemoryUnregister(const Context& context,
                                                         const Route& route);
http_listener::HttpResponse HandleTraceSetting(const Context& context, const Route& route,
                                               const http_listener::HttpRequest& request);
http_listener::HttpResponse HandleLogging(const http_listener::HttpRequest& request);

// These wait for the models that they load.
http_listener::HttpResponse HandleLoad(const Context& context, const Route& route,
                                       const http_listener::HttpRequest& request);
http_listener::HttpResponse HandleUnload(const Context& context, const Route& route,
                                         const http_listener::HttpRequest& request);

// Answered when the model responds; a client that disconnects cancels its request.
void HandleInfer(const Context& context, const Route& route,
                 const http_listener::HttpRequest& request,
                 std::shared_ptr<http_listener::HttpResponder> responder);
// generate (one response) and generate_stream (server-sent events).
void HandleGenerate(const Context& context, const Route& route, bool is_stream,
                    const http_listener::HttpRequest& request,
                    std::shared_ptr<http_listener::HttpResponder> responder);

}  // namespace inflight::kserve_http
