// SPDX-License-Identifier: Apache-2.0
// What a client of HTTP may send, from the first byte of a head to the answer of an endpoint:
// heads, chunks, trailers, routes, bodies of every endpoint (infer, generate, load, shared memory,
// trace and log settings, base64 in them). What is answered has a status and, where it is JSON, is
// JSON.
//
// The bytes come in one piece, as they would over a socket.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/log.h"
#include "base/worker_pool.h"
#include "http_target.h"
#include "protocol/kserve/http/fake_server.h"
#include "protocol/kserve/http/http_server.h"

namespace {

using namespace inflight;                 // NOLINT: a fuzzer's main file
using namespace inflight::http_listener;  // NOLINT

constexpr size_t kMaxBytes = 1 << 20;

// Gives the inputs back, and twice where it is asked to stream.
void Echo(serving::Request request, const serving::ResponseHandler& handler) {
  handler({.model_name = request.model_name,
           .model_version = "1",
           .id = request.id,
           .outputs = std::move(request.inputs),
           .is_final = true});
}

constexpr char kModel[] = R"(
name: "m" backend: "b" max_batch_size: 8
input { name: "A" data_type: TYPE_FP32 dims: -1 } input { name: "B" data_type: TYPE_STRING dims: -1 optional: true }
output { name: "A" data_type: TYPE_FP32 dims: -1 } output { name: "B" data_type: TYPE_STRING dims: -1 }
)";

// What the handler's threads would do is done here, without waiting for them.
struct World {
  World() {
    server.Add(kModel, Echo);
    handler = kserve_http::MakeHandler(
        server, {.max_input_bytes = kMaxBytes, .max_binary_body_bytes = kMaxBytes});
  }

  PoolPump pump;
  kserve_http::FakeServer server;
  std::unique_ptr<HttpHandler> handler;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static World& world = *new World;
  HttpHandler& handler = *world.handler;
  logging::SetLevel(logging::Level::kError);  // a request may have changed it
  fuzz::AskOverHttp(handler, world.pump, kMaxBytes, data, size);
  return 0;
}
