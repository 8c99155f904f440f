// SPDX-License-Identifier: Apache-2.0
// inflight serve: load models, open the ports, serve until a signal, drain.
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "artifact/hub_cache.h"
#include "base/clock.h"
#include "base/crash_trace.h"
#include "base/file.h"
#include "base/idle_memory.h"
#include "base/log.h"
#include "base/log_settings.h"
#include "base/memory_account.h"
#include "base/status_macros.h"
#include "builder/peft_adapter.h"
#include "check_ports.h"
#include "command_line.h"
#include "commands.h"
#include "doctor/findings.h"
#include "front_ends.h"
#include "hub/find_or_pull.h"
#include "launched_rank.h"
#include "load_until_signal.h"
#include "model_directory.h"
#include "names_elsewhere.h"
#include "object_store/address.h"
#include "openai_options.h"
#include "orchestration.h"
#include "protocol/metrics/metrics_config.h"
#include "reach.h"
#include "serve_options.h"
#include "serve_sandbox.h"
#include "serve_upstream_flags.h"
#include "serving/core/response_cache.h"
#include "serving/instances/rate_limiter.h"
#include "serving/llm/named_adapters.h"
#include "serving/llm/prompt_table_dir.h"
#include "serving/repository/engine_places.h"
#include "serving/server/create_server.h"
#include "start_tables.h"
#include "tensor/device.h"
#include "trace_options.h"
#include "tritonserver_words.h"
#include "vertex_ai_environment.h"

namespace inflight::tool {
namespace {

const Usage kUsage = {"inflight serve DIR... [--model-repository REPOSITORY] [options]",
                      "Serves models over HTTP (8000), gRPC (8001) and metrics (8002). DIR is a "
                      "Hugging Face, checkpoint or engine directory,\n"
                      "offered as preprocessing, tensorrt_llm, postprocessing and ensemble.",
                      OptionElsewhere, /*is_log=*/true};

// Whether a signal waits for WaitForStop: transfers that last are given up.
bool IsAskedToStop() {
  sigset_t pending;
  return sigpending(&pending) == 0 &&
         (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1);
}

// Waits for a stop signal, or for a device fault or the loss of a rank: then the process ends with
// an error, for its supervisor to restart it.
Status WaitForStop(const sigset_t& signals, const serving::Server& server,
                   kserve::AccessPolicy& policy, const RankProcesses* ranks) {
  while (true) {
    const timespec second{.tv_sec = 1, .tv_nsec = 0};
    const int signal = sigtimedwait(&signals, nullptr, &second);
    ReturnFreeMemory();  // by the main thread, also that of threads that have ended
    if (signal > 0) {
      logging::Info(fmt::format("Signal ({}) received.", signal));
      return Status::Ok();
    }
    if (const Status status = policy.ReloadIfChanged(); !status.ok())
      logging::Error("the access files are wrong, and those from before stay in force",
                     {{"error", status.message()}});
    const bool is_usable =
        server.CheckUsable().ok();  // else it says that it is not live, and stays
    if (is_usable && !server.live())
      return Internal("a device fault ended an executor; see the log above");
    if (ranks != nullptr) RETURN_IF_ERROR(ranks->status());
  }
}

// The server is not ready from now on and takes requests all the same, until load balancers have
// noticed; a second signal ends that.
void WaitForBalancers(const sigset_t& signals, serving::Server& server, int delay_secs) {
  if (delay_secs == 0) return;
  server.BeginExit();
  logging::Info(fmt::format("Not ready any more; requests are taken for {} s.", delay_secs));
  const Clock& clock = Clock::System();
  const int64_t end_ns = clock.NowNs() + int64_t{delay_secs} * 1'000'000'000;
  for (int64_t left_ns; (left_ns = end_ns - clock.NowNs()) > 0;) {
    const timespec left{.tv_sec = left_ns / 1'000'000'000, .tv_nsec = left_ns % 1'000'000'000};
    const int signal = sigtimedwait(&signals, nullptr, &left);
    if (signal > 0) return logging::Info(fmt::format("Signal ({}) received.", signal));
  }
}

// Each connection is a descriptor; most systems let a process have more than it starts with.
void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void LowerTo(int64_t most, const char* name, int& value) {
  if (value <= most) return;
  logging::Info(std::string(name) + " is lowered to what the limit of descriptors allows; raise " +
                    "`ulimit -Hn` for more",
                {{"asked", std::to_string(value)}, {"connections", std::to_string(most)}});
  value = static_cast<int>(std::max<int64_t>(most, 1));
}

// So that neither port takes what the other and files need.
void FitToFileLimit(ServeOptions& options) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto count = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, rlim_t{1} << 30));
  LowerTo(static_cast<int64_t>(doctor::HttpConnectionsOf(static_cast<uint64_t>(count))),
          "--http-max-connections", options.http.max_connections);
  LowerTo(count * 3 / 8, "--grpc-max-connections", options.grpc.max_connections);
}

