// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/stream_call.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/no_memory_left.h"
#include "json/valid_text.h"
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
// And while responses are held, below so many requests in progress.
constexpr size_t kReadBelowHeldRequests = 64;

// Within Handle: the thread is a listener's, which writes what others would wait for.
thread_local bool is_handling = false;

Status ReadsSlowly() {
  return ResourceExhausted(
      "the client reads too slowly, and what waits for it takes the memory that others need "
      "(--request-memory-byte-size)");
}

template <typename Tokens>
void CancelAll(const Tokens& tokens) {
  for (const auto& [id, token] : tokens) token.cancel->Cancel();
}

}  // namespace

StreamCall::StreamCall(serving::Server& server, ActiveCalls& calls, StreamLimits limits,
                       StreamMetadata metadata, std::shared_ptr<grpc_listener::Rpc> rpc)
    : server_(server),
      calls_(calls),
      limits_(limits),
      metadata_(std::move(metadata)),
      rpc_(std::move(rpc)),
      pending_charge_(rpc_->share()) {}

std::shared_ptr<StreamCall> StreamCall::Start(serving::Server& server, ActiveCalls& calls,
                                              StreamLimits limits, StreamMetadata metadata,
                                              std::shared_ptr<grpc_listener::Rpc> rpc) {
  std::shared_ptr<StreamCall> call(
      new StreamCall(server, calls, limits, std::move(metadata), std::move(rpc)));
  const Coding coding = call->metadata_.coding;
  if (coding != Coding::kIdentity) call->rpc_->SetResponseCoding(coding);
  const auto entered = calls.Enter(call);
  if (entered.ok()) call->call_id_ = *entered;
  if (!call->metadata_.refusal.ok()) {
    call->EndWith(ToGrpcStatus(call->metadata_.refusal), /*drop_queue=*/true);
  } else if (!entered.ok()) {
    call->EndWith(ToGrpcStatus(entered.status()), /*drop_queue=*/true);
  } else {
    call->rpc_->Read();
  }
  return call;
}

// --- reactions ---

void StreamCall::OnMessage(grpc_listener::RpcMessage bytes) {
  auto message = MakeOnArena<ModelInferRequest>();
  MemoryCharge charge(rpc_->share());
  const ParseFailure failure =
      ParseInferMessage(server_, bytes, limits_.max_message_bytes, charge, *message);
  bytes = {};
  if (failure == ParseFailure::kNoMessage) return OnHalfClose();
  if (failure != ParseFailure::kNone) {
    return EndWith(ToGrpcStatus(failure, limits_.max_message_bytes), /*drop_queue=*/true);
  }
  is_handling = true;
  Handle(message, std::move(charge));
  is_handling = false;
  {
    std::lock_guard lock(mutex_);
    if (is_finished_ || end_) return;
    if (!MayReadLocked()) {
      reads_paused_ = true;  // OnWritten resumes: something is pending, so a write will end
      return;
    }
  }
  rpc_->Read();
}

void StreamCall::OnHalfClose() {
  Action next;
  {
    std::lock_guard lock(mutex_);
    reads_done_ = true;
    next = NextLocked();
  }
  Do(std::move(next));
}

void StreamCall::OnWritten() {
  Action next;
  bool resume_reads = false;
  {
    std::lock_guard lock(mutex_);
    written_.Mark("GRPC_SEND_END");
    is_writing_ = false;
    resume_reads = reads_paused_ && !end_ && MayReadLocked();
    if (resume_reads) reads_paused_ = false;
    next = NextLocked();
  }
  if (resume_reads) rpc_->Read();
  Do(std::move(next));
}

// What is being written goes nowhere any more.
void StreamCall::OnCancel() {
  {
    std::lock_guard lock(mutex_);
    is_writing_ = false;
  }
  logging::Verbose(
      "Cancellation notification received for ModelStreamInferHandler, rpc_ok=1, context 0, 0 step "
      "ISSUED");
  EndWith(Cancelled("the client is gone"), /*drop_queue=*/true);
}

