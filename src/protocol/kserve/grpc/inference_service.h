// SPDX-License-Identifier: Apache-2.0
// The RPCs of GRPCInferenceService and of the standard health check, over a serving::Server.
#pragma once

#include <grpcpp/grpcpp.h>

#include "base/worker_pool.h"
#include "grpc_service.grpc.pb.h"
#include "health.grpc.pb.h"
#include "protocol/kserve/grpc/access.h"
#include "protocol/kserve/grpc/active_calls.h"
#include "protocol/kserve/grpc/stream_call.h"
#include "serving/server.h"

namespace inflight::kserve_grpc {

// Inference is served raw (message_bytes.h).
using Rpcs = ::inference::GRPCInferenceService;
// clang-format off
using InferenceRpcs =
    Rpcs::WithRawCallbackMethod_ModelInfer<
    Rpcs::WithRawCallbackMethod_ModelStreamInfer<
    Rpcs::WithCallbackMethod_ServerLive<
    Rpcs::WithCallbackMethod_ServerReady<
    Rpcs::WithCallbackMethod_ModelReady<
    Rpcs::WithCallbackMethod_ServerMetadata<
    Rpcs::WithCallbackMethod_ModelMetadata<
    Rpcs::WithCallbackMethod_ModelConfig<
    Rpcs::WithCallbackMethod_ModelStatistics<
    Rpcs::WithCallbackMethod_RepositoryIndex<
    Rpcs::WithCallbackMethod_RepositoryModelLoad<
    Rpcs::WithCallbackMethod_RepositoryModelUnload<
    Rpcs::WithCallbackMethod_SystemSharedMemoryStatus<
    Rpcs::WithCallbackMethod_SystemSharedMemoryRegister<
    Rpcs::WithCallbackMethod_SystemSharedMemoryUnregister<
    Rpcs::WithCallbackMethod_CudaSharedMemoryStatus<
    Rpcs::WithCallbackMethod_CudaSharedMemoryRegister<
    Rpcs::WithCallbackMethod_CudaSharedMemoryUnregister<
    Rpcs::WithCallbackMethod_TraceSetting<
    Rpcs::WithCallbackMethod_LogSettings<
    Rpcs::Service>>>>>>>>>>>>>>>>>>>>;
// clang-format on

// Threads: gRPC calls from several; the referred objects outlive all calls.
class InferenceService final : public InferenceRpcs {
 public:
  using Context = ::grpc::CallbackServerContext;
  using Reactor = ::grpc::ServerUnaryReactor;

  InferenceService(serving::Server& server, ActiveCalls& calls, StreamLimits limits,
                   const Access& access, grpc_compression_level compression)
      : server_(server),
        calls_(calls),
        limits_(limits),
        access_(access),
        compression_(compression),
        model_control_(server.model_load_threads(), "grpc-control") {}

  Reactor* ServerLive(Context*, const ::inference::ServerLiveRequest*,
                      ::inference::ServerLiveResponse*) override;
  Reactor* ServerReady(Context*, const ::inference::ServerReadyRequest*,
                       ::inference::ServerReadyResponse*) override;
  Reactor* ModelReady(Context*, const ::inference::ModelReadyRequest*,
                      ::inference::ModelReadyResponse*) override;
  Reactor* ServerMetadata(Context*, const ::inference::ServerMetadataRequest*,
                          ::inference::ServerMetadataResponse*) override;
  Reactor* ModelMetadata(Context*, const ::inference::ModelMetadataRequest*,
                         ::inference::ModelMetadataResponse*) override;
  Reactor* ModelConfig(Context*, const ::inference::ModelConfigRequest*,
                       ::inference::ModelConfigResponse*) override;
  Reactor* ModelStatistics(Context*, const ::inference::ModelStatisticsRequest*,
                           ::inference::ModelStatisticsResponse*) override;
  Reactor* RepositoryIndex(Context*, const ::inference::RepositoryIndexRequest*,
                           ::inference::RepositoryIndexResponse*) override;

  Reactor* ModelInfer(Context*, const ::grpc::ByteBuffer*, ::grpc::ByteBuffer*) override;
  ::grpc::ServerBidiReactor<::grpc::ByteBuffer, ::grpc::ByteBuffer>* ModelStreamInfer(
      Context*) override;

  Reactor* RepositoryModelLoad(Context*, const ::inference::RepositoryModelLoadRequest*,
                               ::inference::RepositoryModelLoadResponse*) override;
  Reactor* RepositoryModelUnload(Context*, const ::inference::RepositoryModelUnloadRequest*,
                                 ::inference::RepositoryModelUnloadResponse*) override;
  Reactor* SystemSharedMemoryStatus(Context*, const ::inference::SystemSharedMemoryStatusRequest*,
                                    ::inference::SystemSharedMemoryStatusResponse*) override;
  Reactor* SystemSharedMemoryRegister(Context*,
                                      const ::inference::SystemSharedMemoryRegisterRequest*,
                                      ::inference::SystemSharedMemoryRegisterResponse*) override;
  Reactor* SystemSharedMemoryUnregister(
      Context*, const ::inference::SystemSharedMemoryUnregisterRequest*,
      ::inference::SystemSharedMemoryUnregisterResponse*) override;
  Reactor* CudaSharedMemoryStatus(Context*, const ::inference::CudaSharedMemoryStatusRequest*,
                                  ::inference::CudaSharedMemoryStatusResponse*) override;
  Reactor* CudaSharedMemoryRegister(Context*, const ::inference::CudaSharedMemoryRegisterRequest*,
                                    ::inference::CudaSharedMemoryRegisterResponse*) override;
  Reactor* CudaSharedMemoryUnregister(Context*,
                                      const ::inference::CudaSharedMemoryUnregisterRequest*,
                                      ::inference::CudaSharedMemoryUnregisterResponse*) override;
  Reactor* TraceSetting(Context*, const ::inference::TraceSettingRequest*,
                        ::inference::TraceSettingResponse*) override;
  Reactor* LogSettings(Context*, const ::inference::LogSettingsRequest*,
                       ::inference::LogSettingsResponse*) override;

 private:
  serving::Server& server_;
  ActiveCalls& calls_;
  const StreamLimits limits_;
  const Access& access_;
  const grpc_compression_level compression_;  // of responses to inference
  WorkerPool writer_{1, "grpc-writer"};       // of streams
  WorkerPool model_control_;                  // loads take their time; last, as it uses the above
};

// Check answers for the whole server, whatever service is named; Watch is not offered.
class HealthService final : public ::grpc::health::v1::Health::CallbackService {
 public:
  HealthService(serving::Server& server, const Access& access) : server_(server), access_(access) {}

  ::grpc::ServerUnaryReactor* Check(::grpc::CallbackServerContext*,
                                    const ::grpc::health::v1::HealthCheckRequest*,
                                    ::grpc::health::v1::HealthCheckResponse*) override;

 private:
  serving::Server& server_;
  const Access& access_;
};

}  // namespace inflight::kserve_grpc
