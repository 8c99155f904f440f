// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/inference_service.h"

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status_macros.h"
#include "grpc_service.pb.h"
#include "health.pb.h"
#include "protocol/kserve/grpc/grpc_status.h"
#include "protocol/kserve/grpc/infer_call.h"
#include "protocol/kserve/grpc/log_settings.h"
#include "protocol/kserve/grpc/model_control.h"
#include "protocol/kserve/grpc/model_messages.h"
#include "protocol/kserve/grpc/trace_setting.h"

namespace inflight::kserve_grpc {
namespace {

using Reactor = RawService::Reactor;
using StreamReactor = RawService::StreamReactor;
using Context = RawService::Context;
using ::grpc::health::v1::HealthCheckRequest;
using ::grpc::health::v1::HealthCheckResponse;
using kserve::Api;
using serving::RegionKind;
using serving::Server;
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

bool HasMetadata(const Context& context, const ::grpc::string_ref& key,
                 const ::grpc::string_ref& value) {
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

// --- health ---

Status ServerLive(Server& server, const pb::ServerLiveRequest&, pb::ServerLiveResponse& response) {
  response.set_live(server.live());
  return Status::Ok();
}

Status ServerReady(Server& server, const pb::ServerReadyRequest&,
                   pb::ServerReadyResponse& response) {
  if (server.exiting()) return Unavailable("Server exiting");
  response.set_ready(server.ready());
  return Status::Ok();
}

Status ModelReady(Server& server, const pb::ModelReadyRequest& request,
                  pb::ModelReadyResponse& response) {
  const auto model = server.FindModel(request.name(), request.version());
  if (model.ok()) response.set_ready((*model)->ready());
  return model.status();
}

// For the whole server, whatever service is named.
Status Check(Server& server, const HealthCheckRequest&, HealthCheckResponse& response) {
  response.set_status(server.ready() ? HealthCheckResponse::SERVING
                                     : HealthCheckResponse::NOT_SERVING);
  return Status::Ok();
}

// --- metadata, configuration, statistics, index ---

Status ServerMetadata(Server& server, const pb::ServerMetadataRequest&,
                      pb::ServerMetadataResponse& response) {
  WriteServerMetadata(server.metadata(), response);
  return Status::Ok();
}

Status ModelMetadata(Server& server, const pb::ModelMetadataRequest& request,
                     pb::ModelMetadataResponse& response) {
  const auto model = server.FindModel(request.name(), request.version());
  if (model.ok()) {
    WriteModelMetadata(**model, VersionsFor(server, **model, request.version()), response);
  }
  return model.status();
}

Status ModelConfig(Server& server, const pb::ModelConfigRequest& request,
                   pb::ModelConfigResponse& response) {
  const auto model = server.FindModel(request.name(), request.version());
  if (model.ok()) *response.mutable_config() = (*model)->complete_config();
  return model.status();
}

Status ModelStatistics(Server& server, const pb::ModelStatisticsRequest& request,
                       pb::ModelStatisticsResponse& response) {
  return WriteStatistics(server, request.name(), request.version(), response);
}

Status RepositoryIndex(Server& server, const pb::RepositoryIndexRequest& request,
                       pb::RepositoryIndexResponse& response) {
  WriteIndex(server.Index(request.ready()), response);
  return Status::Ok();
}

// --- inference ---

// The address without its port: "ipv4:127.0.0.1".
std::string ClientOf(const Context& context) {
  const std::string peer = context.peer();
  return peer.substr(0, peer.rfind(':'));
}

Reactor* ModelInfer(ServiceContext& service, const UnaryCall& call) {
  Compress(call.context, service.compression);
  auto forwarded = ForwardedParameters(service.access, *call.context);
  if (!forwarded.ok()) return call.Finish(ToGrpcStatus(forwarded.status()));
  return StartInferCall(service.server, service.calls,
                        {.parameters = *std::move(forwarded),
                         .trace = TraceContextOf(service.server, *call.context),
                         .share = call.share},
                        service.limits.max_message_bytes, call.TakeRequest(), *call.response);
}

StreamReactor* ModelStreamInfer(ServiceContext& service, Context* context, Status refusal) {
  Compress(context, service.compression);
  auto forwarded = ForwardedParameters(service.access, *context);
  if (refusal.ok()) refusal = forwarded.status();
  return StreamCall::Start(
      service.server, service.calls, service.writer, service.limits,
      {.is_strict = HasMetadata(*context, "triton_grpc_error", "true"),
       .refusal = std::move(refusal),
       .parameters = forwarded.ok() ? *std::move(forwarded) : serving::Parameters{},
       .trace = TraceContextOf(service.server, *context),
       .client = ClientOf(*context),
       .memory = service.memory});
}

// --- model control ---

Status RepositoryModelLoad(Server& server, const pb::RepositoryModelLoadRequest& request,
                           pb::RepositoryModelLoadResponse&) {
  ASSIGN_OR_RETURN(const auto override, ParseLoad(request));
  return serving::AsContractLoadStatus(server.LoadModel(request.model_name(), override));
}

Status RepositoryModelUnload(Server& server, const pb::RepositoryModelUnloadRequest& request,
                             pb::RepositoryModelUnloadResponse&) {
  ASSIGN_OR_RETURN(const bool with_steps, ParseUnload(request));
  return server.UnloadModel(request.model_name(), with_steps);
}

// --- shared memory ---

Status SystemSharedMemoryStatus(Server& server, const pb::SystemSharedMemoryStatusRequest& request,
                                pb::SystemSharedMemoryStatusResponse& response) {
  ASSIGN_OR_RETURN(const auto regions,
                   server.shared_memory().Find(RegionKind::kSystem, request.name()));
  for (const serving::SharedRegion& region : regions) {
    auto& written = (*response.mutable_regions())[region.name];
    written.set_name(region.name);
    written.set_key(region.key);
    written.set_offset(region.offset);
    written.set_byte_size(region.byte_size);
  }
  return Status::Ok();
}

Status SystemSharedMemoryRegister(Server& server,
                                  const pb::SystemSharedMemoryRegisterRequest& request,
                                  pb::SystemSharedMemoryRegisterResponse&,
                                  const serving::Registrant& from) {
  return server.shared_memory().Register({.name = request.name(),
                                          .key = request.key(),
                                          .offset = request.offset(),
                                          .byte_size = request.byte_size()},
                                         from);
}

Status SystemSharedMemoryUnregister(Server& server,
                                    const pb::SystemSharedMemoryUnregisterRequest& request,
                                    pb::SystemSharedMemoryUnregisterResponse&,
                                    const serving::Registrant& from) {
  return server.shared_memory().Unregister(RegionKind::kSystem, request.name(), from);
}

Status CudaSharedMemoryStatus(Server& server, const pb::CudaSharedMemoryStatusRequest& request,
                              pb::CudaSharedMemoryStatusResponse& response) {
  ASSIGN_OR_RETURN(const auto regions,
                   server.shared_memory().Find(RegionKind::kCuda, request.name()));
  for (const serving::SharedRegion& region : regions) {
    auto& written = (*response.mutable_regions())[region.name];
    written.set_name(region.name);
    written.set_device_id(static_cast<uint64_t>(region.device_id.value_or(0)));
    written.set_byte_size(region.byte_size);
  }
  return Status::Ok();
}

Status CudaSharedMemoryRegister(Server& server, const pb::CudaSharedMemoryRegisterRequest& request,
                                pb::CudaSharedMemoryRegisterResponse&,
                                const serving::Registrant& from) {
  return server.shared_memory().RegisterCuda({.name = request.name(),
                                              .key = {},
                                              .byte_size = request.byte_size(),
                                              .device_id = request.device_id()},
                                             request.raw_handle(), from);
}

Status CudaSharedMemoryUnregister(Server& server,
                                  const pb::CudaSharedMemoryUnregisterRequest& request,
                                  pb::CudaSharedMemoryUnregisterResponse&,
                                  const serving::Registrant& from) {
  return server.shared_memory().Unregister(RegionKind::kCuda, request.name(), from);
}

// --- settings ---

Status TraceSetting(Server& server, const pb::TraceSettingRequest& request,
                    pb::TraceSettingResponse& response) {
  return AnswerTraceSetting(request, server, response);
}

Status LogSettings(Server&, const pb::LogSettingsRequest& request,
                   pb::LogSettingsResponse& response) {
  RETURN_IF_ERROR(ApplyLogSettings(request));
  WriteLogSettings(response);
  return Status::Ok();
}

// --- the table ---

using UnaryMethod = std::function<Reactor*(ServiceContext&, const UnaryCall&)>;
// The status says whether the API is open to the client.
using StreamMethod = StreamReactor*(ServiceContext&, Context*, Status);

template <typename Request, typename Response>
using Handle = Status(Server&, const Request&, Response&);

// Answers at once.
template <typename Request, typename Response>
UnaryMethod Now(Handle<Request, Response>* handle) {
  return [handle](ServiceContext& service, const UnaryCall& call) {
    return Answer<Request, Response>(call, service.limits.max_message_bytes,
                                     [&](const Request& request, Response& response) {
                                       return handle(service.server, request, response);
                                     });
  };
}

// Answers at once, as the client's address allows.
template <typename Request, typename Response>
UnaryMethod FromPeer(Status (*handle)(Server&, const Request&, Response&,
                                      const serving::Registrant&)) {
  return [handle](ServiceContext& service, const UnaryCall& call) {
    return Answer<Request, Response>(
        call, service.limits.max_message_bytes, [&](const Request& request, Response& response) {
          return handle(service.server, request, response,
                        serving::RegistrantAt(ClientOf(*call.context)));
        });
  };
}

// Waits for models that it loads, on a thread of its own.
template <typename Request, typename Response>
UnaryMethod Later(Handle<Request, Response>* handle) {
  return [handle](ServiceContext& service, const UnaryCall& call) -> Reactor* {
    auto request = std::make_shared<Request>();
    if (Reactor* refused = Parse(call, service.limits.max_message_bytes, *request)) return refused;
    Reactor* reactor = call.context->DefaultReactor();
    service.model_control.Post([handle, &server = service.server, call, request, reactor] {
      Response response;
      const Status status = handle(server, *request, response);
      reactor->Finish(status.ok() ? WriteMessage(response, *call.response) : ToGrpcStatus(status));
    });
    return reactor;
  };
}

struct Row {
  const char* path;
  Api api;  // that --grpc-restricted-protocol may close to clients without its metadata
  std::variant<UnaryMethod, StreamMethod*> answer;
};

// clang-format off
#define INFERENCE(method) "/inference.GRPCInferenceService/" method
std::span<const Row> Rows() {
  static const Row rows[] = {
      {INFERENCE("ServerLive"), Api::kHealth, Now(ServerLive)},
      {INFERENCE("ServerReady"), Api::kHealth, Now(ServerReady)},
      {INFERENCE("ModelReady"), Api::kHealth, Now(ModelReady)},
      {"/grpc.health.v1.Health/Check", Api::kHealth, Now(Check)},
      {INFERENCE("ServerMetadata"), Api::kMetadata, Now(ServerMetadata)},
      {INFERENCE("ModelMetadata"), Api::kMetadata, Now(ModelMetadata)},
      {INFERENCE("ModelConfig"), Api::kModelConfig, Now(ModelConfig)},
      {INFERENCE("ModelStatistics"), Api::kStatistics, Now(ModelStatistics)},
      {INFERENCE("ModelInfer"), Api::kInference, ModelInfer},
      {INFERENCE("ModelStreamInfer"), Api::kInference, ModelStreamInfer},
      {INFERENCE("RepositoryIndex"), Api::kModelRepository, Now(RepositoryIndex)},
      {INFERENCE("RepositoryModelLoad"), Api::kModelRepository, Later(RepositoryModelLoad)},
      {INFERENCE("RepositoryModelUnload"), Api::kModelRepository, Later(RepositoryModelUnload)},
      {INFERENCE("SystemSharedMemoryStatus"), Api::kSharedMemory, Now(SystemSharedMemoryStatus)},
      {INFERENCE("SystemSharedMemoryRegister"), Api::kSharedMemory, FromPeer(SystemSharedMemoryRegister)},
      {INFERENCE("SystemSharedMemoryUnregister"), Api::kSharedMemory, FromPeer(SystemSharedMemoryUnregister)},
      {INFERENCE("CudaSharedMemoryStatus"), Api::kSharedMemory, Now(CudaSharedMemoryStatus)},
      {INFERENCE("CudaSharedMemoryRegister"), Api::kSharedMemory, FromPeer(CudaSharedMemoryRegister)},
      {INFERENCE("CudaSharedMemoryUnregister"), Api::kSharedMemory, FromPeer(CudaSharedMemoryUnregister)},
      {INFERENCE("TraceSetting"), Api::kTrace, Now(TraceSetting)},
      {INFERENCE("LogSettings"), Api::kLogging, Now(LogSettings)},
  };
  return rows;
}
#undef INFERENCE
// clang-format on

}  // namespace

InferenceService::InferenceService(Server& server, ActiveCalls& calls, StreamLimits limits,
                                   const Access& access, std::shared_ptr<MemoryAccount> memory,
                                   grpc_compression_level compression)
    : context_{.server = server,
               .calls = calls,
               .limits = limits,
               .access = access,
               .memory = std::move(memory),
               .compression = compression} {
  for (const Row& row : Rows()) {
    if (const auto* unary = std::get_if<UnaryMethod>(&row.answer)) {
      AddUnary(row.path, [this, api = row.api, unary](const UnaryCall& call) {
        const Status access = CheckAccess(context_.access, api, *call.context);
        if (!access.ok()) return call.Finish(ToGrpcStatus(access));
        if (api == Api::kHealth) return (*unary)(context_, call);
        UnaryCall charged = call;
        charged.share = context_.memory->NewConnection(ClientOf(*call.context), [] {});
        return (*unary)(context_, charged);
      });
    } else {
      AddStream(row.path,
                [this, api = row.api, stream = std::get<StreamMethod*>(row.answer)](Context* call) {
                  return stream(context_, call, CheckAccess(context_.access, api, *call));
                });
    }
  }
}

std::vector<std::string_view> InferenceService::Paths() {
  std::vector<std::string_view> paths;
  for (const Row& row : Rows()) paths.emplace_back(row.path);
  return paths;
}

}  // namespace inflight::kserve_grpc
