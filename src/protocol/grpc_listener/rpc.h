// SPDX-License-Identifier: Apache-2.0
// What a service sees of one RPC: no socket, no HTTP/2 and no library in it.
//
//   RpcHandler   the service: makes a reactor for each call
//   RpcReactor   the service's side of a call, which is told what happens
//   Rpc          the listener's side of it, which is asked to read, to write and to finish
//
// Threads: the listener calls a reactor one call at a time, on the connection's I/O thread, which
// must not be blocked. OnMessage alone may come from a thread of its own where the message is large
// or compressed; OnCancel may come meanwhile. The methods of an Rpc are for any thread.
// Life:    the listener holds the reactor until OnDone has returned.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/memory_account.h"
#include "base/request_tally.h"
#include "inflight/status.h"

namespace inflight::grpc_listener {

// How the bytes of messages are compressed: `grpc-encoding`.
enum class Coding { kIdentity, kGzip, kDeflate };

// A message as the client sent it.
struct RpcMessage {
  std::string bytes;  // without the prefix
  Coding coding = Coding::kIdentity;
  MemoryCharge charge;  // for `bytes`
};

// Names are in lower case; in the order in which they came. Values of `-bin` names as they are.
using Metadata = std::vector<std::pair<std::string, std::string>>;

class Rpc {
 public:
  virtual ~Rpc() = default;

  // What the head of the call says; constant.
  virtual std::string_view path() const = 0;  // "/package.Service/Method"
  virtual const Metadata& metadata() const = 0;
  virtual const std::string& client() const = 0;  // its IP address, "127.0.0.1"
  // Of the connection: what handling the call takes is charged to it.
  virtual const std::shared_ptr<AccountShare>& share() const = 0;
  // For its line of the request log; null where that is off.
  virtual std::shared_ptr<RequestTally> tally() const = 0;
  // Of those that the client takes (`grpc-accept-encoding`), in its order, without identity.
  virtual const std::vector<Coding>& accepted_codings() const = 0;
  // When the first bytes of the message that OnMessage brought last came; monotonic clock.
  virtual int64_t read_started_ns() const = 0;

  // Names the coding of compressed responses in the head. Before the first Write or Finish.
  virtual void SetResponseCoding(Coding coding) = 0;

  // Asks for the next message: OnMessage or OnHalfClose follows, once.
  virtual void Read() = 0;
  // Sends a message, with its prefix (message_bytes.h). OnWritten follows once its last byte is on
  // its way, unless the call ends before. One at a time.
  virtual void Write(std::string message) = 0;
  // Ends the call: `message`, unless empty, then the status, whose code has gRPC's number. Once;
  // OnDone follows.
  virtual void Finish(Status status, std::string message = {}) = 0;
  // Ends the call without memory, where Finish found none: its client is told that there was none.
  // Nothing else may follow; OnDone does.
  virtual void Lose() = 0;
  // Runs `task` on the I/O thread; not at all, once the connection has closed.
  virtual void Post(std::function<void()> task) = 0;

  // Of `metadata`, the first value of `name`; null: there is none.
  const std::string* FindMetadata(std::string_view name) const;
};

class RpcReactor {
 public:
  virtual ~RpcReactor() = default;

  virtual void OnMessage(RpcMessage message) = 0;
  virtual void OnHalfClose() = 0;  // the client sends no more
  virtual void OnWritten() {}
  // The call is over for the client: it has cancelled it or gone, or the deadline has passed.
  // Finish has to be called all the same, and sends nothing.
  virtual void OnCancel() {}
  // After Finish: what it had to send is sent or dropped. The last that is called.
  virtual void OnDone() {}
};

class RpcHandler {
 public:
  virtual ~RpcHandler() = default;

  // Called once for each call, when its head is there; nothing is read before Read is called.
  virtual std::shared_ptr<RpcReactor> Start(std::shared_ptr<Rpc> rpc) = 0;
};

}  // namespace inflight::grpc_listener
