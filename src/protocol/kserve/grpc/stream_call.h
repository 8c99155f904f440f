// SPDX-License-Identifier: Apache-2.0
// One ModelStreamInfer RPC: many requests, for any models, over one bidirectional stream
// (docs/reference/protocol/grpc.md, "Streams").
#pragma once

#include <grpcpp/grpcpp.h>

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
#include "base/worker_pool.h"
#include "grpc_service.pb.h"
#include "protocol/kserve/grpc/active_calls.h"
#include "protocol/kserve/grpc/infer_response.h"
#include "serving/server/server.h"

namespace inflight::kserve_grpc {

// What a client may have of the server; beyond a limit the RPC ends with RESOURCE_EXHAUSTED.
struct StreamLimits {
  int64_t max_message_bytes = 64 << 20;  // of a request, unpacked
  // Responses that wait for the client to read them. Reading of further requests pauses far below;
  // running requests that still exceed a limit are cancelled.
  int max_pending_responses = 16384;
  size_t max_pending_bytes = size_t{256} << 20;
};

// What the metadata of a stream says.
struct StreamMetadata {
  bool is_strict = false;  // the first error of an execution ends the stream (triton_grpc_error)
  Status refusal;          // not OK: the client may not infer
  serving::Parameters parameters;  // go with every request
  serving::TraceContext trace;
  std::string client;                     // its address
  std::shared_ptr<MemoryAccount> memory;  // null: nothing is counted
};

// Order:   responses of models that are not decoupled go out in the order of their requests, each
//          held back until those before it are out; responses of decoupled models as they come.
// Threads: reactions come from gRPC's threads, responses from the models', which leave writing to
//          `writer`: a model does not wait for the network, and what gathers meanwhile leaves
//          together. One lock guards the state; no gRPC operation and no call of another folder is
//          made under it.
// Life:    gRPC (until OnDone) and every request in progress hold a reference.
class StreamCall final : public ::grpc::ServerBidiReactor<::grpc::ByteBuffer, ::grpc::ByteBuffer>,
                         public Drainable,
                         public std::enable_shared_from_this<StreamCall> {
 public:
  // Starts the RPC; gRPC owns what is returned. The referred objects outlive the call.
  static StreamCall* Start(serving::Server& server, ActiveCalls& calls, WorkerPool& writer,
                           StreamLimits limits, StreamMetadata metadata);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void Drain() override;  // ends with UNAVAILABLE as soon as no request is in progress

 private:
  // A request of the stream, from its message to its final response.
  struct InProgress {
    uint64_t id = 0;                                    // key in in_progress_
    std::string request_id, model_name, model_version;  // as the client sent them
    bool is_decoupled = false;
    bool enable_empty_final = false;
    std::shared_ptr<serving::CancelToken> cancel;
    SingleResponse single;  // not decoupled; touched by the handler only
    serving::Trace trace;   // set before the request starts
  };

  // A response on its way, with the trace of its request.
  struct Outgoing {
    std::unique_ptr<::grpc::ByteBuffer> message;
    serving::Trace trace;

    explicit operator bool() const { return message != nullptr; }
  };

  // A place in the order of responses; taken by requests for models that are not decoupled.
  struct Place {
    uint64_t id;
    Outgoing message;  // empty until it is known
  };

  // What to ask of gRPC next; decided under the lock, done after it.
  struct Action {
    const ::grpc::ByteBuffer* write = nullptr;
    // More follows it. Not so the first, which goes with the head of the answer: gRPC 1.51 reports
    // a write as done once its head is sent, and what may wait does not have it sent.
    bool may_wait = false;
    std::optional<::grpc::Status> finish;
  };

  StreamCall(serving::Server& server, ActiveCalls& calls, WorkerPool& writer, StreamLimits limits,
             StreamMetadata metadata);

  void ReadNext();
  void Handle(std::shared_ptr<const ::inference::ModelInferRequest> message, MemoryCharge charge);
  void OnResponse(const std::shared_ptr<InProgress>& request, serving::Response response);
  std::unique_ptr<::grpc::ByteBuffer> MakeMessage(const InProgress& request,
                                                  const serving::Response& response) const;
  static void FillMessage(const InProgress& request, const serving::Response& response,
                          ::inference::ModelStreamInferResponse& message);

  // Queues `message` (may be null), ends the request if `is_final`, and wakes the writer.
  void Deliver(const InProgress& request, std::unique_ptr<::grpc::ByteBuffer> message,
               bool is_final);
  void Advance();
  void EndWith(::grpc::Status status, bool drop_queue);

  void QueueLocked(const InProgress& request, std::unique_ptr<::grpc::ByteBuffer> message,
                   bool is_final);
  void ReleaseOrderedLocked();
  bool TooManyPendingLocked() const;
  bool MayReadLocked() const;
  Action NextLocked();
  void Do(Action action);
  std::vector<std::shared_ptr<serving::CancelToken>> TakeTokensLocked();

  serving::Server& server_;
  ActiveCalls& calls_;
  WorkerPool& writer_;
  const StreamLimits limits_;
  const StreamMetadata metadata_;
  ActiveCalls::CallId call_id_ = 0;
  std::shared_ptr<StreamCall> self_;  // gRPC's reference
  ::grpc::ByteBuffer incoming_;       // being read
  int64_t read_started_ns_ = 0;       // of incoming_

  std::shared_ptr<AccountShare> share_;

  std::mutex mutex_;
  MemoryCharge pending_charge_;  // of what waits to be read
  uint64_t next_id_ = 1;
  std::unordered_map<uint64_t, std::shared_ptr<serving::CancelToken>> in_progress_;
  std::deque<Place> order_;
  std::deque<Outgoing> queue_;  // ready to be written
  Outgoing writing_;            // given to gRPC
  int num_pending_ = 0;         // in order_ and queue_
  size_t pending_bytes_ = 0;
  bool reads_paused_ = false;
  bool reads_done_ = false;  // half-closed by the client
  bool is_draining_ = false;
  bool is_posted_ = false;             // Advance is on its way
  bool has_written_ = false;           // a response was given to gRPC
  bool is_finished_ = false;           // Finish was called
  std::optional<::grpc::Status> end_;  // decided; follows what is in queue_
};

}  // namespace inflight::kserve_grpc
