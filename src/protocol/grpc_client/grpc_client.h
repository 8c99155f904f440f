// SPDX-License-Identifier: Apache-2.0
// A client of gRPC: HTTP/2 by nghttp2 on one connection, plain or over TLS, in the thread that
// polls.
#pragma once

#include <nghttp2/nghttp2.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "protocol/grpc_client/tls_pipe.h"

namespace inflight::grpc_client {

// How a call ended: a status of gRPC (0 = OK, 4 = DEADLINE_EXCEEDED, 14 = UNAVAILABLE) and its
// text.
struct GrpcEnd {
  int code = 0;
  std::string message;
  bool is_from_server = false;  // not of a connection that was lost, or of a deadline here

  std::string ToString() const { return "gRPC " + std::to_string(code) + ": " + message; }
};

// Names are in lower case.
using Metadata = std::vector<std::pair<std::string, std::string>>;

// Of one call; its methods are called within Poll.
class GrpcListener {
 public:
  virtual ~GrpcListener() = default;
  virtual void OnMessage(std::string_view bytes) = 0;
  virtual void OnEnd(const GrpcEnd& end) = 0;  // the last that is called
};

// Threads: one, but for Wake.
class GrpcClient {
 public:
  GrpcClient(std::string host, int port, bool is_tls = false);
  explicit GrpcClient(Descriptor connected_socket);
  ~GrpcClient();  // listeners are told nothing any more
  GrpcClient(const GrpcClient&) = delete;
  GrpcClient& operator=(const GrpcClient&) = delete;

  using CallId = uint64_t;

  // Begins a call with its first message; `is_only`: there is no further one. Connects where there
  // is no connection; where that fails, the call ends with UNAVAILABLE. `deadline_ns` of the
  // system's clock (base/clock.h), 0 = none.
  CallId Start(const std::string& path, std::string_view message, bool is_only,
               GrpcListener& listener, int64_t deadline_ns, const Metadata& metadata = {});
  // A further message; not after the end.
  void Write(CallId id, std::string_view message);
  // Of a call that is not its only message's: no further one follows.
  void EndWrites(CallId id);
  // Ends the call with CANCELLED (1).
  void Cancel(CallId id);

  // Sends and receives until something was told or it is `until_ns`. Whether something was.
  bool Poll(int64_t until_ns);
  // Ends the Poll that runs, or the next one. Any thread.
  void Wake();
  // Sends and receives what can be without waiting, and tells all of it.
  void PollOnce();

 private:
  struct Call;
  struct Callbacks;

  bool Connect();
  bool ShakeHands();
  void StartSession();
  void Tell();
  void Disconnect(const std::string& why);
  bool Send();
  bool Take(std::string_view bytes);
  bool Receive(int64_t timeout_ns);
  void Receive(Call& call, std::string_view bytes);
  void End(CallId id, const GrpcEnd& end);
  void Expire(int64_t now_ns);
  Call* Find(CallId id);

  const std::string host_;
  const int port_;
  const bool is_tls_;
  const Descriptor wake_;
  bool is_woken_ = false;
  Descriptor socket_;
  std::unique_ptr<TlsPipe> tls_;  // of the connection; null: plain
  std::string connect_error_;
  nghttp2_session* session_ = nullptr;
  std::string out_;  // not taken by the socket yet
  CallId last_id_ = 0;
  std::map<CallId, std::unique_ptr<Call>> calls_;
  std::vector<std::pair<CallId, GrpcEnd>> ended_;  // to be told
  int64_t next_expiry_ns_ = 0;
  bool has_told_ = false;
};

// A call with one message each way, waited for.
struct GrpcAnswer {
  GrpcEnd end;
  std::string message;
};
GrpcAnswer CallOnce(GrpcClient& client, const std::string& path, std::string_view message,
                    int64_t timeout_ms);

}  // namespace inflight::grpc_client
