// SPDX-License-Identifier: Apache-2.0
// One ModelStreamInfer RPC: many requests, for any models, over one bidirectional stream
// (docs/reference/protocol/grpc.md, "Streams").
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/memory_account.h"
#include "grpc_service.pb.h"
#include "protocol/grpc_listener/rpc.h"
#include "protocol/kserve/grpc/active_calls.h"
#include "protocol/kserve/grpc/grpc_status.h"
#include "protocol/kserve/grpc/infer_response.h"
#include "serving/server/server.h"

namespace inflight::kserve_grpc {

// What a client may have of the server; beyond a limit the RPC ends with RESOURCE_EXHAUSTED.
struct StreamLimits {
  int64_t max_message_bytes = 64 << 20;  // of a request, unpacked
  // Responses that wait for the client to read them. Reading of further requests pauses far below.
  // At `held_at_responses`, or half of the bytes, requests of decoupled models are held
  // (HoldToken): an LLM generates no more for them until half of that was read. A decoupled model
  // that can wait (Model::waits_for_clients) does so there, or at all of the bytes. Running
  // requests of others that exceed a limit are cancelled.
  int held_at_responses = 16384;
  int max_pending_responses = 32768;
  size_t max_pending_bytes = size_t{256} << 20;
};

// What the metadata of a stream says.
struct StreamMetadata {
  bool is_strict = false;  // the first error of an execution ends the stream (triton_grpc_error)
  Status refusal;          // not OK: the client may not infer
  serving::Parameters parameters;  // go with every request
  serving::TraceContext trace;
  grpc_listener::Coding coding = grpc_listener::Coding::kIdentity;  // of responses
  std::shared_ptr<const Client> caller;  // by its key; null: nobody who is told from others
};

// Order:   responses of models that are not decoupled go out in the order of their requests, each
//          held back until those before it are out; responses of decoupled models as they come.
// Threads: reactions come from the listener's threads, responses from the models', which leave
//          writing to the call's I/O thread: a model waits for the network only where very much
//          is queued, and what gathers meanwhile leaves together. One lock guards the state; no
//          operation of the RPC and no call of another folder is made under it.
// Life:    the listener (until OnDone) and every request in progress hold a reference.
class StreamCall final : public grpc_listener::RpcReactor,
                         public Drainable,
                         public std::enable_shared_from_this<StreamCall> {
 public:
  // Starts the RPC. The referred objects outlive the call.
  static std::shared_ptr<StreamCall> Start(serving::Server& server, ActiveCalls& calls,
                                           StreamLimits limits, StreamMetadata metadata,
                                           std::shared_ptr<grpc_listener::Rpc> rpc);

  void OnMessage(grpc_listener::RpcMessage bytes) override;
  void OnHalfClose() override;
  void OnWritten() override;
  void OnCancel() override;
  void OnDone() override;
  void Drain() override;  // ends with UNAVAILABLE as soon as no request is in progress

 private:
  // A request of the stream, from its message to its final response.
  struct InProgress {
    uint64_t id = 0;                                    // key in in_progress_
    std::string request_id, model_name, model_version;  // as the client sent them
    bool is_decoupled = false;
    bool may_wait = false;  // its model's threads, for room in queue_
    bool enable_empty_final = false;
    bool has_failed = false;  // an error was its answer, and nothing follows
    std::shared_ptr<serving::CancelToken> cancel;
    std::shared_ptr<serving::HoldToken> hold;  // null: not decoupled
    SingleResponse single;                     // not decoupled; touched by the handler only
    serving::Trace trace;                      // set before the request starts
  };

  // A response on its way, with the trace of its request.
  struct Outgoing {
    std::string message;  // with its prefix; empty: there is none
    serving::Trace trace;

    explicit operator bool() const { return !message.empty(); }
  };

  // A place in the order of responses; taken by requests for models that are not decoupled.
  struct Place {
    uint64_t id;
    Outgoing message;  // empty until it is known
  };

  struct RequestTokens {
    std::shared_ptr<serving::CancelToken> cancel;
    std::shared_ptr<serving::HoldToken> hold;
  };
  using Tokens = std::unordered_map<uint64_t, RequestTokens>;

  // What to ask of the RPC next; decided under the lock, done after it.
  struct Action {
    std::string write;  // empty: nothing
    std::optional<Status> finish;
    bool tells_holds = false;
  };

  StreamCall(serving::Server& server, ActiveCalls& calls, StreamLimits limits,
             StreamMetadata metadata, std::shared_ptr<grpc_listener::Rpc> rpc);

  void Handle(const std::shared_ptr<const ::inference::ModelInferRequest>& message,
              MemoryCharge charge);
  void OnResponse(const std::shared_ptr<InProgress>& request, serving::Response response);
  // Where it cannot be written it says why, and is the request's last.
  std::string MakeMessage(InProgress& request, const serving::Response& response) const;
  static void FillMessage(const InProgress& request, const serving::Response& response,
                          ::inference::ModelStreamInferResponse& message);

  // Holds the model's thread until `num_bytes` more have room; on a listener's thread never.
  void AwaitRoom(const InProgress& request, size_t num_bytes);
  // Tells the requests in progress whether they are held, where that has changed.
  void TellHolds();
  // Queues `message` (may be empty), ends the request if `is_final`, and wakes the writer.
  void Deliver(const InProgress& request, std::string message, bool is_final);
  void Advance();
  void EndWith(Status status, bool drop_queue);
  void EndWithoutMemory();  // of which there is none, not even to say so

  void QueueLocked(const InProgress& request, std::string message, bool is_final);
  void ReleaseOrderedLocked();
  void DecideHoldLocked();
  bool TooManyPendingLocked() const;
  bool MayReadLocked() const;
  Action NextLocked();
  void Do(Action action);

  serving::Server& server_;
  ActiveCalls& calls_;
  const StreamLimits limits_;
  const StreamMetadata metadata_;
  ActiveCalls::CallId call_id_ = 0;
  const std::shared_ptr<grpc_listener::Rpc> rpc_;

  std::mutex mutex_;
  MemoryCharge pending_charge_;  // of what waits to be read
  uint64_t next_id_ = 1;
  Tokens in_progress_;
  std::deque<Place> order_;
  std::deque<Outgoing> queue_;  // ready to be written
  std::condition_variable has_room_;
  bool is_writing_ = false;  // one is given to the RPC
  serving::Trace written_;   // of that
  int num_pending_ = 0;      // in order_ and queue_
  size_t pending_bytes_ = 0;
  bool is_held_ = false;      // no further responses are wanted
  uint64_t num_changes_ = 0;  // of is_held_
  uint64_t last_change_told_ = 0;
  bool reads_paused_ = false;
  bool reads_done_ = false;  // half-closed by the client
  bool is_draining_ = false;
  bool is_posted_ = false;     // Advance is on its way
  bool is_finished_ = false;   // Finish was called
  std::optional<Status> end_;  // decided; follows what is in queue_
};

}  // namespace inflight::kserve_grpc
