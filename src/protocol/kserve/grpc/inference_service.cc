// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/inference_service.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "grpc_service.pb.h"
#include "health.pb.h"
#include "protocol/kserve/grpc/grpc_status.h"
#include "protocol/kserve/grpc/infer_call.h"
#include "protocol/kserve/grpc/log_settings.h"
#include "protocol/kserve/grpc/model_control.h"
#include "protocol/kserve/grpc/model_messages.h"
#include "protocol/kserve/grpc/reflection_call.h"
#include "protocol/kserve/grpc/trace_setting.h"
#include "reflection_v1alpha.pb.h"

namespace inflight::kserve_grpc {
namespace {

using ::grpc::health::v1::HealthCheckRequest;
using ::grpc::health::v1::HealthCheckResponse;
using grpc_listener::RpcMessage;
using grpc_listener::RpcReactor;
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

// As gRPC's levels choose: the first, the middle or the last of those that the client takes.
Coding ResponseCoding(CompressionLevel level, const Rpc& rpc) {
  const auto& accepted = rpc.accepted_codings();
  if (level == CompressionLevel::kNone || accepted.empty()) return Coding::kIdentity;
  if (level == CompressionLevel::kLow) return accepted.front();
  return level == CompressionLevel::kMedium ? accepted[accepted.size() / 2] : accepted.back();
}

bool HasMetadata(const Rpc& rpc, std::string_view key, std::string_view value) {
  const auto& metadata = rpc.metadata();
  return std::any_of(metadata.begin(), metadata.end(), [&](const auto& entry) {
    return entry.first == key && entry.second == value;
  });
}

serving::TraceContext TraceContextOf(serving::Server& server, const Rpc& rpc) {
  if (!server.tracer().is_on()) return {};
  const auto value_of = [&](std::string_view key) {
    const std::string* found = rpc.FindMetadata(key);
    return found == nullptr ? std::string() : *found;
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
  // What is not there is not ready; clients of all releases wait for that after an unload.
  const bool is_absent = model.status().code() == StatusCode::kNotFound ||
                         model.status().code() == StatusCode::kUnavailable;
  return is_absent ? Status::Ok() : model.status();
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
  RETURN_IF_ERROR(CheckRepository(request.repository_name()));
  RETURN_IF_ERROR(server.CheckUsable());
  WriteIndex(server.Index(request.ready()), response);
  return Status::Ok();
}

// --- inference ---

// A call that has ended before its service saw it.
class EndedCall final : public RpcReactor {
 public:
  void OnMessage(RpcMessage) override {}
  void OnHalfClose() override {}
};

std::shared_ptr<RpcReactor> End(Rpc& rpc, Status status) {
  rpc.Finish(std::move(status));
  return std::make_shared<EndedCall>();
}

std::shared_ptr<RpcReactor> ModelInfer(ServiceContext& service, std::shared_ptr<Rpc> rpc,
                                       kserve::Admission admission) {
  auto forwarded = ForwardedParameters(service.access, *rpc);
  const Status& status = admission.ok() ? forwarded.status() : admission.status;
  if (!status.ok()) return End(*rpc, ToGrpcStatus(status));
  CallMetadata metadata = {.parameters = *std::move(forwarded),
                           .trace = TraceContextOf(service.server, *rpc),
                           .coding = ResponseCoding(service.compression, *rpc),
                           .caller = std::move(admission.client)};
  return StartInferCall(service.server, service.calls, std::move(metadata),
                        service.limits.max_message_bytes, std::move(rpc));
}

std::shared_ptr<RpcReactor> ModelStreamInfer(ServiceContext& service, std::shared_ptr<Rpc> rpc,
                                             kserve::Admission admission) {
  auto forwarded = ForwardedParameters(service.access, *rpc);
  StreamMetadata metadata = {
      .is_strict = HasMetadata(*rpc, "triton_grpc_error", "true"),
      .refusal = admission.ok() ? forwarded.status() : admission.status,
      .parameters = forwarded.ok() ? *std::move(forwarded) : serving::Parameters{},
      .trace = TraceContextOf(service.server, *rpc),
      .coding = ResponseCoding(service.compression, *rpc),
      .caller = std::move(admission.client)};
  return StreamCall::Start(service.server, service.calls, service.limits, std::move(metadata),
                           std::move(rpc));
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
                                pb::SystemSharedMemoryStatusResponse& response,
                                const serving::Registrant& from) {
  const auto own = server.shared_memory().Of(from.identity);
  ASSIGN_OR_RETURN(const auto regions, own.Find(RegionKind::kSystem, request.name()));
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
                              pb::CudaSharedMemoryStatusResponse& response,
                              const serving::Registrant& from) {
  const auto own = server.shared_memory().Of(from.identity);
  ASSIGN_OR_RETURN(const auto regions, own.Find(RegionKind::kCuda, request.name()));
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

// --- reflection ---

std::shared_ptr<RpcReactor> ServerReflectionInfo(ServiceContext& service, std::shared_ptr<Rpc> rpc,
                                                 kserve::Admission admission) {
  if (service.reflection == nullptr) return End(*rpc, Unimplemented(""));
  if (!admission.ok()) return End(*rpc, ToGrpcStatus(admission.status));
  return StartReflectionCall(*service.reflection, service.calls, std::move(admission.client),
                             std::move(rpc));
}

// --- the table ---

// The client is that of the call's key; null: it has none that is known.
using UnaryMethod =
    std::function<void(ServiceContext&, const std::shared_ptr<Rpc>&, RpcMessage, const Client*)>;
// Has a reactor of its own. The admission says whether the API is open to the client.
using CallMethod = std::shared_ptr<RpcReactor>(ServiceContext&, std::shared_ptr<Rpc>,
                                               kserve::Admission);

class UnaryCall final : public UnaryReactor {
 public:
  UnaryCall(ServiceContext& service, const UnaryMethod& method, std::shared_ptr<Rpc> rpc,
            std::shared_ptr<const Client> caller)
      : UnaryReactor(std::move(rpc)),
        service_(service),
        method_(method),
        caller_(std::move(caller)) {}

 private:
  void Handle(RpcMessage message) override {
    method_(service_, rpc_, std::move(message), caller_.get());
  }

  ServiceContext& service_;
  const UnaryMethod& method_;
  const std::shared_ptr<const Client> caller_;
};

template <typename Request, typename Response>
using Handler = Status(Server&, const Request&, Response&);

// Answers at once.
template <typename Request, typename Response>
UnaryMethod Now(Handler<Request, Response>* handle) {
  return [handle](ServiceContext& service, const std::shared_ptr<Rpc>& rpc,
                  const RpcMessage& message, const Client*) {
    Answer<Request, Response>(*rpc, message, service.limits.max_message_bytes,
                              [&](const Request& request, Response& response) {
                                return handle(service.server, request, response);
                              });
  };
}

// Answers at once, as the client's address and key allow.
template <typename Request, typename Response>
UnaryMethod FromPeer(Status (*handle)(Server&, const Request&, Response&,
                                      const serving::Registrant&)) {
  return [handle](ServiceContext& service, const std::shared_ptr<Rpc>& rpc,
                  const RpcMessage& message, const Client* caller) {
    const auto from = serving::RegistrantAt(rpc->client(), caller);
    Answer<Request, Response>(*rpc, message, service.limits.max_message_bytes,
                              [&](const Request& request, Response& response) {
                                return handle(service.server, request, response, from);
                              });
  };
}

// Waits for models that it loads, on a thread of its own.
template <typename Request, typename Response>
UnaryMethod Later(Handler<Request, Response>* handle) {
  return [handle](ServiceContext& service, const std::shared_ptr<Rpc>& rpc,
                  const RpcMessage& message, const Client*) {
    auto request = std::make_shared<Request>();
    if (!Parse(*rpc, message, service.limits.max_message_bytes, *request)) return;
    service.model_control.Post([handle, &server = service.server, rpc, request] {
      Response response;
      const Status status = handle(server, *request, response);
      Finish(*rpc, status, response);
    });
  };
}

struct Row {
  const char* path;
  Api api;  // by which the policy of access knows it
  std::variant<UnaryMethod, CallMethod*> answer;
};

// clang-format off
#define INFERENCE(method) "/inference.GRPCInferenceService/" method
#define REFLECTION(version) "/grpc.reflection." version ".ServerReflection/ServerReflectionInfo"
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
      {INFERENCE("ModelInfer"), Api::kInference, &ModelInfer},
      {INFERENCE("ModelStreamInfer"), Api::kInference, &ModelStreamInfer},
      {INFERENCE("RepositoryIndex"), Api::kModelRepository, Now(RepositoryIndex)},
      {INFERENCE("RepositoryModelLoad"), Api::kModelRepository, Later(RepositoryModelLoad)},
      {INFERENCE("RepositoryModelUnload"), Api::kModelRepository, Later(RepositoryModelUnload)},
      {INFERENCE("SystemSharedMemoryStatus"), Api::kSharedMemory, FromPeer(SystemSharedMemoryStatus)},
      {INFERENCE("SystemSharedMemoryRegister"), Api::kSharedMemory, FromPeer(SystemSharedMemoryRegister)},
      {INFERENCE("SystemSharedMemoryUnregister"), Api::kSharedMemory, FromPeer(SystemSharedMemoryUnregister)},
      {INFERENCE("CudaSharedMemoryStatus"), Api::kSharedMemory, FromPeer(CudaSharedMemoryStatus)},
      {INFERENCE("CudaSharedMemoryRegister"), Api::kSharedMemory, FromPeer(CudaSharedMemoryRegister)},
      {INFERENCE("CudaSharedMemoryUnregister"), Api::kSharedMemory, FromPeer(CudaSharedMemoryUnregister)},
      {INFERENCE("TraceSetting"), Api::kTrace, Now(TraceSetting)},
      {INFERENCE("LogSettings"), Api::kLogging, Now(LogSettings)},
      {REFLECTION("v1"), Api::kMetadata, &ServerReflectionInfo},
      {REFLECTION("v1alpha"), Api::kMetadata, &ServerReflectionInfo},
  };
  return rows;
}
#undef REFLECTION
#undef INFERENCE
// clang-format on

const Row* FindRow(std::string_view path) {
  static const auto by_path = [] {
    std::unordered_map<std::string_view, const Row*> rows;
    for (const Row& row : Rows()) rows.emplace(row.path, &row);
    return rows;
  }();
  const auto found = by_path.find(path);
  return found == by_path.end() ? nullptr : found->second;
}

// That the rows' methods belong to.
std::vector<std::string> Services() {
  // Nothing else refers to what is generated of that file, and the linker would leave it out.
  CHECK(::grpc::reflection::v1alpha::ServerReflection::descriptor() != nullptr);
  std::set<std::string_view> services;
  for (const Row& row : Rows()) {
    const std::string_view path = row.path;
    services.insert(path.substr(1, path.rfind('/') - 1));
  }
  return {services.begin(), services.end()};
}

// As Triton's log has it at a verbose level.
void LogCall(std::string_view path, uint64_t number) {
  std::string name(path.substr(path.rfind('/') + 1));
  if (name == "ModelInfer" || name == "ModelStreamInfer") name += "Handler";
  logging::Verbose("Process for " + name + ", rpc_ok=1, " + std::to_string(number) + " step START");
}

}  // namespace

InferenceService::InferenceService(Server& server, ActiveCalls& calls, const Access& access,
                                   const ServiceOptions& options)
    : context_{.server = server,
               .calls = calls,
               .limits = options.limits,
               .access = access,
               .compression = options.compression,
               .reflection =
                   options.with_reflection ? std::make_unique<Reflection>(Services()) : nullptr} {}

std::shared_ptr<RpcReactor> InferenceService::Start(std::shared_ptr<Rpc> rpc) {
  const Row* row = FindRow(rpc->path());
  if (row == nullptr) return End(*rpc, Unimplemented(""));  // as gRPC's own servers say it
  if (logging::Enabled(logging::Level::kVerbose)) LogCall(row->path, num_calls_++);
  kserve::Admission admission = Admit(context_.access, row->api, *rpc);
  if (const auto* start = std::get_if<CallMethod*>(&row->answer)) {
    return (*start)(context_, std::move(rpc), std::move(admission));
  }
  if (!admission.ok()) return End(*rpc, ToGrpcStatus(admission.status));
  rpc->Read();
  return std::make_shared<UnaryCall>(context_, std::get<UnaryMethod>(row->answer), std::move(rpc),
                                     std::move(admission.client));
}

std::vector<std::string_view> InferenceService::Paths() {
  std::vector<std::string_view> paths;
  for (const Row& row : Rows()) paths.emplace_back(row.path);
  return paths;
}

}  // namespace inflight::kserve_grpc