void StreamCall::OnDone() {
  if (call_id_ != 0) calls_.Leave(call_id_);
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

void StreamCall::Handle(const std::shared_ptr<const ModelInferRequest>& message,
                        MemoryCharge charge) {
  auto request = std::make_shared<InProgress>();
  request->request_id = message->id();
  request->model_name = message->model_name();
  request->model_version = message->model_version();
  request->cancel = std::make_shared<serving::CancelToken>();
  const auto model = server_.FindModel(message->model_name(), message->model_version());
  request->is_decoupled = model.ok() && (*model)->decoupled();
  request->may_wait = request->is_decoupled && (*model)->waits_for_clients();
  if (request->is_decoupled) request->hold = std::make_shared<serving::HoldToken>();
  bool is_refused = false;
  bool is_held = false;
  uint64_t num_changes = 0;
  {
    std::lock_guard lock(mutex_);
    if (end_) return;  // while the message was parsed: who would cancel it has been and gone
    request->id = next_id_++;
    in_progress_.emplace(request->id, RequestTokens{request->cancel, request->hold});
    is_held = is_held_;
    num_changes = num_changes_;
    if (!request->is_decoupled) order_.push_back({.id = request->id, .message = {}});
    is_refused = is_draining_;
  }

  if (is_held && request->hold != nullptr) request->hold->Set(true, num_changes);
  const auto reject = [&](Status status) {
    OnResponse(request, {.status = std::move(status), .is_final = true, .rejected = true});
  };
  if (is_refused) return reject(Stopping());
  if (!model.ok()) return reject(model.status());
  const int64_t received_ns = Clock::System().NowNs();
  Result<InferRequest> parsed =
      ParseInferRequest(message, server_.shared_memory().Of(IdentityOf(metadata_.caller)),
                        received_ns, std::move(charge));
  if (!parsed.ok()) return reject(parsed.status());
  request->enable_empty_final = parsed->enable_empty_final;
  parsed->request.cancel = request->cancel;
  parsed->request.hold = request->hold;
  parsed->request.client = metadata_.caller;
  parsed->request.tally = rpc_->tally();
  parsed->request.is_of_stream = true;
  for (const auto& [name, value] : metadata_.parameters) parsed->request.parameters[name] = value;
  request->trace = server_.tracer().Sample((*model)->name(), metadata_.trace);
  request->trace.Mark("GRPC_WAITREAD_START", rpc_->read_started_ns());
  request->trace.Mark("GRPC_WAITREAD_END", received_ns);
  parsed->request.trace = request->trace;
  server_.Infer(*model, std::move(parsed->request),
                [self = shared_from_this(), request](serving::Response response) {
                  try {
                    self->OnResponse(request, std::move(response));
                  } catch (const std::bad_alloc&) {
                    self->EndWithoutMemory();
                  }
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
    return Deliver(*request, {}, is_final);
  }
  if (request->has_failed) return Deliver(*request, {}, is_final);
  const bool is_silent =
      request->is_decoupled && IsBareCompletion(response) && !request->enable_empty_final;
  Deliver(*request, is_silent ? std::string() : MakeMessage(*request, response), is_final);
}

// Names and version of what ran come from the response; what did not produce outputs is told
// apart by the words of its request.
std::string StreamCall::MakeMessage(InProgress& request, const serving::Response& response) const {
  std::string bytes;
  const Status written = FillAndWrite<ModelStreamInferResponse>(
      [&](ModelStreamInferResponse& message) { FillMessage(request, response, message); },
      metadata_.coding, bytes);
  if (written.ok()) return bytes;
  request.has_failed = true;
  request.cancel->Cancel();
  ModelStreamInferResponse message;
  message.mutable_infer_response()->set_id(request.request_id);
  message.set_error_message(json::ValidText(written.message()));
  CHECK(WriteMessage(message, metadata_.coding, bytes).ok());
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
  if (!response.status.ok()) message.set_error_message(json::ValidText(response.status.message()));
  if (!response.rejected) {
    out.set_model_name(request.model_name);
    out.set_model_version(request.model_version);
    SetFinalMark(response.is_final, out);
  }
}

// --- writing and ending ---

// What is queued leaves without a further response: a write is under way or Advance will begin one.
void StreamCall::AwaitRoom(const InProgress& request, size_t num_bytes) {
  if (!request.may_wait || is_handling) return;
  std::unique_lock lock(mutex_);
  has_room_.wait(lock, [&] {
    return end_ || queue_.empty() ||
           (queue_.size() < static_cast<size_t>(limits_.held_at_responses) &&
            pending_bytes_ + num_bytes <= limits_.max_pending_bytes);
  });
}

void StreamCall::TellHolds() {
  std::vector<std::shared_ptr<serving::HoldToken>> tokens;
  bool is_held = false;
  uint64_t num_changes = 0;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, token] : in_progress_)
      if (token.hold != nullptr) tokens.push_back(token.hold);
    is_held = is_held_;
    num_changes = last_change_told_ = num_changes_;
  }
  for (const auto& token : tokens) token->Set(is_held, num_changes);
}