// What is kept of requests: traces, latencies, responses.
Status SetKept(ServeOptions& options) {
  ASSIGN_OR_RETURN(options.server.trace, MakeTraceOptions(options));
  ASSIGN_OR_RETURN(const auto metrics, metrics::ParseMetricsConfig(options.metrics_config));
  options.server.statistics = metrics::StatisticsFor(metrics);
  const auto cache_bytes = static_cast<uint64_t>(options.response_cache_byte_size);
  if (cache_bytes > 0) {
    logging::Warning("--response-cache-byte-size is deprecated, say --cache-config local,size=" +
                     std::to_string(cache_bytes));
  }
  ASSIGN_OR_RETURN(options.server.response_cache,
                   serving::MakeResponseCache(options.cache_config, cache_bytes));
  return Status::Ok();
}

Status SetAdapters(ServeOptions& options) {
  if (options.lora_modules.empty() && options.lora_dir.empty()) return Status::Ok();
  ASSIGN_OR_RETURN(options.server.adapters,
                   serving::NamedAdapters::Make(options.lora_modules, options.lora_dir,
                                                builder::ReadPeftAdapter));
  return Status::Ok();
}

Status SetPromptTables(ServeOptions& options) {
  if (options.prompt_table_dir.empty()) return Status::Ok();
  ASSIGN_OR_RETURN(options.server.prompt_tables,
                   serving::PromptTableDir::Open(options.prompt_table_dir));
  return Status::Ok();
}

Status SetRateLimiter(ServeOptions& options) {
  ASSIGN_OR_RETURN(auto limiter, serving::RateLimiter::Make(options.rate_limit_resource));
  if (options.rate_limit == "execution_count") {
    options.server.rate_limiter = std::move(limiter);
  } else if (!options.rate_limit_resource.empty()) {
    logging::Warning("--rate-limit-resource has no effect without --rate-limit=execution_count");
  }
  return Status::Ok();
}

// One account for what the clients of all front ends make us hold.
void SetRequestMemory(ServeOptions& options) {
  constexpr uint64_t kLeast = uint64_t{256} << 20;
  constexpr uint64_t kMost = uint64_t{8} << 30;
  const uint64_t bytes = options.request_memory_byte_size > 0
                             ? static_cast<uint64_t>(options.request_memory_byte_size)
                             : std::clamp(AvailableHostBytes() / 4, kLeast, kMost);
  const auto memory = MemoryAccount::Make(MemoryLimits::Of(bytes));
  options.http.memory = memory;
  options.grpc.memory = memory;
  options.metrics.listener.memory = memory;
  options.metrics.page.memory = memory;
  if (options.stored_responses_byte_size > 0)
    options.stored_responses = std::make_shared<openai::ResponseStore>(
        static_cast<size_t>(options.stored_responses_byte_size), options.stored_responses_secs,
        memory);
}

