// SPDX-License-Identifier: Apache-2.0
// What may be sent to the ports of hosting platforms: SageMaker's routes, by which models come and
// go, and Vertex AI's two, with its redirects to every endpoint. What is answered has a status and,
// where it is JSON, is JSON.
//
// The first byte chooses the platform; the rest is a request, in one piece.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/worker_pool.h"
#include "http_target.h"
#include "protocol/kserve/http/fake_models.h"
#include "protocol/kserve/http/fake_server.h"
#include "protocol/sagemaker/sagemaker_server.h"
#include "protocol/vertex_ai/vertex_ai_server.h"

namespace {

using namespace inflight;                 // NOLINT: a fuzzer's main file
using namespace inflight::http_listener;  // NOLINT

constexpr size_t kMaxBytes = 1 << 20;
constexpr char kModel[] = R"(
name: "m" backend: "b"
input { name: "INPUT0" data_type: TYPE_INT32 dims: -1 }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: -1 }
)";

// Takes the first model that comes, and no other: nothing grows from input to input.
class Server final : public kserve_http::FakeServer {
 public:
  Server() { Add(kModel, kserve_http::Identity); }

  Status AddRepository(const serving::AddedRepository&) override { return Status::Ok(); }
  void RemoveRepository(const std::string&) override {}
  Status LoadModel(const std::string&, const serving::LoadOverride&) override {
    return std::exchange(takes_model, false) ? Status::Ok() : InvalidArgument("no room");
  }
  Status UnloadModel(const std::string&, bool) override { return NotFound("it stays"); }

  bool takes_model = true;
};

struct World {
  World() {
    logging::SetLevel(logging::Level::kError);
    std::string name = std::filesystem::temp_directory_path() / "platform_calls_XXXXXX";
    const std::filesystem::path folder = mkdtemp(name.data());
    std::filesystem::create_directories(folder / "m");
    fuzz::Require(WriteFile(folder / "m" / "config.pbtxt", kModel).ok());
    const kserve_http::EndpointOptions endpoints = {.max_input_bytes = kMaxBytes,
                                                    .max_binary_body_bytes = kMaxBytes};
    sagemaker = *sagemaker::MakeHandler(
        server, {.endpoints = endpoints, .unload_timeout = std::chrono::milliseconds(0)});
    vertex_ai = *vertex_ai::MakeHandler(server, {.endpoints = endpoints,
                                                 .health_route = "/health",
                                                 .predict_route = "/predict",
                                                 .default_model = "m",
                                                 .metrics_page = [](bool) { return "a 1\n"; }});
    const std::string body = R"({"model_name":"h","url":")" + folder.string() + "\"}";
    const std::string load = "POST /models HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                             std::to_string(body.size()) + "\r\n\r\n" + body;
    fuzz::AskOverHttp(*sagemaker, pump, kMaxBytes, reinterpret_cast<const uint8_t*>(load.data()),
                      load.size());
    fuzz::Require(!server.takes_model);
    std::filesystem::remove_all(folder);
  }

  PoolPump pump;
  Server server;
  std::unique_ptr<HttpHandler> sagemaker, vertex_ai;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static World& world = *new World;
  if (size == 0) return 0;
  logging::SetLevel(logging::Level::kError);  // a request may have changed it
  HttpHandler& handler = data[0] % 2 == 0 ? *world.sagemaker : *world.vertex_ai;
  fuzz::AskOverHttp(handler, world.pump, kMaxBytes, data + 1, size - 1);
  return 0;
}
