// SPDX-License-Identifier: Apache-2.0
#include "protocol/triton_backend/request_call.h"

#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/status_macros.h"
#include "protocol/triton_backend/errors.h"
#include "tensor/cuda_runtime_calls.h"

namespace inflight::triton_backend {
namespace {

int64_t NowNs() { return Clock::System().NowNs(); }

struct Deleted {
  void operator()(TRITONBACKEND_Response* response) const {
    LogFailure(TRITONBACKEND_ResponseDelete(response), "TRITONBACKEND_ResponseDelete");
  }
  void operator()(TRITONSERVER_Error* error) const { TRITONSERVER_ErrorDelete(error); }
};
using ResponsePtr = std::unique_ptr<TRITONBACKEND_Response, Deleted>;
using ErrorPtr = std::unique_ptr<TRITONSERVER_Error, Deleted>;

Result<ResponsePtr> NewResponse(TRITONBACKEND_ResponseFactory* factory) {
  TRITONBACKEND_Response* response = nullptr;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ResponseNewFromFactory(&response, factory),
                             "TRITONBACKEND_ResponseNewFromFactory"));
  return ResponsePtr(response);
}

Status AddOutput(TRITONBACKEND_Response* response, const serving::Tensor& tensor) {
  TRITONBACKEND_Output* output = nullptr;
  RETURN_IF_ERROR(FromTriton(
      TRITONBACKEND_ResponseOutput(response, &output, tensor.name.c_str(),
                                   static_cast<TRITONSERVER_DataType>(tensor.datatype),
                                   tensor.shape.data(), static_cast<uint32_t>(tensor.shape.size())),
      "TRITONBACKEND_ResponseOutput"));
  void* buffer = nullptr;
  TRITONSERVER_MemoryType place = TRITONSERVER_MEMORY_CPU;
  int64_t device = 0;
  RETURN_IF_ERROR(
      FromTriton(TRITONBACKEND_OutputBuffer(output, &buffer, tensor.data.size(), &place, &device),
                 "TRITONBACKEND_OutputBuffer"));
  if (tensor.data.empty()) return Status::Ok();
  if (place == TRITONSERVER_MEMORY_GPU) {
    RETURN_IF_ERROR(CheckGpuMemory());
    return cuda::Copy(static_cast<int>(device), buffer, tensor.data.data(), tensor.data.size());
  }
  std::memcpy(buffer, tensor.data.data(), tensor.data.size());
  return Status::Ok();
}

Status AddParameter(TRITONBACKEND_Response* response, const std::string& key,
                    const serving::ParameterValue& value) {
  const char* const name = key.c_str();
  if (const auto* text = std::get_if<std::string>(&value)) {
    return FromTriton(TRITONBACKEND_ResponseSetStringParameter(response, name, text->c_str()),
                      "TRITONBACKEND_ResponseSetStringParameter");
  }
  if (const auto* flag = std::get_if<bool>(&value)) {
    return FromTriton(TRITONBACKEND_ResponseSetBoolParameter(response, name, *flag),
                      "TRITONBACKEND_ResponseSetBoolParameter");
  }
  if (const auto* number = std::get_if<double>(&value)) {
    if (&TRITONBACKEND_ResponseSetDoubleParameter == nullptr)
      return Unimplemented(key, "this server has no parameters that are floating point numbers");
    return FromTriton(TRITONBACKEND_ResponseSetDoubleParameter(response, name, *number),
                      "TRITONBACKEND_ResponseSetDoubleParameter");
  }
  const auto* const natural = std::get_if<uint64_t>(&value);
  const int64_t whole =
      natural != nullptr ? static_cast<int64_t>(*natural) : std::get<int64_t>(value);
  return FromTriton(TRITONBACKEND_ResponseSetIntParameter(response, name, whole),
                    "TRITONBACKEND_ResponseSetIntParameter");
}

// Nobody asks for anything: the end of a request that sends its responses apart.
bool IsBareEnd(const serving::Response& response) {
  return response.is_final && response.status.ok() && response.outputs.empty() &&
         !response.has_answer && response.parameters.empty();
}

}  // namespace

RequestCall::RequestCall(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request,
                         CancelWatch& watch)
    : instance_(instance),
      request_(request),
      watch_(watch),
      exec_start_ns_(NowNs()),
      compute_start_ns_(exec_start_ns_) {}

RequestCall::~RequestCall() {
  if (factory_ == nullptr) return;
  LogFailure(TRITONBACKEND_ResponseFactoryDelete(factory_), "TRITONBACKEND_ResponseFactoryDelete");
}

Status RequestCall::Open(std::shared_ptr<serving::CancelToken> cancel) {
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ResponseFactoryNew(&factory_, request_),
                             "TRITONBACKEND_ResponseFactoryNew"));
  cancel_ = std::move(cancel);
  watch_.Add(*this);
  return Status::Ok();
}

void RequestCall::NoteStart() {
  compute_start_ns_ = NowNs();
  last_response_ns_ = compute_start_ns_;
}