Status Serve(ServeOptions& options) {
  RaiseFileLimit();
  SetRequestMemory(options);
  options.http.request_log = options.request_log;
  options.http.keeps_raw_values = !options.http_header_forward_pattern.empty();
  launch::World world;
  if (options.ranks == "wait") {
    ASSIGN_OR_RETURN(world, WorldOfThisProcess());
  }
  ASSIGN_OR_RETURN(const Orchestration orchestration, OrchestrationOf(world));
  OpenOptions& open = options.server.open;
  const bool is_given_out = orchestration == Orchestration::kGivesOut && world.size > 1;
  artifact::RankMapping at_start;  // that are processes
  if (world.size > 1 && !is_given_out) {
    if (!open.tensor_parallel_size && !open.pipeline_parallel_size) {  // an engine has to say them
      RETURN_IF_ERROR(CheckPlacesOfRank(world, options.server.model_dirs));
      RETURN_IF_ERROR(CheckPlacesOfRank(world, options.server.model_repositories));
    }
    ASSIGN_OR_RETURN(at_start, RanksAtStart(world, serving::EnginePlaces(options.server), open));
  }
  const bool is_ranked = is_given_out || at_start.num_ranks() > 1;
  if (world.rank > 0 && !is_ranked) {
    WaitAsRank(world, BlockStopSignals());
    return Status::Ok();
  }
  RETURN_IF_ERROR(SetAdapters(options));
  RETURN_IF_ERROR(EnterSandbox(options, is_ranked));  // before what follows starts threads
  // A signal ends the process until all have come.
  std::shared_ptr<RankProcesses> ranks;
  std::shared_ptr<comm::Group> launched;
  if (is_given_out) {
    ASSIGN_OR_RETURN(launched, JoinLaunched(world));
  } else if (is_ranked) {
    ASSIGN_OR_RETURN(ranks, JoinRanks(world, at_start));
    open.rank_processes = [ranks](int) { return ranks; };
    open.gpu_ranks_are_processes = GpuRanksAreProcesses(world);
  }
  const sigset_t signals = BlockStopSignals();  // of each thread, since none is started yet
  if (world.rank > 0)
    return is_given_out ? ComputeAsOrdered(*launched, open, AskedToStop(signals))
                        : ranks->Follow(open, AskedToStop(signals));
  options.server.orchestrator =
      MakeOrchestrator(orchestration, options, std::move(launched), world);
  if (const Status kept = SetKept(options); !kept.ok()) return UsageError(kUsage, kept.message());
  if (const Status tables = SetPromptTables(options); !tables.ok())
    return UsageError(kUsage, tables.message());
  if (const Status limited = SetRateLimiter(options); !limited.ok()) {
    return UsageError(kUsage, limited.message());
  }
  const auto settings = ParseBackendConfig(options.backend_config);
  if (!settings.ok()) return UsageError(kUsage, settings.status().message());
  LogBanner();
  LogVariablesElsewhere();
  LogBackends(*settings);
  FitToFileLimit(options);
  options.access.admin_place = AdminPlace(options);
  ASSIGN_OR_RETURN(options.policy, kserve::AccessPolicy::Load(options.access));
  ASSIGN_OR_RETURN(const auto server, serving::CreateEmptyServer(options.server));
  ASSIGN_OR_RETURN(FrontEnds fronts, OpenPorts(*server, options));
  RETURN_IF_ERROR(LoadUntilSignal(*server, signals, [&fronts] { fronts.admin_socket.reset(); }));
  LogOptions(options, server->metadata());
  RETURN_IF_ERROR(OpenPortsOfModels(*server, options, fronts));
  LogStarted(options, fronts);
  LogReach(options);
  LogHowToAsk(*server, options, PortOf(fronts.http), PortOf(fronts.openai));
  RETURN_IF_ERROR(WritePortFile(options.port_file, fronts));
  Status stopped = WaitForStop(signals, *server, *options.policy, ranks.get());
  if (stopped.ok()) WaitForBalancers(signals, *server, options.exit_delay_secs);
  const bool in_time =
      Drain(fronts, *server, stopped.ok() ? int64_t{options.exit_timeout_secs} * 1000 : 0);
  if (!stopped.ok()) return stopped;
  if (!in_time && options.exit_timeout_secs > 0) {
    Status expired = DeadlineExceeded("Exit timeout expired. Exiting immediately.");
    logging::Error(expired.message());
    return expired;
  }
  if (ranks != nullptr) ranks->SayGoodbye();
  return Status::Ok();
}

