// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/inference_service.h"

#include <string>
#include <vector>

#include "protocol/kserve/grpc/grpc_status.h"
#include "protocol/kserve/grpc/infer_call.h"
#include "protocol/kserve/grpc/log_settings.h"
#include "protocol/kserve/grpc/model_control.h"
#include "protocol/kserve/grpc/model_messages.h"
#include "protocol/kserve/grpc/trace_setting.h"

namespace inflight::kserve_grpc {
namespace {

using Context = InferenceService::Context;
using Reactor = InferenceService::Reactor;
using kserve::Api;

Reactor* Answer(Context* context, const Status& status = Status::Ok()) {
  Reactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

void Compress(Context* context, grpc_compression_level level) {
  if (level != GRPC_COMPRESS_LEVEL_NONE) context->set_compression_level(level);
}

// The answer to a client who may not use this API; null for one who may.
Reactor* Refuse(Context* context, const Access& access, Api api) {
  const Status status = CheckAccess(access, api, *context);
  return status.ok() ? nullptr : Answer(context, status);
}

bool HasMetadata(const Context& context, ::grpc::string_ref key, ::grpc::string_ref value) {
  const auto range = context.client_metadata().equal_range(key);
  for (auto it = range.first; it != range.second; ++it) {
    if (it->second == value) return true;
  }
  return false;
}

// Of a call that may be traced: looking at metadata costs a map of them.
serving::TraceContext TraceContextOf(serving::Server& server, const Context& context) {
  if (!server.tracer().is_on()) return {};
  const auto value_of = [&](const char* key) {
    const auto found = context.client_metadata().find(key);
    return found == context.client_metadata().end()
               ? std::string()
               : std::string(found->second.data(), found->second.size());
  };
  return {.traceparent = value_of("traceparent"), .tracestate = value_of("tracestate")};
}

}  // namespace

// --- health ---

Reactor* InferenceService::ServerLive(Context* context, const ::inference::ServerLiveRequest*,
                                      ::inference::ServerLiveResponse* response) {
  if (Reactor* refused = Refuse(context, access_, Api::kHealth)) return refused;
  response->set_live(server_.live());
  return Answer(context);
}

Reactor* InferenceService::ServerReady(Context* context, const ::inference::ServerReadyRequest*,
                                       ::inference::ServerReadyResponse* response) {
  if (Reactor* refused = Refuse(context, access_, Api::kHealth)) return refused;
  if (server_.exiting()) return Answer(context, Unavailable("Server exiting"));
  response->set_ready(server_.ready());
  return Answer(context);
}

Reactor* InferenceService::ModelReady(Context* context,
                                      const ::inference::ModelReadyRequest* request,
                                      ::inference::ModelReadyResponse* response) {
  if (Reactor* refused = Refuse(context, access_, Api::kHealth)) return refused;
  const auto model = server_.FindModel(request->name(), request->version());
  if (model.ok()) response->set_ready((*model)->ready());
  return Answer(context, model.status());
}

Reactor* HealthService::Check(Context* context, const ::grpc::health::v1::HealthCheckRequest*,
                              ::grpc::health::v1::HealthCheckResponse* response) {
  if (Reactor* refused = Refuse(context, access_, Api::kHealth)) return refused;
  using Response = ::grpc::health::v1::HealthCheckResponse;
  response->set_status(server_.ready() ? Response::SERVING : Response::NOT_SERVING);
  return Answer(context);
}

// --- metadata, configuration, statistics, index ---

Reactor* InferenceService::ServerMetadata(Context* context,
                                          const ::inference::ServerMetadataRequest*,
                                          ::inference::ServerMetadataResponse* response) {
  if (Reactor* refused = Refuse(context, access_, Api::kMetadata)) return refused;
  WriteServerMetadata(server_.metadata(), *response);
  return Answer(context);
}

Reactor* InferenceService::ModelMetadata(Context* context,
                                         const ::inference::ModelMetadataRequest* request,
                                         ::inference::ModelMetadataResponse* response) {
  if (Reactor* refused = Refuse(context, access_, Api::kMetadata)) return refused;
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
  if (Reactor* refused = Refuse(context, access_, Api::kModelConfig)) return refused;
  const auto model = server_.FindModel(request->name(), request->version());
  if (model.ok()) *response->mutable_config() = (*model)->config();
  return Answer(context, model.status());
}

Reactor* InferenceService::ModelStatistics(Context* context,
                                           const ::inference::ModelStatisticsRequest* request,
                                           ::inference::ModelStatisticsResponse* response) {
  if (Reactor* refused = Refuse(context, access_, Api::kStatistics)) return refused;
  return Answer(context, WriteStatistics(server_, request->name(), request->version(), *response));
}

Reactor* InferenceService::RepositoryIndex(Context* context,
                                           const ::inference::RepositoryIndexRequest* request,
                                           ::inference::RepositoryIndexResponse* response) {
  if (Reactor* refused = Refuse(context, access_, Api::kModelRepository)) return refused;
  WriteIndex(server_.Index(request->ready()), *response);
  return Answer(context);
}

// --- inference ---

Reactor* InferenceService::ModelInfer(Context* context, const ::grpc::ByteBuffer* request,
                                      ::grpc::ByteBuffer* response) {
  if (Reactor* refused = Refuse(context, access_, Api::kInference)) return refused;
  Compress(context, compression_);
  auto forwarded = ForwardedParameters(access_, *context);
  if (!forwarded.ok()) return Answer(context, forwarded.status());
  return StartInferCall(
      server_, calls_,
      {.parameters = *std::move(forwarded), .trace = TraceContextOf(server_, *context)}, *request,
      *response);
}

::grpc::ServerBidiReactor<::grpc::ByteBuffer, ::grpc::ByteBuffer>*
InferenceService::ModelStreamInfer(Context* context) {
  Compress(context, compression_);
  Status refusal = CheckAccess(access_, Api::kInference, *context);
  auto forwarded = ForwardedParameters(access_, *context);
  if (refusal.ok()) refusal = forwarded.status();
  return StreamCall::Start(
      server_, calls_, writer_, limits_,
      {.is_strict = HasMetadata(*context, "triton_grpc_error", "true"),
       .refusal = std::move(refusal),
       .parameters = forwarded.ok() ? *std::move(forwarded) : serving::Parameters{},
       .trace = TraceContextOf(server_, *context)});
}

// --- model control ---

Reactor* InferenceService::RepositoryModelLoad(
    Context* context, const ::inference::RepositoryModelLoadRequest* request,
    ::inference::RepositoryModelLoadResponse*) {
  if (Reactor* refused = Refuse(context, access_, Api::kModelRepository)) return refused;
  Reactor* reactor = context->DefaultReactor();
  model_control_.Post([this, request, reactor] {
    const auto override = ParseLoad(*request);
    if (!override.ok()) return reactor->Finish(ToGrpcStatus(override.status()));
    const Status status = server_.LoadModel(request->model_name(), *override);
    reactor->Finish(ToGrpcStatus(serving::AsContractLoadStatus(status)));
  });
  return reactor;
}

Reactor* InferenceService::RepositoryModelUnload(
    Context* context, const ::inference::RepositoryModelUnloadRequest* request,
    ::inference::RepositoryModelUnloadResponse*) {
  if (Reactor* refused = Refuse(context, access_, Api::kModelRepository)) return refused;
  Reactor* reactor = context->DefaultReactor();
  model_control_.Post([this, request, reactor] {
    const auto with_steps = ParseUnload(*request);
    const Status status = with_steps.ok() ? server_.UnloadModel(request->model_name(), *with_steps)
                                          : with_steps.status();
    reactor->Finish(ToGrpcStatus(status));
  });
  return reactor;
}

// --- shared memory ---

Reactor* InferenceService::SystemSharedMemoryStatus(
    Context* context, const ::inference::SystemSharedMemoryStatusRequest* request,
    ::inference::SystemSharedMemoryStatusResponse* response) {
  if (Reactor* refused = Refuse(context, access_, Api::kSharedMemory)) return refused;
  const auto regions = server_.shared_memory().Find(serving::RegionKind::kSystem, request->name());
  if (!regions.ok()) return Answer(context, regions.status());
  for (const serving::SharedRegion& region : *regions) {
    auto& out = (*response->mutable_regions())[region.name];
    out.set_name(region.name);
    out.set_key(region.key);
    out.set_offset(region.offset);
    out.set_byte_size(region.byte_size);
  }
  return Answer(context);
}

Reactor* InferenceService::SystemSharedMemoryRegister(
    Context* context, const ::inference::SystemSharedMemoryRegisterRequest* request,
    ::inference::SystemSharedMemoryRegisterResponse*) {
  if (Reactor* refused = Refuse(context, access_, Api::kSharedMemory)) return refused;
  return Answer(context, server_.shared_memory().Register({.name = request->name(),
                                                           .key = request->key(),
                                                           .offset = request->offset(),
                                                           .byte_size = request->byte_size()}));
}

Reactor* InferenceService::SystemSharedMemoryUnregister(
    Context* context, const ::inference::SystemSharedMemoryUnregisterRequest* request,
    ::inference::SystemSharedMemoryUnregisterResponse*) {
  if (Reactor* refused = Refuse(context, access_, Api::kSharedMemory)) return refused;
  return Answer(context,
                server_.shared_memory().Unregister(serving::RegionKind::kSystem, request->name()));
}

Reactor* InferenceService::CudaSharedMemoryStatus(
    Context* context, const ::inference::CudaSharedMemoryStatusRequest* request,
    ::inference::CudaSharedMemoryStatusResponse* response) {
  if (Reactor* refused = Refuse(context, access_, Api::kSharedMemory)) return refused;
  const auto regions = server_.shared_memory().Find(serving::RegionKind::kCuda, request->name());
  if (!regions.ok()) return Answer(context, regions.status());
  for (const serving::SharedRegion& region : *regions) {
    auto& out = (*response->mutable_regions())[region.name];
    out.set_name(region.name);
    out.set_device_id(static_cast<uint64_t>(region.device_id.value_or(0)));
    out.set_byte_size(region.byte_size);
  }
  return Answer(context);
}

Reactor* InferenceService::CudaSharedMemoryRegister(
    Context* context, const ::inference::CudaSharedMemoryRegisterRequest* request,
    ::inference::CudaSharedMemoryRegisterResponse*) {
  if (Reactor* refused = Refuse(context, access_, Api::kSharedMemory)) return refused;
  return Answer(context, server_.shared_memory().RegisterCuda({.name = request->name(),
                                                               .key = {},
                                                               .byte_size = request->byte_size(),
                                                               .device_id = request->device_id()},
                                                              request->raw_handle()));
}

Reactor* InferenceService::CudaSharedMemoryUnregister(
    Context* context, const ::inference::CudaSharedMemoryUnregisterRequest* request,
    ::inference::CudaSharedMemoryUnregisterResponse*) {
  if (Reactor* refused = Refuse(context, access_, Api::kSharedMemory)) return refused;
  return Answer(context,
                server_.shared_memory().Unregister(serving::RegionKind::kCuda, request->name()));
}

// --- settings ---

Reactor* InferenceService::TraceSetting(Context* context,
                                        const ::inference::TraceSettingRequest* request,
                                        ::inference::TraceSettingResponse* response) {
  if (Reactor* refused = Refuse(context, access_, Api::kTrace)) return refused;
  return Answer(context, AnswerTraceSetting(*request, server_, *response));
}

Reactor* InferenceService::LogSettings(Context* context,
                                       const ::inference::LogSettingsRequest* request,
                                       ::inference::LogSettingsResponse* response) {
  if (Reactor* refused = Refuse(context, access_, Api::kLogging)) return refused;
  const Status status = ApplyLogSettings(*request);
  if (status.ok()) WriteLogSettings(*response);
  return Answer(context, status);
}

}  // namespace inflight::kserve_grpc