std::shared_ptr<serving::CancelToken> RequestCall::Unwanted() const {
  if (&TRITONBACKEND_ResponseFactoryIsCancelled == nullptr || cancel_->cancelled()) return nullptr;
  bool is_cancelled = false;
  LogFailure(TRITONBACKEND_ResponseFactoryIsCancelled(factory_, &is_cancelled),
             "TRITONBACKEND_ResponseFactoryIsCancelled");
  return is_cancelled ? cancel_ : nullptr;
}

void RequestCall::OnResponse(const serving::Response& response) noexcept {
  if (response.is_final) {
    watch_.Remove(*this);
    compute_end_ns_ = NowNs();
  }
  Status sent = lost_;
  if (sent.ok()) {
    try {
      sent = Send(response);
    } catch (const std::exception& error) {
      sent = Caught("the response cannot be sent", error);
    }
  }
  if (response.is_final) {
    if (!sent.ok())
      LogFailure(ToTriton(SendError(sent, TRITONSERVER_RESPONSE_COMPLETE_FINAL)), "error response");
    return End(sent.ok() && response.status.ok(), /*is_counted=*/!response.has_answer);
  }
  if (sent.ok() || !lost_.ok()) return;
  lost_ = std::move(sent);
  cancel_->Cancel();
}

Status RequestCall::Send(const serving::Response& response) {
  const uint32_t flags = response.is_final ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0;
  if (!response.status.ok()) return SendError(response.status, flags);
  if (IsBareEnd(response)) {
    return FromTriton(TRITONBACKEND_ResponseFactorySendFlags(factory_, flags),
                      "TRITONBACKEND_ResponseFactorySendFlags");
  }
  const int64_t start_ns = std::exchange(last_response_ns_, NowNs());
  ASSIGN_OR_RETURN(ResponsePtr made, NewResponse(factory_));
  for (const serving::Tensor& output : response.outputs) {
    RETURN_IF_ERROR(AddOutput(made.get(), output).WithPrefix("output '" + output.name + "'"));
  }
  for (const auto& [key, value] : response.parameters) {
    RETURN_IF_ERROR(AddParameter(made.get(), key, value));
  }
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ResponseSend(made.release(), flags, nullptr),
                             "TRITONBACKEND_ResponseSend"));
  ReportResponse(start_ns, Status::Ok());
  return Status::Ok();
}

Status RequestCall::SendError(const Status& status, uint32_t flags) {
  const int64_t start_ns = std::exchange(last_response_ns_, NowNs());
  ASSIGN_OR_RETURN(ResponsePtr made, NewResponse(factory_));
  const ErrorPtr error(ToTriton(status));
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ResponseSend(made.release(), flags, error.get()),
                             "TRITONBACKEND_ResponseSend"));
  ReportResponse(start_ns, status);
  return Status::Ok();
}

// Of servers that keep statistics of single responses.
void RequestCall::ReportResponse(int64_t start_ns, const Status& status) {
  if (&TRITONBACKEND_ModelInstanceResponseStatisticsNew == nullptr) return;
  TRITONBACKEND_ModelInstanceResponseStatistics* statistics = nullptr;
  const auto check = [](TRITONSERVER_Error* error) { LogFailure(error, "response statistics"); };
  check(TRITONBACKEND_ModelInstanceResponseStatisticsNew(&statistics));
  if (statistics == nullptr) return;
  check(TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(statistics, instance_));
  check(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(statistics, factory_));
  check(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(
      statistics, static_cast<uint64_t>(start_ns)));
  if (status.ok()) {
    check(TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(
        statistics, static_cast<uint64_t>(last_response_ns_)));
  }
  check(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(
      statistics, static_cast<uint64_t>(NowNs())));
  const ErrorPtr error(ToTriton(status));
  check(TRITONBACKEND_ModelInstanceResponseStatisticsSetError(statistics, error.get()));
  check(TRITONBACKEND_ModelInstanceReportResponseStatistics(statistics));
  check(TRITONBACKEND_ModelInstanceResponseStatisticsDelete(statistics));
}

// A stop of another request is an answer, but no inference.
void RequestCall::End(bool is_success, bool is_counted) {
  if (is_counted) Report(is_success);
  LogFailure(TRITONBACKEND_ResponseFactoryDelete(std::exchange(factory_, nullptr)),
             "TRITONBACKEND_ResponseFactoryDelete");
  LogFailure(TRITONBACKEND_RequestRelease(request_, TRITONSERVER_REQUEST_RELEASE_ALL),
             "TRITONBACKEND_RequestRelease");
}

void RequestCall::Report(bool is_success) const {
  const auto at = [](int64_t ns) { return static_cast<uint64_t>(ns); };
  const int64_t exec_end_ns = NowNs();
  LogFailure(TRITONBACKEND_ModelInstanceReportStatistics(instance_, request_, is_success,
                                                         at(exec_start_ns_), at(compute_start_ns_),
                                                         at(compute_end_ns_), at(exec_end_ns)),
             "TRITONBACKEND_ModelInstanceReportStatistics");
  if (is_success) {
    LogFailure(TRITONBACKEND_ModelInstanceReportBatchStatistics(
                   instance_, /*batch_size=*/1, at(exec_start_ns_), at(compute_start_ns_),
                   at(compute_end_ns_), at(exec_end_ns)),
               "TRITONBACKEND_ModelInstanceReportBatchStatistics");
  }
}

}  // namespace inflight::triton_backend
