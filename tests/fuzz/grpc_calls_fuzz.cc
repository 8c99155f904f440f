// SPDX-License-Identifier: Apache-2.0
// What a client of gRPC may ask: messages of every method of the service, health check and
// reflection, packed or not, several on a stream, from the frames of HTTP/2 to the answer. Whatever
// came, all that it took is returned at the end.
//
// The first byte chooses the method; the second how the messages are packed and in what pieces they
// come; each message is its size in two bytes and its bytes.
#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/worker_pool.h"
#include "protocol/grpc_listener/echo_service.h"
#include "protocol/grpc_listener/session.h"
#include "protocol/kserve/grpc/fake_server.h"
#include "protocol/kserve/grpc/inference_service.h"

// For a text whose length goes beyond the message around it, protobuf 3.21 reserves up to
// 50,000,000 bytes (its kSafeStringSize), which it never touches, and fails.
extern "C" size_t InflightFuzzBaseBytes() { return size_t{64} << 20; }

namespace {

using namespace inflight;                 // NOLINT: a fuzzer's main file
using namespace inflight::grpc_listener;  // NOLINT

constexpr size_t kMaxMessageBytes = 1 << 20;
enum Packing : uint8_t { kPlain, kPacked, kBrokenlyPacked, kPackings };

void Require(bool condition) {
  if (!condition) abort();
}

// Answers twice where that is what its model does, with its inputs.
void Echo(const kserve_grpc::ReceivedRequest& received, bool is_decoupled) {
  serving::Response response{.is_final = !is_decoupled};
  response.outputs = received.request.inputs;
  received.Respond(std::move(response));
  if (is_decoupled) received.Complete();
}

struct World {
  World() {
    for (const bool is_decoupled : {false, true})
      server.AddModel(is_decoupled ? "s" : "m", is_decoupled).at_once =
          [is_decoupled](const kserve_grpc::ReceivedRequest& received) {
            Echo(received, is_decoupled);
          };
  }

  PoolPump pump;  // for the threads that load models
  kserve_grpc::FakeServer server;
  kserve_grpc::ActiveCalls calls{1024};
  const kserve_grpc::Access access{.policy = std::make_shared<kserve::AccessPolicy>(),
                                   .header_forward = {}};
  kserve_grpc::InferenceService service{
      server,
      calls,
      access,
      {.limits = {.max_message_bytes = kMaxMessageBytes}, .with_reflection = true}};
};

std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame += static_cast<char>(payload.size() >> shift);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift);
  return frame.append(payload);
}

// A field as HPACK has it that is in no table (RFC 7541, section 6.2.2).
std::string Literal(std::string_view name, std::string_view value) {
  std::string field(1, '\0');
  for (const std::string_view text : {name, value}) {
    Require(text.size() < 127);
    field += static_cast<char>(text.size());
    field += text;
  }
  return field;
}

std::string Gzip(std::string_view bytes) {
  constexpr int kGzipWindow = 31;
  z_stream stream{};
  Require(deflateInit2(&stream, 1, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  Require(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// The messages of the input in their frames of gRPC.
std::string Messages(std::string_view input, Packing packing) {
  std::string messages;
  constexpr size_t kBefore = 2;
  while (input.size() >= kBefore) {
    const auto low = static_cast<uint8_t>(input[0]);
    const auto high = static_cast<uint8_t>(input[1]);
    const size_t size = std::min<size_t>(low | high << 8, input.size() - kBefore);
    const std::string_view bytes = input.substr(kBefore, size);
    input.remove_prefix(kBefore + size);
    messages +=
        packing == kPacked ? Framed(Gzip(bytes), true) : Framed(bytes, packing == kBrokenlyPacked);
  }
  return messages;
}

std::string CallBytes(std::string_view path, std::string_view messages) {
  constexpr uint8_t kData = 0, kHeaders = 1, kSettings = 4, kEndHeaders = 4, kEndStream = 1;
  constexpr size_t kMaxFrame = 16 * 1024;
  const std::string head = Literal(":method", "POST") + Literal(":scheme", "http") +
                           Literal(":path", path) + Literal(":authority", "a") +
                           Literal("te", "trailers") + Literal("content-type", "application/grpc") +
                           Literal("grpc-encoding", "gzip");
  std::string bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  bytes += Frame(kSettings, 0, 0, {});
  bytes += Frame(kHeaders, kEndHeaders, 1, head);
  for (; messages.size() > kMaxFrame; messages.remove_prefix(kMaxFrame))
    bytes += Frame(kData, 0, 1, messages.substr(0, kMaxFrame));
  return bytes + Frame(kData, kEndStream, 1, messages);
}

// False: the connection is to be closed.
bool Exchange(Session& session, PoolPump& pump) {
  session.TellReactors();
  while (pump.RunOne(0)) session.TellReactors();
  for (std::string out;; out.clear()) {
    const bool is_open = session.Send(out, 1 << 16) && !session.IsOver();
    session.OnFlushed();
    session.TellReactors();
    if (!is_open || out.empty()) return is_open;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static World& world = *new World;
  logging::SetLevel(logging::Level::kError);  // a call may have changed it
  static const auto& paths = *new auto(kserve_grpc::InferenceService::Paths());
  constexpr size_t kBefore = 2;
  if (size < kBefore) return 0;
  const auto packing = static_cast<Packing>(data[1] % kPackings);
  const std::string bytes =
      CallBytes(paths[data[0] % paths.size()],
                Messages({reinterpret_cast<const char*>(data + kBefore), size - kBefore}, packing));
  const auto memory = MemoryAccount::Make(MemoryLimits::Of(size_t{16} << 20));
  const SessionContext context = {world.service,
                                  {.max_message_bytes = kMaxMessageBytes},
                                  [](const std::function<void()>& task) { task(); }};
  const auto thread = std::make_shared<OwnThread>();
  const Session::Time now{std::chrono::hours(1)};
  {
    Session session(context, thread, "127.0.0.1", memory->NewConnection("c", [] {}), now);
    const size_t piece = bytes.size() / (1 + data[1] / kPackings % 8) + 1;
    bool is_open = true;
    for (size_t at = 0; at < bytes.size() && is_open; at += piece) {
      is_open = session.Receive(std::string_view(bytes).substr(at, piece), now) &&
                Exchange(session, world.pump);
    }
    session.Close();
    while (world.pump.RunOne(0)) {
    }
  }
  Require(memory->used_bytes() == 0);
  Require(world.calls.WaitUntilIdle(std::chrono::milliseconds(0)));
  return 0;
}
