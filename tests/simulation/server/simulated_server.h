// SPDX-License-Identifier: Apache-2.0
// The whole server without a machine under it: its front ends over sockets that the simulation
// holds the other ends of, its models over fake devices, its threads run in turn, its time set.
//
//   HTTP and gRPC connections, sessions, calls     as they are, on one I/O thread
//   worker pools, loads and unloads, text          as they are, a task at a time
//   server, repository, models, requests           as they are
//   executor, scheduler, KV cache                  as they are, a turn at a time
//   device                                         simulation/fake_backend.h, which distrusts plans
//
// Threads: one calls it; what it runs meanwhile runs on threads that have one name each, as in a
// server, while that one waits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/memory_account.h"
#include "base/worker_pool.h"
#include "executor/executor.h"
#include "protocol/grpc_listener/connection.h"
#include "protocol/http_listener/connection.h"
#include "protocol/kserve/grpc/inference_service.h"
#include "serving/repository/engine_loader.h"
#include "serving/server/server.h"
#include "simulation/fake_backend.h"
#include "simulation/server/lockstep_thread.h"

namespace inflight::testing {

struct SimulatedServerOptions {
  FakeBackendOptions device;  // but for the clock and what it calls
  ExecutorOptions executor;
  MemoryLimits memory;
  http_listener::ListenerOptions http;
  kserve_grpc::StreamLimits grpc_stream;
};

// Its token ids are bytes, 256 and 257 begin and end a text.
inline constexpr int kVocabSize = 258;
inline constexpr TokenId kBosId = 256;
inline constexpr TokenId kEndId = 257;

class SimulatedServer {
 public:
  // `repository`: a folder with the models that WriteRepository makes.
  SimulatedServer(SimulatedServerOptions options, const std::filesystem::path& repository,
                  ManualClock& clock);
  ~SimulatedServer();

  // The four models, and the LLM's directory.
  static void WriteRepository(const std::filesystem::path& repository);

  // A new connection by its server's end, from the client with this address.
  void AcceptHttp(Descriptor socket, const std::string& client);
  void AcceptGrpc(Descriptor socket, const std::string& client);

  // A part of what the server's threads do. An nth allocation fails (0: none does).
  void RunIo(uint64_t failing_allocation = 0);
  bool RunTask(uint64_t choice, uint64_t failing_allocation = 0);
  bool Step(uint64_t failing_allocation = 0);     // a turn of each executor
  bool Deliver(uint64_t failing_allocation = 0);  // to the requests' sinks
  void LookAtTime();                              // connections whose deadline has passed

  // From now on no plan may hold the request with this seed.
  void NoteGone(uint64_t seed) { gone_.insert(seed); }
  // What must not happen, the first of it; empty: nothing did.
  const std::string& violation() const { return violation_; }

  serving::Server& server() { return *server_; }
  const MemoryAccount& memory() const { return *memory_; }
  size_t num_connections() const { return io_->connections.size(); }
  int num_faults() const { return num_faults_; }  // allocations that failed
  bool HasDeviceFault() const;                    // of a model that is loaded

  // Ends the server, once nobody asks for anything. False: it waited for something that nobody
  // sees the end of.
  bool ShutDown();
  // After all connections have closed and all work is done: what is still held, if anything is.
  std::string WhatIsLeft() const;

 private:
  // An executor that was loaded, and what is known of its device.
  struct Engine {
    std::weak_ptr<executor::SteppedExecutor> executor;
    const FakeBackend* device = nullptr;  // of the executor
    std::unordered_map<scheduler::SlotId, uint64_t> seeds;
  };

  Result<serving::LoadedEngine> LoadEngine(const std::filesystem::path& dir);
  void CheckPlan(const Engine& engine, const executor::StepPlan& plan);
  void Note(const std::string& what);
  template <typename Use>
  bool ForEachExecutor(Use use);
  void RunFaulty(LockstepThread& thread, uint64_t failing_allocation, std::function<void()> work);
  template <typename Connection, typename Context>
  void Accept(const std::shared_ptr<const Context>& context, Descriptor socket,
              const std::string& client);

  const SimulatedServerOptions options_;
  ManualClock& clock_;
  const ReplacedClock time_;
  PoolPump pump_;
  LockstepThread io_thread_, pool_thread_, stream_thread_;

  std::vector<std::shared_ptr<Engine>> engines_;  // in the order of their loads
  std::unordered_set<uint64_t> gone_;
  std::string violation_;
  int num_faults_ = 0;

  const std::shared_ptr<MemoryAccount> memory_;
  std::unique_ptr<serving::Server> server_;
  std::unique_ptr<http_listener::HttpHandler> http_handler_;
  const kserve_grpc::Access access_{.policy = std::make_shared<kserve::AccessPolicy>(),
                                    .header_forward = {}};
  kserve_grpc::ActiveCalls calls_{1 << 14};
  std::unique_ptr<kserve_grpc::InferenceService> service_;
  std::unique_ptr<WorkerPool> unpackers_;
  std::shared_ptr<tcp_listener::IoThread> io_;
  std::vector<std::weak_ptr<tcp_listener::Connection>> accepted_;  // in their order
  std::shared_ptr<const http_listener::ListenerContext> http_;
  std::shared_ptr<const grpc_listener::ListenerContext> grpc_;
};

}  // namespace inflight::testing
