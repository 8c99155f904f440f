// SPDX-License-Identifier: Apache-2.0
// What an HTTP endpoint sees of a request and says as its answer; no socket and no library in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/client.h"
#include "base/memory_account.h"
#include "base/request_tally.h"
#include "inflight/status.h"

namespace inflight::http_listener {

using Headers = std::vector<std::pair<std::string, std::string>>;

// Of a request without one.
inline const std::shared_ptr<const std::string>& EmptyBody() {
  static const auto empty = std::make_shared<const std::string>();
  return empty;
}

struct HttpRequest {
  std::string method;  // as sent: "GET"
  std::string target;  // as sent: "/v2/health/live?verbose=1"
  Headers headers;     // in order, names as sent
  // Of each header with the blanks behind it (raw_values.h); empty unless the listener keeps them.
  std::vector<std::string> raw_values;
  // Without transfer coding, with content coding. Shared, so that tensors may point into it.
  std::shared_ptr<const std::string> body = EmptyBody();
  std::string client;  // its address without a port
  // Of its connection: what handling the request takes is charged to it. Null: counts for nobody.
  std::shared_ptr<AccountShare> memory;
  // Whose key it came with, set by a handler that asks for keys. Null: nobody's.
  std::shared_ptr<const Client> caller;
  // For its line of the request log; null where that is off.
  std::shared_ptr<RequestTally> tally;
  // The first bytes of its head, and the last of its body; monotonic clock.
  int64_t receive_started_ns = 0;
  int64_t received_ns = 0;

  // The path of `target`: without query and, in absolute form, without scheme and authority. Not
  // percent-decoded.
  std::string_view path() const;
  // The value of the first header of this name, in any letter case; null when there is none.
  const std::string* FindHeader(std::string_view name) const;
};

// Of the value of Content-Type: without parameters such as the charset.
std::string_view MediaType(std::string_view content_type);

// Bytes that are written from where they lie; `owner` keeps them alive until they are sent.
struct Segment {
  std::span<const std::byte> data;
  std::shared_ptr<const void> owner;
};

// A whole answer. The listener adds Content-Length (of body and segments) and Connection.
struct HttpResponse {
  int status = 200;
  Headers headers;
  std::string body;
  std::vector<Segment> segments;  // follow `body`
  bool close = false;             // close the connection after it
  Reason reason = Reason::kNone;  // of an error; not sent, for front ends that have codes for it

  size_t num_bytes() const;  // of body and segments
};

// Where the answer to one request goes: either one Send, or StartStream, WriteChunk..., Finish.
// Dropped without an answer, it sends a 500, so that no client waits for ever.
//
// Threads: all methods are thread-safe; none blocks. After the client has gone they do nothing.
class HttpResponder {
 public:
  virtual ~HttpResponder() = default;

  virtual void Send(HttpResponse response) = 0;

  // Chunked transfer (HTTP/1.0 clients get the bare bytes and a closed connection).
  virtual void StartStream(int status, const Headers& headers) = 0;
  // One chunk; an empty one is left out. Chunks written while the socket is busy leave together.
  // A client that reads so slowly that more than ListenerOptions::max_stream_buffer_bytes wait
  // behind a chunk is disconnected.
  virtual void WriteChunk(std::string_view bytes) = 0;
  virtual void Finish() = 0;

  // Runs `callback` once if the client goes away before the answer is complete; at once if it has.
  // The callback runs on an I/O thread and must not block.
  virtual void OnDisconnect(std::function<void()> callback) = 0;
  // The same, when the last byte of the answer is handed to the system. Before the answer is
  // complete; dropped when the client goes away first.
  virtual void OnSent(std::function<void()> callback) = 0;
};

// A body of at most so many bytes is read whatever its head says, so that the connection may go on.
inline constexpr size_t kUnreadBodyBytes = 64 * 1024;

// The endpoints behind one listener. Threads: called from any I/O thread, concurrently.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;

  // Called with the head alone, before any byte of the body is read.
  virtual size_t MaxBodyBytes(const HttpRequest& head) const = 0;
  // The answer to a request that no body changes, so that it is not read: nobody serves it, or the
  // client may not ask it. Called where more of a body is to come than kUnreadBodyBytes or than can
  // be told; the connection closes after it.
  virtual std::optional<HttpResponse> RefuseHead(const HttpRequest&) const { return std::nullopt; }
  // The answer when the body is or grows longer. `size` is the announced Content-Length; unset for
  // a chunked body.
  virtual HttpResponse BodyTooLarge(const HttpRequest& head,
                                    std::optional<uint64_t> size) const = 0;
  // The answer to bytes that are no HTTP request; the connection closes after it.
  virtual HttpResponse BadRequest(std::string_view reason) const = 0;

  // Must not block: the thread serves other connections too.
  virtual void Handle(HttpRequest request, std::shared_ptr<HttpResponder> responder) = 0;
};

}  // namespace inflight::http_listener
