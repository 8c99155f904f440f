// SPDX-License-Identifier: Apache-2.0
// What a client of gRPC may send: HTTP/2 frames, heads, messages, in pieces of any size. The
// service echoes. Whatever came, all that the session held is returned at its end.
//
// The first byte says how large the pieces are, and whether the preface goes before.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "protocol/grpc_listener/echo_service.h"
#include "protocol/grpc_listener/session.h"

namespace {

using namespace inflight;                 // NOLINT: a fuzzer's main file
using namespace inflight::grpc_listener;  // NOLINT

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

void Require(bool condition) {
  if (!condition) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto memory = MemoryAccount::Make(MemoryLimits::Of(size_t{4} << 20));
  EchoService service;
  service.keeps_rpcs = false;
  const SessionContext context = {
      service, {.max_message_bytes = 1 << 16}, [](const std::function<void()>& task) { task(); }};
  const auto thread = std::make_shared<OwnThread>();
  const Session::Time now{std::chrono::hours(1)};
  {
    Session session(context, thread, "c", memory->NewConnection("c", [] {}), now);
    const size_t piece = 1 + (data[0] & 127) * 8;
    std::string bytes(data[0] & 128 ? kPreface : std::string_view());
    bytes.append(reinterpret_cast<const char*>(data + 1), size - 1);
    bool is_open = true;
    for (size_t at = 0; at < bytes.size() && is_open; at += piece) {
      is_open = session.Receive(std::string_view(bytes).substr(at, piece), now);
      session.TellReactors();
      std::string out;
      is_open = is_open && session.Send(out, 1 << 16) && !session.IsOver();
      session.OnFlushed();
    }
    session.Close();
    for (const auto& call : service.calls) Require(call->is_done || !call->is_cancelled);
  }
  Require(memory->used_bytes() == 0);
  return 0;
}
