// SPDX-License-Identifier: Apache-2.0
#include "simulation/server/simulated_server.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/ip/address.hpp>
#include <chrono>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "protocol/kserve/http/http_server.h"
#include "serving/configuration/generated_config.h"
#include "serving/server/create_server.h"
#include "serving/testing/fake_executor.h"
#include "simulation/heap.h"

namespace inflight::testing {
namespace {

namespace fs = std::filesystem;

// Ahead of the machine's, so that no timer of the system fires of itself.
constexpr int64_t kBeginNs = int64_t{1} << 60;

// Of a server that has nothing to wait for: it gives up after more.
constexpr std::chrono::seconds kLongWait{20};

constexpr char kLlm[] = "tensorrt_llm";

ManualClock& Begin(ManualClock& clock) {
  if (clock.NowNs() < kBeginNs) clock.AdvanceNs(kBeginNs);
  return clock;
}

void Write(const fs::path& path, const std::string& content) {
  fs::create_directories(path.parent_path());
  CHECK(WriteFile(path, content).ok());
}

}  // namespace

void SimulatedServer::WriteRepository(const fs::path& repository) {
  const fs::path engine = repository / kLlm / "1";
  Write(engine / "config.json", "{}");
  Write(engine / "tokenizer.json", serving::ByteTokenizerJson());
  const serving::GeneratedConfigOptions options = {
      .model_dir = engine.string(), .tokenizer_dir = engine.string(), .max_batch_size = 8};
  auto llm = serving::LlmConfig(options);
  // Without records there is no thread that reports them.
  (*llm.mutable_parameters())["iter_stats_max_iterations"].set_string_value("0");
  for (const auto& config :
       {serving::PreprocessingConfig(options), std::move(llm),
        serving::PostprocessingConfig(options), serving::EnsembleConfig(options)}) {
    Write(repository / config.name() / "config.pbtxt", config.DebugString());
    fs::create_directories(repository / config.name() / "1");
  }
}

SimulatedServer::SimulatedServer(SimulatedServerOptions options, const fs::path& repository,
                                 ManualClock& clock)
    : options_(std::move(options)),
      clock_(clock),
      time_(Begin(clock)),
      memory_(MemoryAccount::Make(options_.memory)) {
  auto server = serving::CreateServerWith(
      {.model_repositories = {repository.string()},
       .control_mode = serving::ControlMode::kExplicit,
       .load_models = {"*"},
       .model_load_threads = 1},
      [this](const fs::path& dir, const std::string&, const ExecutorOptions&,
             const serving::AskedPlace&) { return LoadEngine(dir); });
  CHECK(server.ok());
  server_ = *std::move(server);
  http_handler_ = kserve_http::MakeHandler(*server_, {});
  service_ = std::make_unique<kserve_grpc::InferenceService>(
      *server_, calls_, access_, kserve_grpc::ServiceOptions{.limits = options_.grpc_stream});
  unpackers_ = std::make_unique<WorkerPool>(1, "grpc-unpack");
  io_ = std::make_shared<tcp_listener::IoThread>(std::chrono::milliseconds(250));
  io_->on_closed = [] {};
  const tcp_listener::ConnectionContext connection = {.memory = memory_, .tls = nullptr};
  http_.reset(new http_listener::ListenerContext{
      .handler = *http_handler_, .options = options_.http, .connection = connection});
  grpc_.reset(new grpc_listener::ListenerContext{
      .session = {.handler = *service_,
                  .options = {},
                  .run_elsewhere =
                      [this](std::function<void()> task) { unpackers_->Post(std::move(task)); }},
      .connection = connection});
}

SimulatedServer::~SimulatedServer() {
  io_thread_.Do([&] {
    const auto connections = io_->connections;
    for (const auto& connection : connections) connection->Close();
  });
  // Until nothing moves: tasks hold requests, requests hold models.
  for (bool moves = true; moves;) {
    RunIo();
    moves = RunTask(0);
    while (Step()) moves = true;
    moves |= Deliver();
  }
  ShutDown();
}

Result<serving::LoadedEngine> SimulatedServer::LoadEngine(const fs::path& dir) {
  const auto engine = std::make_shared<Engine>();
  FakeBackendOptions device = options_.device;
  device.clock = &clock_;
  device.on_setup = [engine](const executor::SlotSetup& setup) {
    engine->seeds[setup.slot] = setup.seed;
  };
  device.on_launch = [this, raw = engine.get()](const executor::StepPlan& plan) {
    CheckPlan(*raw, plan);
  };
  auto backend = std::make_unique<FakeBackend>(std::move(device));
  engine->device = backend.get();
  auto made =
      executor::CreateSteppedExecutor(std::move(backend), options_.executor, Clock::System());
  if (!made.ok()) return made.status();
  const std::shared_ptr<executor::SteppedExecutor> executor = *std::move(made);
  engine->executor = executor;
  engines_.push_back(engine);
  serving::LoadedEngine loaded;
  loaded.backend = {.steps = nullptr, .executor = executor, .end_ids = {kEndId}};
  loaded.device = "cpu";
  loaded.tokenizer_dir = dir;
  return loaded;
}

void SimulatedServer::CheckPlan(const Engine& engine, const executor::StepPlan& plan) {
  for (int r = 0; r < plan.num_rows; ++r) {
    const auto found = engine.seeds.find(plan.rows[static_cast<size_t>(r)].slot);
    if (found != engine.seeds.end() && gone_.contains(found->second)) {
      Note(fmt::format("request {} is in a plan after it was cancelled", found->second));
    }
  }
}

void SimulatedServer::Note(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

template <typename Connection, typename Context>
void SimulatedServer::Accept(const std::shared_ptr<const Context>& context, Descriptor socket,
                             const std::string& client) {
  io_thread_.Do([&] {
    tcp_listener::Socket end(io_->io);
    end.assign(boost::asio::generic::stream_protocol(AF_UNIX, 0), socket.Release());
    const auto connection = std::make_shared<Connection>(context, io_, std::move(end),
                                                         boost::asio::ip::make_address(client));
    accepted_.push_back(connection);
    connection->Start();
  });
}

void SimulatedServer::AcceptHttp(Descriptor socket, const std::string& client) {
  Accept<http_listener::Connection>(http_, std::move(socket), client);
}

void SimulatedServer::AcceptGrpc(Descriptor socket, const std::string& client) {
  Accept<grpc_listener::Connection>(grpc_, std::move(socket), client);
}

void SimulatedServer::RunFaulty(LockstepThread& thread, uint64_t failing_allocation,
                                std::function<void()> work) {
  thread.Do([&] {
    const HeapFault fault(failing_allocation);
    work();
    num_faults_ += fault.has_struck() ? 1 : 0;
  });
}

void SimulatedServer::RunIo(uint64_t failing_allocation) {
  RunFaulty(io_thread_, failing_allocation, [&] {
    while (true) {
      try {  // as the listener's threads do
        io_->io.restart();
        while (io_->io.poll() > 0) {
        }
        return;
      } catch (const std::exception&) {
      }
    }
  });
}

bool SimulatedServer::RunTask(uint64_t choice, uint64_t failing_allocation) {
  if (!pump_.HasTask()) return false;
  bool has_run = false;
  RunFaulty(pool_thread_, failing_allocation, [&] { has_run = pump_.RunOne(choice); });
  return has_run;
}

template <typename Use>
bool SimulatedServer::ForEachExecutor(Use use) {
  bool has_worked = false;
  for (size_t i = 0; i < engines_.size(); ++i) {
    const auto executor = engines_[i]->executor.lock();
    if (executor == nullptr) continue;
    has_worked |= use(*executor);
    if (const std::string& fault = engines_[i]->device->violation(); !fault.empty()) Note(fault);
  }
  std::erase_if(engines_, [](const auto& engine) { return engine->executor.expired(); });
  return has_worked;
}

bool SimulatedServer::Step(uint64_t failing_allocation) {
  const HeapFault fault(failing_allocation);
  const bool has_worked =
      ForEachExecutor([](executor::SteppedExecutor& executor) { return executor.Step(); });
  num_faults_ += fault.has_struck() ? 1 : 0;
  return has_worked;
}

bool SimulatedServer::Deliver(uint64_t failing_allocation) {
  bool has_delivered = false;
  RunFaulty(stream_thread_, failing_allocation, [&] {
    has_delivered =
        ForEachExecutor([](executor::SteppedExecutor& executor) { return executor.Deliver() > 0; });
  });
  return has_delivered;
}

void SimulatedServer::LookAtTime() {
  io_thread_.Do([&] {
    const auto now = SteadyNow();
    std::erase_if(accepted_, [](const auto& connection) { return connection.expired(); });
    for (size_t i = 0; i < accepted_.size(); ++i) {
      const auto connection = accepted_[i].lock();
      if (connection != nullptr && io_->connections.contains(connection) &&
          connection->IsDue(now)) {
        connection->OnDue(now);
      }
    }
  });
}

bool SimulatedServer::HasDeviceFault() const {
  for (const auto& engine : engines_) {
    const auto executor = engine->executor.lock();
    if (executor != nullptr && !executor->healthy()) return true;
  }
  return false;
}

bool SimulatedServer::ShutDown() {
  const auto begin = std::chrono::steady_clock::now();  // it waits by the machine's time
  server_->Shutdown(/*drain_ms=*/0);
  return std::chrono::steady_clock::now() - begin < kLongWait;
}

std::string SimulatedServer::WhatIsLeft() const {
  if (!io_->connections.empty()) return fmt::format("{} connections", io_->connections.size());
  if (memory_->used_bytes() != 0) return fmt::format("{} bytes charged", memory_->used_bytes());
  for (const auto& engine : engines_) {
    const auto executor = engine->executor.lock();
    if (executor == nullptr || !executor->healthy()) continue;
    const ExecutorStats stats = executor->stats();
    if (stats.kv_blocks_used != 0) return fmt::format("{} KV blocks", stats.kv_blocks_used);
    if (stats.num_active_requests + stats.num_queued_requests != 0) {
      return fmt::format("{} requests of an executor",
                         stats.num_active_requests + stats.num_queued_requests);
    }
  }
  return "";
}

}  // namespace inflight::testing
