// SPDX-License-Identifier: Apache-2.0
// A request of the server on its way through a model: sends its responses and ends it exactly once.
//
// Threads: OnResponse is called by one thread at a time; Unwanted by any.
#pragma once

#include <cstdint>
#include <memory>

#include "inflight/status.h"
#include "protocol/triton_backend/cancel_watch.h"
#include "protocol/triton_backend/triton_api.h"
#include "serving/core/request.h"

namespace inflight::triton_backend {

class RequestCall final : public Watched {
 public:
  // `watch` and what the pointers are of outlive the call.
  RequestCall(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request,
              CancelWatch& watch);
  ~RequestCall() override;
  RequestCall(const RequestCall&) = delete;
  RequestCall& operator=(const RequestCall&) = delete;

  // Before any response: from here on the request is the call's, until its last response. After an
  // error it is still the server's.
  Status Open(std::shared_ptr<serving::CancelToken> cancel);
  void NoteStart();  // of the model's work
  void OnResponse(const serving::Response& response) noexcept;

  std::shared_ptr<serving::CancelToken> Unwanted() const override;

 private:
  Status Send(const serving::Response& response);
  Status SendError(const Status& status, uint32_t flags);
  void End(bool is_success, bool is_counted);
  void Report(bool is_success) const;
  void ReportResponse(int64_t start_ns, const Status& status);

  TRITONBACKEND_ModelInstance* const instance_;
  TRITONBACKEND_Request* const request_;
  CancelWatch& watch_;
  TRITONBACKEND_ResponseFactory* factory_ = nullptr;
  std::shared_ptr<serving::CancelToken> cancel_;
  Status lost_;  // why a response could not be sent: what follows is not sent either
  const int64_t exec_start_ns_;
  int64_t compute_start_ns_;
  int64_t compute_end_ns_ = 0;
  int64_t last_response_ns_ = 0;
};

}  // namespace inflight::triton_backend
