// SPDX-License-Identifier: Apache-2.0
// An HTTP/1.1 server: sockets, framing, limits and time-outs; what to answer is the handler's.
//
// Over TCP, or TLS over it. Understands keep-alive, pipelining, chunked requests, Expect:
// 100-continue and HEAD. A read is always pending while a request runs, so that a client's
// disconnect is noticed at once.
//
// Threads: one io_context per I/O thread; a connection stays on the thread it was given to, in
// turn. One acceptor serves all of them: SO_REUSEPORT, unless asked for, would let a second server
// on the same port start unnoticed and share its clients.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/memory_account.h"
#include "inflight/status.h"
#include "protocol/http_listener/http_message.h"
#include "protocol/tls/port_tls.h"

namespace inflight::http_listener {

struct ListenerOptions {
  std::string name = "HTTP";  // in log lines
  std::string address = "0.0.0.0";
  int port = 0;             // 0 = any free one; see port()
  std::string socket_file;  // a Unix socket in place of address and port; empty: none
  bool reuse_port = false;  // share it with other servers that do
  int threads = 0;          // 0 = by cores, 1 to 4
  // Further ones take the place of one that waits for its client (make_room.h), or are answered 503
  // and closed.
  int max_connections = 16384;
  size_t max_header_bytes = 64 * 1024;  // of a request
  int max_chunks = 65536;               // non-empty chunks of a request body
  bool request_log = false;             // a line for each request that ends
  bool keeps_raw_values = false;        // HttpRequest::raw_values
  tls::PortTlsOptions tls;
  // Charged with what connections hold; a request that it has no room for is answered 503. Null:
  // one of the listener's own, with the default limits.
  std::shared_ptr<MemoryAccount> memory;
  size_t max_stream_buffer_bytes = 4 << 20;  // waiting for a slow reader of a stream

  // From a request's first byte to its head's end.
  std::chrono::milliseconds header_timeout{30'000};
  // A body arrives at 64 KiB a second over any time of this length, or its connection is closed.
  std::chrono::milliseconds body_timeout{60'000};
  // Between requests of a connection; 0 = for ever, as Triton does.
  std::chrono::milliseconds idle_timeout{0};
  std::chrono::milliseconds write_timeout{60'000};  // without any progress of the reader
};

class HttpListener {
 public:
  // Binds, listens and starts its threads. kUnavailable names address, port and the system's
  // reason; kInvalidArgument the flag of TLS that is wrong. The handler must outlive Stop.
  static Result<std::unique_ptr<HttpListener>> Start(HttpHandler& handler,
                                                     const ListenerOptions& options);

  virtual ~HttpListener() = default;  // Stop(0)

  virtual int port() const = 0;

  // Stops accepting and closes idle connections; lets requests that run finish for `drain`, then
  // disconnects them. Blocks until no thread of the listener runs. Later calls do nothing.
  virtual void Stop(std::chrono::milliseconds drain) = 0;
};

}  // namespace inflight::http_listener
