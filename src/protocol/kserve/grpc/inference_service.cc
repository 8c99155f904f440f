// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/inference_service.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "protocol/kserve/grpc/grpc_status.h"
#include "protocol/kserve/grpc/infer_call.h"
#include "protocol/kserve/grpc/log_settings.h"
#include "protocol/kserve/grpc/model_control.h"
#include "protocol/kserve/grpc/model_messages.h"
#include "protocol/kserve/grpc/trace_setting.h"

namespace inflight::kserve_grpc {
namespace {

using Bytes = InferenceService::Bytes;
using Context = InferenceService::Context;
using Reactor = InferenceService::Reactor;
using ::grpc::health::v1::HealthCheckRequest;
using ::grpc::health::v1::HealthCheckResponse;
using kserve::Api;
namespace pb = ::inference;

// Of one version of a model, or of all that answer where the request named none.
std::vector<std::string> VersionsFor(const serving::Server& server, const serving::Model& model,
                                     const std::string& asked) {
  if (asked.empty()) return ReadyVersions(server, model.name());
  return {model.version()};
}

void Compress(Context* context, grpc_compression_level level) {
  if (level != GRPC_COMPRESS_LEVEL_NONE) context->set_compression_level(level);
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

Reactor* InferenceService::ServerLive(Context* context, const Bytes* in, Bytes* out) {
  return unary_.Answer<pb::ServerLiveRequest, pb::ServerLiveResponse>(
      {context, in, out}, Api::kHealth, [this](const auto&, auto& response) {
        response.set_live(server_.live());
        return Status::Ok();
      });
}

Reactor* InferenceService::ServerReady(Context* context, const Bytes* in, Bytes* out) {
  return unary_.Answer<pb::ServerReadyRequest, pb::ServerReadyResponse>(
      {context, in, out}, Api::kHealth, [this](const auto&, auto& response) {
        if (server_.exiting()) return Unavailable("Server exiting");
        response.set_ready(server_.ready());
        return Status::Ok();
      });
}

Reactor* InferenceService::ModelReady(Context* context, const Bytes* in, Bytes* out) {
  return unary_.Answer<pb::ModelReadyRequest, pb::ModelReadyResponse>(
      {context, in, out}, Api::kHealth, [this](const auto& request, auto& response) {
        const auto model = server_.FindModel(request.name(), request.version());
        if (model.ok()) response.set_ready((*model)->ready());
        return model.status();
      });
}

Reactor* HealthService::Check(Context* context, const Bytes* in, Bytes* out) {
  return unary_.Answer<HealthCheckRequest, HealthCheckResponse>(
      {context, in, out}, Api::kHealth, [this](const auto&, auto& response) {
        response.set_status(server_.ready() ? HealthCheckResponse::SERVING
                                            : HealthCheckResponse::NOT_SERVING);
        return Status::Ok();
      });
}

// --- metadata, configuration, statistics, index ---

Reactor* InferenceService::ServerMetadata(Context* context, const Bytes* in, Bytes* out) {
  return unary_.Answer<pb::ServerMetadataRequest, pb::ServerMetadataResponse>(
      {context, in, out}, Api::kMetadata, [this](const auto&, auto& response) {
        WriteServerMetadata(server_.metadata(), response);
        return Status::Ok();
      });
}

Reactor* InferenceService::ModelMetadata(Context* context, const Bytes* in, Bytes* out) {
  return unary_.Answer<pb::ModelMetadataRequest, pb::ModelMetadataResponse>(
      {context, in, out}, Api::kMetadata, [this](const auto& request, auto& response) {
        const auto model = server_.FindModel(request.name(), request.version());
        if (model.ok()) {
          WriteModelMetadata(**model, VersionsFor(server_, **model, request.version()), response);
        }
        return model.status();
      });
}

Reactor* InferenceService::ModelConfig(Context* context, const Bytes* in, Bytes* out) {
  return unary_.Answer<pb::ModelConfigRequest, pb::ModelConfigResponse>(
      {context, in, out}, Api::kModelConfig, [this](const auto& request, auto& response) {
        const auto model = server_.FindModel(request.name(), request.version());
        if (model.ok()) *response.mutable_config() = (*model)->complete_config();
        return model.status();
      });
}

Reactor* InferenceService::ModelStatistics(Context* context, const Bytes* in, Bytes* out) {
  return unary_.Answer<pb::ModelStatisticsRequest, pb::ModelStatisticsResponse>(
      {context, in, out}, Api::kStatistics, [this](const auto& request, auto& response) {
        return WriteStatistics(server_, request.name(), request.version(), response);
      });
}

Reactor* InferenceService::RepositoryIndex(Context* context, const Bytes* in, Bytes* out) {
  return unary_.Answer<pb::RepositoryIndexRequest, pb::RepositoryIndexResponse>(
      {context, in, out}, Api::kModelRepository, [this](const auto& request, auto& response) {
        WriteIndex(server_.Index(request.ready()), response);
        return Status::Ok();
      });
}

// --- inference ---

Reactor* InferenceService::ModelInfer(Context* context, const Bytes* in, Bytes* out) {
  const UnaryCall call = {context, in, out};
  if (Reactor* refused = unary_.Refuse(call, Api::kInference)) return refused;
  Compress(context, compression_);
  auto forwarded = ForwardedParameters(access_, *context);
  if (!forwarded.ok()) return call.Finish(ToGrpcStatus(forwarded.status()));
  return StartInferCall(
      server_, calls_,
      {.parameters = *std::move(forwarded), .trace = TraceContextOf(server_, *context)},
      limits_.max_message_bytes, call.TakeRequest(), *out);
}

::grpc::ServerBidiReactor<Bytes, Bytes>* InferenceService::ModelStreamInfer(Context* context) {
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

// Answers once `act` is done, on a thread of its own.
template <typename Request, typename Response, typename Act>
Reactor* InferenceService::Control(const UnaryCall& call, Act act) {
  auto request = std::make_shared<Request>();
  if (Reactor* refused = unary_.Open(call, Api::kModelRepository, *request)) return refused;
  Reactor* reactor = call.context->DefaultReactor();
  model_control_.Post([call, act, request, reactor] {
    const Status status = act(*request);
    reactor->Finish(status.ok() ? WriteMessage(Response(), *call.response) : ToGrpcStatus(status));
  });
  return reactor;
}

Reactor* InferenceService::RepositoryModelLoad(Context* context, const Bytes* in, Bytes* out) {
  return Control<pb::RepositoryModelLoadRequest, pb::RepositoryModelLoadResponse>(
      {context, in, out}, [this](const auto& request) -> Status {
        ASSIGN_OR_RETURN(const auto override, ParseLoad(request));
        return serving::AsContractLoadStatus(server_.LoadModel(request.model_name(), override));
      });
}

Reactor* InferenceService::RepositoryModelUnload(Context* context, const Bytes* in, Bytes* out) {
  return Control<pb::RepositoryModelUnloadRequest, pb::RepositoryModelUnloadResponse>(
      {context, in, out}, [this](const auto& request) -> Status {
        ASSIGN_OR_RETURN(const bool with_steps, ParseUnload(request));
        return server_.UnloadModel(request.model_name(), with_steps);
      });
}

// --- shared memory ---

Reactor* InferenceService::SystemSharedMemoryStatus(Context* context, const Bytes* in, Bytes* out) {
  return unary_.Answer<pb::SystemSharedMemoryStatusRequest, pb::SystemSharedMemoryStatusResponse>(
      {context, in, out}, Api::kSharedMemory,
      [this](const auto& request, auto& response) -> Status {
        ASSIGN_OR_RETURN(const auto regions, server_.shared_memory().Find(
                                                 serving::RegionKind::kSystem, request.name()));
        for (const serving::SharedRegion& region : regions) {
          auto& written = (*response.mutable_regions())[region.name];
          written.set_name(region.name);
          written.set_key(region.key);
          written.set_offset(region.offset);
          written.set_byte_size(region.byte_size);
        }
        return Status::Ok();
      });
}

Reactor* InferenceService::SystemSharedMemoryRegister(Context* context, const Bytes* in,
                                                      Bytes* out) {
  return unary_
      .Answer<pb::SystemSharedMemoryRegisterRequest, pb::SystemSharedMemoryRegisterResponse>(
          {context, in, out}, Api::kSharedMemory, [this](const auto& request, auto&) {
            return server_.shared_memory().Register({.name = request.name(),
                                                     .key = request.key(),
                                                     .offset = request.offset(),
                                                     .byte_size = request.byte_size()});
          });
}

Reactor* InferenceService::SystemSharedMemoryUnregister(Context* context, const Bytes* in,
                                                        Bytes* out) {
  return unary_
      .Answer<pb::SystemSharedMemoryUnregisterRequest, pb::SystemSharedMemoryUnregisterResponse>(
          {context, in, out}, Api::kSharedMemory, [this](const auto& request, auto&) {
            return server_.shared_memory().Unregister(serving::RegionKind::kSystem, request.name());
          });
}

Reactor* InferenceService::CudaSharedMemoryStatus(Context* context, const Bytes* in, Bytes* out) {
  return unary_.Answer<pb::CudaSharedMemoryStatusRequest, pb::CudaSharedMemoryStatusResponse>(
      {context, in, out}, Api::kSharedMemory,
      [this](const auto& request, auto& response) -> Status {
        ASSIGN_OR_RETURN(const auto regions,
                         server_.shared_memory().Find(serving::RegionKind::kCuda, request.name()));
        for (const serving::SharedRegion& region : regions) {
          auto& written = (*response.mutable_regions())[region.name];
          written.set_name(region.name);
          written.set_device_id(static_cast<uint64_t>(region.device_id.value_or(0)));
          written.set_byte_size(region.byte_size);
        }
        return Status::Ok();
      });
}

Reactor* InferenceService::CudaSharedMemoryRegister(Context* context, const Bytes* in, Bytes* out) {
  return unary_.Answer<pb::CudaSharedMemoryRegisterRequest, pb::CudaSharedMemoryRegisterResponse>(
      {context, in, out}, Api::kSharedMemory, [this](const auto& request, auto&) {
        return server_.shared_memory().RegisterCuda({.name = request.name(),
                                                     .key = {},
                                                     .byte_size = request.byte_size(),
                                                     .device_id = request.device_id()},
                                                    request.raw_handle());
      });
}

Reactor* InferenceService::CudaSharedMemoryUnregister(Context* context, const Bytes* in,
                                                      Bytes* out) {
  return unary_
      .Answer<pb::CudaSharedMemoryUnregisterRequest, pb::CudaSharedMemoryUnregisterResponse>(
          {context, in, out}, Api::kSharedMemory, [this](const auto& request, auto&) {
            return server_.shared_memory().Unregister(serving::RegionKind::kCuda, request.name());
          });
}

// --- settings ---

Reactor* InferenceService::TraceSetting(Context* context, const Bytes* in, Bytes* out) {
  return unary_.Answer<pb::TraceSettingRequest, pb::TraceSettingResponse>(
      {context, in, out}, Api::kTrace, [this](const auto& request, auto& response) {
        return AnswerTraceSetting(request, server_, response);
      });
}

Reactor* InferenceService::LogSettings(Context* context, const Bytes* in, Bytes* out) {
  return unary_.Answer<pb::LogSettingsRequest, pb::LogSettingsResponse>(
      {context, in, out}, Api::kLogging, [](const auto& request, auto& response) {
        const Status status = ApplyLogSettings(request);
        if (status.ok()) WriteLogSettings(response);
        return status;
      });
}

}  // namespace inflight::kserve_grpc