Status SetControlMode(ServeOptions& options) {
  using serving::ControlMode;
  serving::ServerOptions& server = options.server;
  if (options.model_control_mode == "poll") server.control_mode = ControlMode::kPoll;
  if (options.model_control_mode == "explicit") server.control_mode = ControlMode::kExplicit;
  if (server.load_models.empty()) return Status::Ok();
  if (server.control_mode != ControlMode::kExplicit) {
    return UsageError(
        kUsage, "Use of '--load-model' requires setting '--model-control-mode=explicit' as well.");
  }
  const bool has_all = std::find(server.load_models.begin(), server.load_models.end(), "*") !=
                       server.load_models.end();
  if (has_all && server.load_models.size() > 1) {
    return UsageError(kUsage, "--load-model: '*' is all models and stands alone");
  }
  return Status::Ok();
}

// Each rank is to hold experts of its own: none has a part of another's.
Status SetExpertParallel(ServeOptions& options) {
  if (!options.enable_expert_parallel) return Status::Ok();
  std::optional<int>& of_same = options.server.open.moe_tp_size;
  if (of_same.value_or(-1) > 1)
    return InvalidArgument(
        fmt::format("--moe-tp-size: got {}, --enable-expert-parallel stands for 1; leave one of "
                    "both out",
                    *of_same));
  of_same = 1;
  return Status::Ok();
}

// Where repositories are addresses of object stores, what is wrong with one is told before anything
// is loaded.
Status CheckAddress(const std::string& repository, bool is_on_vertex_ai) {
  if (!object_store::IsAddress(repository)) return Status::Ok();
  const auto address = object_store::ParseAddress(repository);
  if (address.ok()) return Status::Ok();
  return UsageError(kUsage, std::string(is_on_vertex_ai ? "--model-repository or AIP_STORAGE_URI: "
                                                        : "--model-repository: ") +
                                address.status().message());
}

// Whether a launcher started this process as one of several that compute together.
bool IsOneOfRanks(const ServeOptions& options) {
  if (options.ranks != "wait") return false;
  const auto world = WorldOfThisProcess();
  return world.ok() && world->size > 1;
}

Status Run(ServeOptions& options, std::span<const std::string> positionals) {
  options.server.remote.is_cancelled = IsAskedToStop;
  std::vector<std::string> arguments(positionals.begin(), positionals.end());
  if (!options.model.empty()) arguments.push_back(options.model);
  for (const std::string& argument : arguments) {
    auto dir = ModelDirectory(argument, options.server.remote, options.download);
    if (!dir.ok() && dir.status().code() == StatusCode::kNotFound && IsOneOfRanks(options))
      dir = artifact::ResolveModelDir(argument);  // Serve tells the other ranks
    if (!dir.ok()) return dir.status();
    options.server.model_dirs.push_back(dir->string());
    options.model_arguments.push_back(argument);
  }
  // Before the sandbox, from which the names of the hub's cache cannot be read.
  std::filesystem::path& draft = options.server.open.draft_model;
  if (options.download && !draft.empty()) {
    ASSIGN_OR_RETURN(draft, ModelDirectory(draft, {}, /*downloads=*/true));
  } else if (auto dir = artifact::ResolveModelDir(draft); dir.ok() && !draft.empty()) {
    draft = *dir;
  }
  if (options.download)  // of those that a repository's files name
    options.server.find_model = [](const std::filesystem::path& named) {
      return hub::FindOrPull(named, {});
    };
  AddVertexAiStorage(options);
  if (options.server.model_dirs.empty() && options.server.model_repositories.empty())
    return UsageError(kUsage, "a model directory or --model-repository is needed");
  for (const std::string& repository : options.server.model_repositories)
    RETURN_IF_ERROR(CheckAddress(repository, options.allow_vertex_ai));
  for (const config::WithoutEffect& option : options.without_effect) config::Warn(option);
  if (options.strict_model_config) {
    logging::Warning("--strict-model-config is deprecated, say --disable-auto-complete-config");
  }
  if (options.admin_address && !options.admin_port)
    return UsageError(kUsage, "--admin-address is that of --admin-port, which is needed with it");
  if (options.server.recording.keeps_prompts && options.server.recording.file.empty())
    return UsageError(kUsage, "--record-prompts is of the journal of --record, needed with it");
  if (options.hashes_prompts && !options.server.issuing.issues)
    return UsageError(kUsage, "--receipt-hashes is of the receipts of --receipts, needed with it");
  options.server.issuing.has_prompts = !options.hashes_prompts;
  options.server.open.executor.deterministic |= options.server.issuing.issues;
  options.server.auto_complete =
      !options.disable_auto_complete_config && !options.strict_model_config.value_or(false);
  RETURN_IF_ERROR(SetControlMode(options));
  RETURN_IF_ERROR(CheckPorts(options));
  RETURN_IF_ERROR(options.quantization.SetIn(options.server.open));
  RETURN_IF_ERROR(SetExpertParallel(options));
  return Serve(options);
}