void StreamCall::Deliver(const InProgress& request, std::string message, bool is_final) {
  bool posts = false;
  bool is_overflow = false;
  bool has_room = true;
  bool tells_holds = false;
  if (!message.empty()) AwaitRoom(request, message.size());
  {
    std::lock_guard lock(mutex_);
    if (is_final) in_progress_.erase(request.id);
    if (!end_) {
      QueueLocked(request, std::move(message), is_final);
      is_overflow = TooManyPendingLocked();
      has_room = pending_charge_.Reserve(pending_bytes_).ok();
      DecideHoldLocked();
      tells_holds = last_change_told_ != num_changes_;
    }
    posts = !is_writing_ && !is_finished_ && !std::exchange(is_posted_, true);
  }
  if (posts) rpc_->Post([self = shared_from_this()] { self->Advance(); });
  if (tells_holds) TellHolds();
  if (!has_room) return EndWith(ReadsSlowly(), /*drop_queue=*/true);
  if (is_overflow) {
    EndWith(ResourceExhausted("the client reads too slowly: more than " +
                              std::to_string(limits_.max_pending_responses) + " responses or " +
                              std::to_string(limits_.max_pending_bytes) + " bytes wait to be read"),
            /*drop_queue=*/true);
  }
}

// On the I/O thread.
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
void StreamCall::EndWith(Status status, bool drop_queue) {
  Action next;
  Tokens tokens;
  {
    std::lock_guard lock(mutex_);
    if (drop_queue) {
      queue_.clear();
      pending_charge_.Release();
    }
    order_.clear();
    if (!end_) end_ = std::move(status);
    has_room_.notify_all();
    tokens = std::exchange(in_progress_, {});
    next = NextLocked();
  }
  Do(std::move(next));
  CancelAll(tokens);
}

void StreamCall::EndWithoutMemory() {
  try {
    EndWith(NoMemoryLeft(), /*drop_queue=*/true);
  } catch (const std::bad_alloc&) {
    rpc_->Lose();
  }
}

void StreamCall::QueueLocked(const InProgress& request, std::string message, bool is_final) {
  const bool has_message = !message.empty();
  if (has_message) {
    ++num_pending_;
    pending_bytes_ += message.size();
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
  if (!is_writing_) return false;  // what waits for the writer does not wait for the client
  return num_pending_ > limits_.max_pending_responses ||
         // A single large response is the model's size, not the client's slowness.
         (num_pending_ > 1 && pending_bytes_ > limits_.max_pending_bytes);
}

// Requests of a client that does not read wait as long as it likes: it gets no place for many.
bool StreamCall::MayReadLocked() const {
  return num_pending_ < kReadBelowPending &&
         (!is_held_ || in_progress_.size() < kReadBelowHeldRequests);
}

// While nothing is being written the client is not what responses wait for.
void StreamCall::DecideHoldLocked() {
  const auto most = static_cast<size_t>(limits_.held_at_responses);
  const size_t most_bytes = limits_.max_pending_bytes / 2;
  const bool is_held =
      !queue_.empty() &&
      (is_held_ ? queue_.size() > most / 2 || pending_bytes_ > most_bytes / 2
                : is_writing_ && (queue_.size() >= most || pending_bytes_ >= most_bytes));
  if (is_held == is_held_) return;
  is_held_ = is_held;
  ++num_changes_;
}

StreamCall::Action StreamCall::NextLocked() {
  if (is_writing_ || is_finished_) return {};
  if (!queue_.empty()) {
    Outgoing next = std::move(queue_.front());
    queue_.pop_front();
    has_room_.notify_all();
    --num_pending_;
    pending_bytes_ -= next.message.size();
    if (num_pending_ == 0) pending_charge_.Release();
    is_writing_ = true;
    DecideHoldLocked();
    written_ = std::move(next.trace);
    written_.Mark("GRPC_SEND_START");
    return {.write = std::move(next.message),
            .finish = {},
            .tells_holds = last_change_told_ != num_changes_};
  }
  if (!end_ && in_progress_.empty()) {
    if (reads_done_) {
      end_.emplace();
    } else if (is_draining_) {
      end_ = Stopping();
    }
  }
  if (!end_) return {};
  is_finished_ = true;
  return {.write = {}, .finish = std::move(end_)};  // a copy needs memory; it still has a value
}

// A write cannot race with Finish: while one is under way NextLocked gives neither.
void StreamCall::Do(Action action) {
  if (!action.write.empty()) rpc_->Write(std::move(action.write));
  if (action.tells_holds) TellHolds();
  if (action.finish) rpc_->Finish(*std::move(action.finish), {});
}

}  // namespace inflight::kserve_grpc
