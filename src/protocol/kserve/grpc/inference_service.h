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
#include "protocol/kserve/grpc/unary_call.h"
#include "serving/server/server.h"

namespace inflight::kserve_grpc {

// All methods are served raw (message_bytes.h).
using Rpcs = ::inference::GRPCInferenceService;
// clang-format off
using InferenceRpcs =
    Rpcs::WithRawCallbackMethod_ModelInfer<
    Rpcs::WithRawCallbackMethod_ModelStreamInfer<
    Rpcs::WithRawCallbackMethod_ServerLive<
    Rpcs::WithRawCallbackMethod_ServerReady<
    Rpcs::WithRawCallbackMethod_ModelReady<
    Rpcs::WithRawCallbackMethod_ServerMetadata<
    Rpcs::WithRawCallbackMethod_ModelMetadata<
    Rpcs::WithRawCallbackMethod_ModelConfig<
    Rpcs::WithRawCallbackMethod_ModelStatistics<
    Rpcs::WithRawCallbackMethod_RepositoryIndex<
    Rpcs::WithRawCallbackMethod_RepositoryModelLoad<
    Rpcs::WithRawCallbackMethod_RepositoryModelUnload<
    Rpcs::WithRawCallbackMethod_SystemSharedMemoryStatus<
    Rpcs::WithRawCallbackMethod_SystemSharedMemoryRegister<
    Rpcs::WithRawCallbackMethod_SystemSharedMemoryUnregister<
    Rpcs::WithRawCallbackMethod_CudaSharedMemoryStatus<
    Rpcs::WithRawCallbackMethod_CudaSharedMemoryRegister<
    Rpcs::WithRawCallbackMethod_CudaSharedMemoryUnregister<
    Rpcs::WithRawCallbackMethod_TraceSetting<
    Rpcs::WithRawCallbackMethod_LogSettings<
    Rpcs::Service>>>>>>>>>>>>>>>>>>>>;
using HealthRpcs =
    ::grpc::health::v1::Health::WithRawCallbackMethod_Check<::grpc::health::v1::Health::Service>;
// clang-format on

// Threads: gRPC calls from several; the referred objects outlive all calls.
class InferenceService final : public InferenceRpcs {
 public:
  using Context = ::grpc::CallbackServerContext;
  using Bytes = ::grpc::ByteBuffer;
  using Reactor = ::grpc::ServerUnaryReactor;

  InferenceService(serving::Server& server, ActiveCalls& calls, StreamLimits limits,
                   const Access& access, grpc_compression_level compression)
      : server_(server),
        calls_(calls),
        limits_(limits),
        access_(access),
        unary_(access, limits.max_message_bytes),
        compression_(compression),
        model_control_(server.model_load_threads(), "grpc-control") {}

  Reactor* ServerLive(Context*, const Bytes*, Bytes*) override;
  Reactor* ServerReady(Context*, const Bytes*, Bytes*) override;
  Reactor* ModelReady(Context*, const Bytes*, Bytes*) override;
  Reactor* ServerMetadata(Context*, const Bytes*, Bytes*) override;
  Reactor* ModelMetadata(Context*, const Bytes*, Bytes*) override;
  Reactor* ModelConfig(Context*, const Bytes*, Bytes*) override;
  Reactor* ModelStatistics(Context*, const Bytes*, Bytes*) override;
  Reactor* RepositoryIndex(Context*, const Bytes*, Bytes*) override;

  Reactor* ModelInfer(Context*, const Bytes*, Bytes*) override;
  ::grpc::ServerBidiReactor<Bytes, Bytes>* ModelStreamInfer(Context*) override;

  Reactor* RepositoryModelLoad(Context*, const Bytes*, Bytes*) override;
  Reactor* RepositoryModelUnload(Context*, const Bytes*, Bytes*) override;
  Reactor* SystemSharedMemoryStatus(Context*, const Bytes*, Bytes*) override;
  Reactor* SystemSharedMemoryRegister(Context*, const Bytes*, Bytes*) override;
  Reactor* SystemSharedMemoryUnregister(Context*, const Bytes*, Bytes*) override;
  Reactor* CudaSharedMemoryStatus(Context*, const Bytes*, Bytes*) override;
  Reactor* CudaSharedMemoryRegister(Context*, const Bytes*, Bytes*) override;
  Reactor* CudaSharedMemoryUnregister(Context*, const Bytes*, Bytes*) override;
  Reactor* TraceSetting(Context*, const Bytes*, Bytes*) override;
  Reactor* LogSettings(Context*, const Bytes*, Bytes*) override;

 private:
  template <typename Request, typename Response, typename Act>
  Reactor* Control(const UnaryCall& call, Act act);

  serving::Server& server_;
  ActiveCalls& calls_;
  const StreamLimits limits_;
  const Access& access_;
  const UnaryCalls unary_;
  const grpc_compression_level compression_;  // of responses to inference
  WorkerPool writer_{1, "grpc-writer"};       // of streams
  WorkerPool model_control_;                  // loads take their time; last, as it uses the above
};

// Check answers for the whole server, whatever service is named; Watch is not offered.
class HealthService final : public HealthRpcs {
 public:
  HealthService(serving::Server& server, const Access& access, int64_t max_message_bytes)
      : server_(server), unary_(access, max_message_bytes) {}

  ::grpc::ServerUnaryReactor* Check(::grpc::CallbackServerContext*, const ::grpc::ByteBuffer*,
                                    ::grpc::ByteBuffer*) override;

 private:
  serving::Server& server_;
  const UnaryCalls unary_;
};

}  // namespace inflight::kserve_grpc