// Before the other options, which may have something to log.
Status SetUpLog(Args args) {
  const config::Schema<ServeOptions> schema = ServeSchema();
  ServeOptions options;
  ASSIGN_OR_RETURN(const Arguments arguments,
                   ParseArguments(args, schema.options(), schema.aliases(), OptionElsewhere));
  const auto set = [&](const std::string& name, const std::string& value) {
    return name.starts_with("log_") ? schema.Set(options, name, value) : Status::Ok();
  };
  for (const auto& [name, value] : arguments.options) {
    if (name != "config") continue;
    ASSIGN_OR_RETURN(const auto entries, config::ReadOptionFile(value));
    for (const auto& [key, text] : entries) RETURN_IF_ERROR(set(key, text).WithPrefix(value));
  }
  for (const auto& [name, value] : arguments.options) RETURN_IF_ERROR(set(name, value));
  logging::SetVerboseLevel(static_cast<uint32_t>(std::max(options.log_verbose, 0)));
  logging::SetEnabled(logging::Level::kInfo, options.log_info);
  logging::SetEnabled(logging::Level::kWarning, options.log_warning);
  logging::SetEnabled(logging::Level::kError, options.log_error);
  if (const auto format = logging::FindFormat(options.log_format)) logging::SetFormat(*format);
  logging::SetEscaping(logging::EscapingOf(std::getenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES")));
  logging::SetConsole(logging::Console::kBoth);
  if (options.log_file.empty() || arguments.help || arguments.help_all) return Status::Ok();
  return logging::SetFile(options.log_file).WithPrefix("--log-file");
}

// A copy of the arguments. Keys are wiped where the list of processes shows them.
std::vector<std::string> TakeWords(Args args) {
  constexpr std::string_view kFlag = "--api-key";
  std::vector<std::string> words(args.begin(), args.end());
  for (size_t i = 0; i < args.size(); ++i) {
    std::string name = words[i].substr(0, words[i].find('='));
    std::ranges::replace(name, '_', '-');
    if (name != kFlag) continue;
    const bool is_next = words[i].size() == kFlag.size();
    if (is_next && i + 1 == args.size()) break;
    char* const value = is_next ? args[i + 1] : args[i] + kFlag.size() + 1;
    std::fill_n(value, std::strlen(value), '*');
  }
  return words;
}

std::vector<char*> PointersTo(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  return pointers;
}

int Main(Args args, ServeOptions options) {
  InstallCrashTrace();
  if (const Status log = SetUpLog(args); !log.ok()) return Fail(log);
  if (const Status status = SetFromVertexAi(options); !status.ok()) return Fail(status);
  return RunCommand(args, kUsage, ServeSchema(), Run, std::move(options));
}

}  // namespace

int ServeMain(Args args) {
  std::vector<std::string> words = TakeWords(args);
  return Main(PointersTo(words), {});
}

Manual ServeManual() { return {kUsage, ServeSchema().options()}; }

int TritonserverMain(Args args) {
  std::vector<std::string> words = TakeWords(args);
  const config::Schema<ServeOptions> schema = ServeSchema();
  auto full = ExpandPrefixes(PointersTo(words), schema.options(), schema.aliases());
  if (!full.ok()) return Fail(full.status());
  if (const std::string said = TritonserverWords(PointersTo(*full), schema); !said.empty())
    std::fprintf(stderr, "%s\n", said.c_str());
  ServeOptions options;
  options.http.address = options.grpc.address = kEveryInterface;
  options.request_log = false;
  return Main(PointersTo(*full), std::move(options));
}

}  // namespace inflight::tool
