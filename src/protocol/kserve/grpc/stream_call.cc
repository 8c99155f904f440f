// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/stream_call.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "protocol/kserve/grpc/grpc_status.h"
#include "protocol/kserve/grpc/infer_message.h"
#include "protocol/kserve/grpc/infer_request.h"
#include "protocol/kserve/grpc/message_bytes.h"

namespace inflight::kserve_grpc {
namespace {

using ::inference::ModelInferRequest;
using ::inference::ModelStreamInferResponse;

// Reading goes on below this: enough to keep a fast client's pipe full.
constexpr int kReadBelowPending = 64;

::grpc::Status ReadsSlowly() {
  return {::grpc::StatusCode::RESOURCE_EXHAUSTED,
          "the client reads too slowly, and what waits for it takes the memory that others need "
          "(--request-memory-byte-size)"};
}

void CancelAll(const std::vector<std::shared_ptr<serving::CancelToken>>& tokens) {
  for (const auto& token : tokens) token->Cancel();
}

}  // namespace

StreamCall::StreamCall(serving::Server& server, ActiveCalls& calls, WorkerPool& writer,
                       StreamLimits limits, StreamMetadata metadata)
    : server_(server),
      calls_(calls),
      writer_(writer),
      limits_(limits),
      metadata_(std::move(metadata)) {}

StreamCall* StreamCall::Start(serving::Server& server, ActiveCalls& calls, WorkerPool& writer,
                              StreamLimits limits, StreamMetadata metadata) {
  std::shared_ptr<StreamCall> call(
      new StreamCall(server, calls, writer, limits, std::move(metadata)));
  call->self_ = call;
  if (const auto& memory = call->metadata_.memory) {
    call->share_ = memory->NewConnection(call->metadata_.client,
                                         [&writer, ended = std::weak_ptr<StreamCall>(call)] {
                                           writer.Post([ended] {
                                             if (const auto found = ended.lock())
                                               found->EndWith(ReadsSlowly(), true);
                                           });
                                         });
    call->pending_charge_ = MemoryCharge(call->share_);
  }
  const auto entered = calls.Enter(call);
  if (entered.ok()) call->call_id_ = *entered;
  if (!call->metadata_.refusal.ok()) {
    call->EndWith(ToGrpcStatus(call->metadata_.refusal), /*drop_queue=*/true);
  } else if (!entered.ok()) {
    call->EndWith(ToGrpcStatus(entered.status()), /*drop_queue=*/true);
  } else {
    call->ReadNext();
  }
  return call.get();
}

void StreamCall::ReadNext() {
  read_started_ns_ = Clock::System().NowNs();
  StartRead(&incoming_);
}

// --- reactions ---

void StreamCall::OnReadDone(bool ok) {
  auto message = std::make_shared<ModelInferRequest>();
  MemoryCharge charge(share_);
  const ParseFailure failure =
      ok ? ParseInferMessage(server_, incoming_, limits_.max_message_bytes, charge, *message)
         : ParseFailure::kNone;
  if (failure != ParseFailure::kNone && failure != ParseFailure::kNoMessage) {
    return EndWith(ToGrpcStatus(failure, limits_.max_message_bytes), /*drop_queue=*/true);
  }
  if (!ok || failure != ParseFailure::kNone) {
    Action next;
    {
      std::lock_guard lock(mutex_);
      reads_done_ = true;
      next = NextLocked();
    }
    return Do(std::move(next));
  }
  Handle(std::move(message), std::move(charge));
  {
    std::lock_guard lock(mutex_);
    if (is_finished_ || end_) return;
    if (!MayReadLocked()) {
      reads_paused_ = true;  // OnWriteDone resumes: something is pending, so a write will end
      return;
    }
  }
  ReadNext();
}

void StreamCall::OnWriteDone(bool ok) {
  Action next;
  Outgoing written;  // destroyed without the lock
  bool resume_reads = false;
  {
    std::lock_guard lock(mutex_);
    if (ok) writing_.trace.Mark("GRPC_SEND_END");
    written = std::exchange(writing_, {});
    if (share_ != nullptr) share_->SetWaiting(false);
    if (!ok && !end_) end_ = ::grpc::Status::CANCELLED;  // the client is gone; OnCancel follows
    if (!ok) queue_.clear();
    resume_reads = reads_paused_ && !end_ && MayReadLocked();
    if (resume_reads) reads_paused_ = false;
    next = NextLocked();
  }
  if (resume_reads) ReadNext();
  Do(std::move(next));
}

void StreamCall::OnCancel() { EndWith(::grpc::Status::CANCELLED, /*drop_queue=*/true); }

void StreamCall::OnDone() {
  if (share_ != nullptr) share_->SetWaiting(false);  // nobody ends it any more
  if (call_id_ != 0) calls_.Leave(call_id_);
  self_.reset();  // may delete this
}

void StreamCall::Drain() {
  Action next;
  {
    std::lock_guard lock(mutex_);
    is_draining_ = true;
    next = NextLocked();
  }
  Do(std::move(next));
}

// --- requests ---

void StreamCall::Handle(std::shared_ptr<const ModelInferRequest> message, MemoryCharge charge) {
  auto request = std::make_shared<InProgress>();
  request->request_id = message->id();
  request->model_name = message->model_name();
  request->model_version = message->model_version();
  request->cancel = std::make_shared<serving::CancelToken>();
  const auto model = server_.FindModel(message->model_name(), message->model_version());
  request->is_decoupled = model.ok() && (*model)->decoupled();
  bool is_refused = false;
  {
    std::lock_guard lock(mutex_);
    request->id = next_id_++;
    in_progress_.emplace(request->id, request->cancel);
    if (!request->is_decoupled) order_.push_back({.id = request->id, .message = {}});
    is_refused = is_draining_;
  }

  const auto reject = [&](Status status) {
    OnResponse(request, {.status = std::move(status), .is_final = true, .rejected = true});
  };
  if (is_refused) return reject(Unavailable(ShuttingDown().error_message()));
  if (!model.ok()) return reject(model.status());
  const int64_t received_ns = Clock::System().NowNs();
  Result<InferRequest> parsed = ParseInferRequest(std::move(message), server_.shared_memory(),
                                                  received_ns, std::move(charge));
  if (!parsed.ok()) return reject(parsed.status());
  request->enable_empty_final = parsed->enable_empty_final;
  parsed->request.cancel = request->cancel;
  for (const auto& [name, value] : metadata_.parameters) parsed->request.parameters[name] = value;
  request->trace = server_.tracer().Sample((*model)->name(), metadata_.trace);
  request->trace.Mark("GRPC_WAITREAD_START", read_started_ns_);
  request->trace.Mark("GRPC_WAITREAD_END", received_ns);
  parsed->request.trace = request->trace;
  server_.Infer(*model, std::move(parsed->request),
                [self = shared_from_this(), request](serving::Response response) {
                  self->OnResponse(request, std::move(response));
                });
}

void StreamCall::OnResponse(const std::shared_ptr<InProgress>& request,
                            serving::Response response) {
  if (!request->is_decoupled) {
    if (!request->single.Add(std::move(response))) return;
    response = std::move(request->single.result());
  }
  const bool is_final = response.is_final;
  request->trace.Mark("INFER_RESPONSE_COMPLETE");
  if (metadata_.is_strict && !response.status.ok() && !response.rejected) {
    EndWith(ToGrpcStatus(response.status), /*drop_queue=*/false);
    return Deliver(*request, nullptr, is_final);
  }
  const bool is_silent =
      request->is_decoupled && IsBareCompletion(response) && !request->enable_empty_final;
  Deliver(*request, is_silent ? nullptr : MakeMessage(*request, response), is_final);
}

// Names and version of what ran come from the response; what did not produce outputs is told
// apart by the words of its request.
std::unique_ptr<::grpc::ByteBuffer> StreamCall::MakeMessage(
    const InProgress& request, const serving::Response& response) const {
  auto bytes = std::make_unique<::grpc::ByteBuffer>();
  const ::grpc::Status written = FillAndWrite<ModelStreamInferResponse>(
      [&](ModelStreamInferResponse& message) { FillMessage(request, response, message); }, *bytes);
  if (written.ok()) return bytes;
  ModelStreamInferResponse message;
  message.mutable_infer_response()->set_id(request.request_id);
  message.set_error_message("the response is over the 2 GiB that one message holds");
  CHECK(WriteMessage(message, *bytes).ok());
  return bytes;
}

void StreamCall::FillMessage(const InProgress& request, const serving::Response& response,
                             ModelStreamInferResponse& message) {
  auto& out = *message.mutable_infer_response();
  if (response.status.ok() && !(request.is_decoupled && IsBareCompletion(response))) {
    WriteInferResponse(response, out);
    SetFinalMark(response.is_final, out);
    out.set_id(request.request_id);
    return;
  }
  out.set_id(request.request_id);
  if (!response.status.ok()) message.set_error_message(response.status.message());
  if (!response.rejected) {
    out.set_model_name(request.model_name);
    out.set_model_version(request.model_version);
    SetFinalMark(response.is_final, out);
  }
}

// --- writing and ending ---

void StreamCall::Deliver(const InProgress& request, std::unique_ptr<::grpc::ByteBuffer> message,
                         bool is_final) {
  bool posts = false;
  bool is_overflow = false;
  bool has_room = true;
  {
    std::lock_guard lock(mutex_);
    if (is_final) in_progress_.erase(request.id);
    if (!end_) {
      QueueLocked(request, std::move(message), is_final);
      is_overflow = TooManyPendingLocked();
      has_room = pending_charge_.Reserve(pending_bytes_).ok();
    }
    posts = !writing_ && !is_finished_ && !std::exchange(is_posted_, true);
  }
  if (posts) writer_.Post([self = shared_from_this()] { self->Advance(); });
  if (!has_room) return EndWith(ReadsSlowly(), /*drop_queue=*/true);
  if (is_overflow) {
    EndWith({::grpc::StatusCode::RESOURCE_EXHAUSTED,
             "the client reads too slowly: more than " +
                 std::to_string(limits_.max_pending_responses) + " responses or " +
                 std::to_string(limits_.max_pending_bytes) + " bytes wait to be read"},
            /*drop_queue=*/true);
  }
}

// On the writer's thread.
void StreamCall::Advance() {
  Action next;
  {
    std::lock_guard lock(mutex_);
    is_posted_ = false;
    next = NextLocked();
  }
  Do(std::move(next));
}

// Decides how the RPC ends and cancels what is in progress. The first decision stands.
void StreamCall::EndWith(::grpc::Status status, bool drop_queue) {
  Action next;
  std::vector<std::shared_ptr<serving::CancelToken>> tokens;
  {
    std::lock_guard lock(mutex_);
    if (drop_queue) queue_.clear();
    order_.clear();
    if (!end_) end_ = std::move(status);
    tokens = TakeTokensLocked();
    next = NextLocked();
  }
  Do(std::move(next));
  CancelAll(tokens);
}

void StreamCall::QueueLocked(const InProgress& request, std::unique_ptr<::grpc::ByteBuffer> message,
                             bool is_final) {
  const bool has_message = message != nullptr;
  if (has_message) {
    ++num_pending_;
    pending_bytes_ += message->Length();
  }
  Outgoing out = {.message = std::move(message), .trace = request.trace};
  if (request.is_decoupled) {
    if (has_message) queue_.push_back(std::move(out));
    return;
  }
  if (!is_final) return;
  // Places are taken in the order of ids.
  const auto place = std::lower_bound(order_.begin(), order_.end(), request.id,
                                      [](const Place& p, uint64_t id) { return p.id < id; });
  CHECK(place != order_.end() && place->id == request.id);
  place->message = std::move(out);
  ReleaseOrderedLocked();
}

void StreamCall::ReleaseOrderedLocked() {
  while (!order_.empty() && order_.front().message) {
    queue_.push_back(std::move(order_.front().message));
    order_.pop_front();
  }
}

bool StreamCall::TooManyPendingLocked() const {
  if (!writing_) return false;  // what waits for the writer does not wait for the client
  return num_pending_ > limits_.max_pending_responses ||
         // A single large response is the model's size, not the client's slowness.
         (num_pending_ > 1 && pending_bytes_ > limits_.max_pending_bytes);
}

bool StreamCall::MayReadLocked() const { return num_pending_ < kReadBelowPending; }

StreamCall::Action StreamCall::NextLocked() {
  if (writing_ || is_finished_) return {};
  if (!queue_.empty()) {
    writing_ = std::move(queue_.front());
    queue_.pop_front();
    --num_pending_;
    pending_bytes_ -= writing_.message->Length();
    writing_.trace.Mark("GRPC_SEND_START");
    if (share_ != nullptr) share_->SetWaiting(true);
    const bool may_wait = std::exchange(has_written_, true) && !queue_.empty();
    return {.write = writing_.message.get(), .may_wait = may_wait, .finish = {}};
  }
  if (!end_ && in_progress_.empty()) {
    if (reads_done_) {
      end_ = ::grpc::Status::OK;
    } else if (is_draining_) {
      end_ = ShuttingDown();
    }
  }
  if (!end_) return {};
  is_finished_ = true;
  return {.finish = end_};
}

// A write cannot race with Finish: while `writing_` is set NextLocked gives neither. While more is
// queued, gRPC need not send at once: what gathers leaves together.
void StreamCall::Do(Action action) {
  if (action.write != nullptr) {
    ::grpc::WriteOptions options;
    if (action.may_wait) options.set_buffer_hint();
    StartWrite(action.write, options);
  }
  if (action.finish) Finish(*action.finish);
}

std::vector<std::shared_ptr<serving::CancelToken>> StreamCall::TakeTokensLocked() {
  std::vector<std::shared_ptr<serving::CancelToken>> tokens;
  for (const auto& [id, token] : in_progress_) tokens.push_back(token);
  in_progress_.clear();
  return tokens;
}

}  // namespace inflight::kserve_grpc
