// SPDX-License-Identifier: Apache-2.0
// The answers of one request that an instance executes: names them, filters and shapes their
// outputs as the model's configuration says, and counts the request when it ends.
//
// Threads: one at a time.
// Errors: a request that was never ended (an Executable that forgot) fails as INTERNAL.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "serving/core/model.h"

namespace inflight::serving {

class ResponseSender {
 public:
  // What an answer needs to know of its request, whose tensors may be gone by then.
  struct Origin {
    std::string id;
    std::vector<std::string> requested_outputs;
    std::shared_ptr<CancelToken> cancel;
    int64_t received_ns = 0;
    int64_t batch_size = 1;
    bool is_warm_up = false;  // counts nowhere: its model may be serving
    Trace trace;
  };

  // `owner` keeps the model while the sender lives. Until the request is computed or has ended it
  // counts as pending.
  ResponseSender(std::shared_ptr<Model> owner, const Request& request, ResponseHandler handler,
                 Clock& clock);
  ~ResponseSender();
  ResponseSender(const ResponseSender&) = delete;
  ResponseSender& operator=(const ResponseSender&) = delete;

  bool ended() const { return has_ended_; }                         // its final response went out
  bool is_computed() const { return span_.compute_start_ns != 0; }  // ComputeStarts was called
  bool cancelled() const { return origin_.cancel->cancelled(); }
  bool Wants(std::string_view output) const;

  // It is computed together with others.
  void Joins(std::shared_ptr<BatchExecution> execution) { execution_ = std::move(execution); }
  // Takes from the outputs of each response what is not for the client; its error fails the
  // request.
  using TakeOutputs = std::function<Status(std::vector<Tensor>&)>;
  void BeforeOutputs(TakeOutputs take) { take_outputs_ = std::move(take); }
  // The request left the queue and its inputs are gathered: now it is computed.
  void ComputeStarts();

  void Send(std::vector<Tensor> outputs, Parameters parameters, bool is_final);
  void Fail(Status status, bool is_final);
  void Finish();  // ends a decoupled request without a further response
  // Ends a request that never ran: refused when it came, or given up while it waited.
  void Refuse(Status status);
  void Reject(Status status, FailureReason reason);

 private:
  Response Begin(bool is_final) const;
  void Deliver(Response response);
  void EndUnrun(Status status, FailureReason reason, bool is_refused);
  void Count(const Response& last);
  void LeaveQueue();

  const std::shared_ptr<Model> model_;
  const Origin origin_;
  ResponseHandler handler_;
  Clock& clock_;
  RequestSpan span_;
  std::shared_ptr<BatchExecution> execution_;  // null: it is computed by itself
  TakeOutputs take_outputs_;
  bool is_pending_ = false;
  bool has_failed_ = false;
  bool has_ended_ = false;
};

}  // namespace inflight::serving
