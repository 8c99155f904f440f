// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/inference_service.h"

#include <string>
#include <vector>

#include "protocol/kserve/grpc/grpc_status.h"
#include "protocol/kserve/grpc/infer_call.h"
#include "protocol/kserve/grpc/log_settings.h"
#include "protocol/kserve/grpc/model_messages.h"

namespace inflight::kserve_grpc {
namespace {

using Context = InferenceService::Context;
using Reactor = InferenceService::Reactor;

Reactor* Answer(Context* context, const Status& status = Status::Ok()) {
  Reactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

bool HasMetadata(const Context& context, ::grpc::string_ref key, ::grpc::string_ref value) {
  const auto range = context.client_metadata().equal_range(key);
  for (auto it = range.first; it != range.second; ++it) {
    if (it->second == value) return true;
  }
  return false;
}

// All models are loaded at start and stay: what a Triton server without a control mode answers.
Status RefuseControl(const std::string& repository_name) {
  if (!repository_name.empty()) {
    return Unimplemented("'repository_name' specification is not supported");
  }
  return Unavailable("explicit model load / unload is not allowed if polling is enabled");
}

Status RefuseSharedMemory() { return Unimplemented("Client shared memory is disabled."); }

// There is never a region: asked for all, the status is empty.
Status NoSuchRegion(const std::string& kind, const std::string& name) {
  if (name.empty()) return Status::Ok();
  return NotFound("Unable to find " + kind + " shared memory region: '" + name + "'");
}

}  // namespace

// --- health ---

Reactor* InferenceService::ServerLive(Context* context, const ::inference::ServerLiveRequest*,
                                      ::inference::ServerLiveResponse* response) {
  response->set_live(server_.live());
  return Answer(context);
}

Reactor* InferenceService::ServerReady(Context* context, const ::inference::ServerReadyRequest*,
                                       ::inference::ServerReadyResponse* response) {
  response->set_ready(server_.ready());
  return Answer(context);
}

Reactor* InferenceService::ModelReady(Context* context,
                                      const ::inference::ModelReadyRequest* request,
                                      ::inference::ModelReadyResponse* response) {
  const auto model = server_.FindModel(request->name(), request->version());
  if (model.ok()) response->set_ready((*model)->ready());
  return Answer(context, model.status());
}

Reactor* HealthService::Check(Context* context, const ::grpc::health::v1::HealthCheckRequest*,
                              ::grpc::health::v1::HealthCheckResponse* response) {
  using Response = ::grpc::health::v1::HealthCheckResponse;
  response->set_status(server_.ready() ? Response::SERVING : Response::NOT_SERVING);
  return Answer(context);
}

// --- metadata, configuration, statistics, index ---

Reactor* InferenceService::ServerMetadata(Context* context,
                                          const ::inference::ServerMetadataRequest*,
                                          ::inference::ServerMetadataResponse* response) {
  WriteServerMetadata(server_.metadata(), *response);
  return Answer(context);
}

Reactor* InferenceService::ModelMetadata(Context* context,
                                         const ::inference::ModelMetadataRequest* request,
                                         ::inference::ModelMetadataResponse* response) {
  const auto model = server_.FindModel(request->name(), request->version());
  if (!model.ok()) return Answer(context, model.status());
  WriteModelMetadata(**model,
                     request->version().empty() ? ReadyVersions(server_, request->name())
                                                : std::vector<std::string>{(*model)->version()},
                     *response);
  return Answer(context);
}

Reactor* InferenceService::ModelConfig(Context* context,
                                       const ::inference::ModelConfigRequest* request,
                                       ::inference::ModelConfigResponse* response) {
  const auto model = server_.FindModel(request->name(), request->version());
  if (model.ok()) *response->mutable_config() = (*model)->config();
  return Answer(context, model.status());
}

Reactor* InferenceService::ModelStatistics(Context* context,
                                           const ::inference::ModelStatisticsRequest* request,
                                           ::inference::ModelStatisticsResponse* response) {
  return Answer(context, WriteStatistics(server_, request->name(), request->version(), *response));
}

Reactor* InferenceService::RepositoryIndex(Context* context,
                                           const ::inference::RepositoryIndexRequest* request,
                                           ::inference::RepositoryIndexResponse* response) {
  WriteIndex(server_.Index(request->ready()), *response);
  return Answer(context);
}

// --- inference ---

Reactor* InferenceService::ModelInfer(Context*, const ::inference::ModelInferRequest* request,
                                      ::inference::ModelInferResponse* response) {
  // gRPC made the message for this call alone and does not look at it again.
  auto& contents = const_cast<::inference::ModelInferRequest&>(*request);
  return StartInferCall(server_, calls_, contents, *response);
}

InferenceService::Reader<::inference::ModelStreamInferResponse>* InferenceService::ModelStreamInfer(
    Context* context) {
  return StreamCall::Start(server_, calls_, limits_,
                           /*is_strict=*/HasMetadata(*context, "triton_grpc_error", "true"));
}

// --- not offered ---

Reactor* InferenceService::RepositoryModelLoad(
    Context* context, const ::inference::RepositoryModelLoadRequest* request,
    ::inference::RepositoryModelLoadResponse*) {
  return Answer(context, RefuseControl(request->repository_name()));
}

Reactor* InferenceService::RepositoryModelUnload(
    Context* context, const ::inference::RepositoryModelUnloadRequest* request,
    ::inference::RepositoryModelUnloadResponse*) {
  return Answer(context, RefuseControl(request->repository_name()));
}

Reactor* InferenceService::SystemSharedMemoryStatus(
    Context* context, const ::inference::SystemSharedMemoryStatusRequest* request,
    ::inference::SystemSharedMemoryStatusResponse*) {
  return Answer(context, NoSuchRegion("system", request->name()));
}

Reactor* InferenceService::SystemSharedMemoryRegister(
    Context* context, const ::inference::SystemSharedMemoryRegisterRequest*,
    ::inference::SystemSharedMemoryRegisterResponse*) {
  return Answer(context, RefuseSharedMemory());
}

Reactor* InferenceService::SystemSharedMemoryUnregister(
    Context* context, const ::inference::SystemSharedMemoryUnregisterRequest*,
    ::inference::SystemSharedMemoryUnregisterResponse*) {
  return Answer(context, RefuseSharedMemory());
}

Reactor* InferenceService::CudaSharedMemoryStatus(
    Context* context, const ::inference::CudaSharedMemoryStatusRequest* request,
    ::inference::CudaSharedMemoryStatusResponse*) {
  return Answer(context, NoSuchRegion("cuda", request->name()));
}

Reactor* InferenceService::CudaSharedMemoryRegister(
    Context* context, const ::inference::CudaSharedMemoryRegisterRequest*,
    ::inference::CudaSharedMemoryRegisterResponse*) {
  return Answer(context, RefuseSharedMemory());
}

Reactor* InferenceService::CudaSharedMemoryUnregister(
    Context* context, const ::inference::CudaSharedMemoryUnregisterRequest*,
    ::inference::CudaSharedMemoryUnregisterResponse*) {
  return Answer(context, RefuseSharedMemory());
}

Reactor* InferenceService::TraceSetting(Context* context, const ::inference::TraceSettingRequest*,
                                        ::inference::TraceSettingResponse*) {
  return Answer(context, Unavailable("the server does not support tracing"));
}

Reactor* InferenceService::LogSettings(Context* context,
                                       const ::inference::LogSettingsRequest* request,
                                       ::inference::LogSettingsResponse* response) {
  const Status status = ApplyLogSettings(*request);
  if (status.ok()) WriteLogSettings(*response);
  return Answer(context, status);
}

}  // namespace inflight::kserve_grpc
