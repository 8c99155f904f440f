// SPDX-License-Identifier: Apache-2.0
// One function per endpoint, in a file of its name: parse, handle, write. endpoint_table.cc says
// which path leads to which.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "protocol/http_listener/http_message.h"
#include "protocol/kserve/access/header_forward.h"
#include "protocol/kserve/http/access.h"
#include "protocol/kserve/http/binary_framing.h"
#include "serving/memory/shared_memory.h"
#include "serving/server/server.h"

namespace inflight::kserve_http {

struct Context {
  serving::Server& server;
  size_t max_input_bytes;
  const kserve::HeaderForward& header_forward;
  const BinaryFraming& framing;
  bool with_compression;   // of infer's bodies, both ways
  bool strict_parameters;  // unknown members of generate are errors
  const Access& access;
};

struct Endpoint;  // endpoint_table.h

// An endpoint, and what the path says besides.
struct Route {
  const Endpoint* endpoint;
  std::string model;       // empty = all models (statistics, trace setting)
  std::string version;     // digits without leading zeros; empty = the latest
  std::string repository;  // of load and unload; empty where the path has none
  std::string region;      // of shared memory; empty = all
};

using Reply = http_listener::HttpResponse(const Context& context, const Route& route,
                                          const http_listener::HttpRequest& request);
using Start = void(const Context& context, const Route& route,
                   const http_listener::HttpRequest& request,
                   std::shared_ptr<http_listener::HttpResponder> responder);

// Answered at once.
Reply HandleLive;
Reply HandleReady;
Reply HandleModelReady;
Reply HandleServerMetadata;
Reply HandleModelMetadata;
Reply HandleModelConfig;
Reply HandleStatistics;
Reply HandleIndex;
template <serving::RegionKind kKind>
Reply HandleSharedMemoryStatus;
template <serving::RegionKind kKind>
Reply HandleSharedMemoryRegister;
template <serving::RegionKind kKind>
Reply HandleSharedMemoryUnregister;
Reply HandleIsSleeping;
Reply HandleTraceSetting;
Reply HandleLogging;

// These wait for the models that they load.
Reply HandleLoad;
Reply HandleUnload;
Reply HandleSleep;
Reply HandleWakeUp;

// Answered when the model responds; a client that disconnects cancels its request.
Start HandleInfer;
Start HandleGenerate;        // one response
Start HandleGenerateStream;  // server-sent events

// Answered when its time is over; a client that disconnects ends it.
Start HandleProfile;

}  // namespace inflight::kserve_http
