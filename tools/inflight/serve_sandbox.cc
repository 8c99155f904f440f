// SPDX-License-Identifier: Apache-2.0
#include "serve_sandbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "environment.h"
#include "object_store/address.h"
#include "object_store/cache.h"
#include "object_store/needed_files.h"
#include "sandbox/sandbox.h"
#include "serving/trace/trace_config.h"

namespace inflight::tool {
namespace {

namespace fs = std::filesystem;

// What the C library, the loader of libraries, look-ups of names, OpenSSL, the metrics page and the
// drivers of GPUs read.
constexpr const char* kSystemFiles[] = {"/usr",
                                        "/lib",
                                        "/lib64",
                                        "/etc/ld.so.cache",
                                        "/etc/ssl/certs",
                                        "/etc/ssl/openssl.cnf",
                                        "/etc/localtime",
                                        "/etc/resolv.conf",
                                        "/etc/hosts",
                                        "/etc/host.conf",
                                        "/etc/nsswitch.conf",
                                        "/etc/gai.conf",
                                        "/etc/services",
                                        "/proc/self",
                                        "/proc/stat",
                                        "/proc/meminfo",
                                        "/proc/cpuinfo",
                                        "/proc/devices",
                                        "/proc/modules",
                                        "/proc/driver",
                                        "/proc/sys/vm",
                                        "/sys"};
constexpr const char* kDevices[] = {"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"};

// The directory of a file, also of one that is named without any.
fs::path FolderOf(const fs::path& file) {
  const fs::path folder = file.parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

// A snapshot in the hub's cache is made of links into the folder `blobs` beside `snapshots`.
void AddModelDir(const fs::path& dir, std::vector<fs::path>& read) {
  read.push_back(dir);
  std::error_code error;
  const fs::path snapshots = fs::canonical(dir, error).parent_path();
  if (!error && snapshots.filename() == "snapshots")
    read.push_back(snapshots.parent_path() / "blobs");
}

// Files of keys and of TLS are replaced by others of the same name, so that their folders are read.
std::vector<fs::path> FilesToRead(const ServeOptions& options) {
  std::vector<fs::path> read(std::begin(kSystemFiles), std::end(kSystemFiles));
  std::istringstream folders(Environment("LD_LIBRARY_PATH"));
  for (std::string folder; std::getline(folders, folder, ':');)
    if (!folder.empty()) read.emplace_back(folder);
  for (const std::string& dir : options.server.model_dirs) AddModelDir(dir, read);
  if (!options.server.open.draft_model.empty()) AddModelDir(options.server.open.draft_model, read);
  for (const std::string& dir : options.server.model_repositories)
    if (!object_store::IsAddress(dir)) read.emplace_back(dir);
  for (const std::string& path : options.sandbox_read) read.emplace_back(path);
  if (!options.lora_dir.empty()) read.emplace_back(options.lora_dir);
  for (const std::string& module : options.lora_modules)
    read.emplace_back(module.substr(module.find('=') + 1));
  if (FileExists(options.server.chat_template)) read.emplace_back(options.server.chat_template);
  if (!options.prompt_table_dir.empty()) read.emplace_back(options.prompt_table_dir);
  for (const std::string& file : {options.access.keys.access, options.access.keys.api_keys})
    if (!file.empty()) read.push_back(FolderOf(file));
  for (const tls::PortTlsOptions* tls :
       {&options.http.tls, &options.grpc.tls, &options.metrics.listener.tls})
    for (const std::vector<std::string>& files :
         {tls->server_certs, tls->server_keys, std::vector{tls->root_cert}})
      for (const std::string& file : files)
        if (!file.empty()) read.push_back(FolderOf(file));
  return read;
}

std::vector<fs::path> FoldersToWrite(const ServeOptions& options,
                                     const serving::TraceConfig& trace) {
  std::vector<fs::path> write;
  for (const std::string& file :
       {trace.file, options.trace_file, options.log_file, options.port_file, options.shadow_report,
        options.server.recording.file})
    if (!file.empty()) write.push_back(FolderOf(file));
  std::error_code error;  // loads may bring files, which are kept there
  if (options.model_control_mode == "explicit") write.push_back(fs::temp_directory_path(error));
  return write;
}

// The stores that the server may read, by the addresses of repositories. With a folder for copies
// all: configurations may name any.
std::vector<object_store::Kind> StoresToRead(const ServeOptions& options) {
  using object_store::Kind;
  if (!options.server.remote.cache_dir.empty()) return {Kind::kS3, Kind::kGs, Kind::kAs};
  std::vector<Kind> kinds;
  for (const Kind kind : {Kind::kS3, Kind::kGs, Kind::kAs}) {
    const auto is_of_it = [&](const std::string& repository) {
      return repository.starts_with(object_store::SchemeOf(kind));
    };
    if (std::ranges::any_of(options.server.model_repositories, is_of_it)) kinds.push_back(kind);
  }
  return kinds;
}

// Folders for copies are made before: what is not there cannot be let in.
Status AllowStores(const ServeOptions& options, sandbox::Rules& rules) {
  const std::vector<object_store::Kind> kinds = StoresToRead(options);
  if (kinds.empty()) return Status::Ok();
  for (const object_store::Kind kind : kinds) {
    ASSIGN_OR_RETURN(const fs::path folder,
                     object_store::Cache::FolderFor(kind, options.server.remote));
    ASSIGN_OR_RETURN(const auto cache, object_store::Cache::Open(folder));
    rules.files.write.push_back(cache->dir());
  }
  for (fs::path& file : object_store::NeededFiles(options.server.remote.environment))
    rules.files.read.push_back(std::move(file));
  rules.may_connect = true;
  rules.has_socket_pairs = true;  // libcurl's look-ups of names tell that they are done by one
  return Status::Ok();
}

// Certificates of those that the server calls, where the environment names them.
void AllowCertificates(sandbox::Rules& rules) {
  for (const char* const name : {"SSL_CERT_FILE", "SSL_CERT_DIR"})
    if (const std::string path = Environment(name); !path.empty())
      rules.files.read.emplace_back(path);
}

// Unix sockets are made in the folders that options name.
void AllowSockets(const ServeOptions& options, sandbox::Rules& rules) {
  constexpr std::string_view kIpc = "ipc://";
  const KvEventsOptions& events = options.server.open.executor.kv_events;
  std::vector<std::string> sockets;
  if (!options.admin_socket.empty()) sockets.push_back(options.admin_socket);
  for (const std::string& endpoint : {events.endpoint, events.replay_endpoint})
    if (endpoint.starts_with(kIpc)) sockets.push_back(endpoint.substr(kIpc.size()));
  for (const std::string& socket : sockets) rules.files.sockets.push_back(FolderOf(socket));
  rules.has_unix_sockets |= !sockets.empty();
}

// /dev/nvidia0, /dev/nvidiactl, /dev/nvidia-uvm, /dev/nvidia-caps/...
std::vector<fs::path> GpuDevices(const ServeOptions& options) {
  std::vector<fs::path> found;
  std::error_code error;
  if (options.server.open.device == "cpu") return found;
  for (const fs::directory_entry& entry : fs::directory_iterator("/dev", error))
    if (entry.path().filename().string().starts_with("nvidia")) found.push_back(entry.path());
  return found;
}

}  // namespace

Status EnterSandbox(const ServeOptions& options, bool is_ranked) {
  if (options.sandbox == SandboxMode::kOff) return Status::Ok();
  for (const std::string& path : options.sandbox_read) {
    std::error_code error;
    if (!fs::exists(path, error))
      return InvalidArgument("--sandbox-read",
                             "got '" + path +
                                 "', which is not there; what is made later cannot be "
                                 "let in any more: name the folder that it will lie in");
  }
  ASSIGN_OR_RETURN(const serving::TraceConfig trace,
                   serving::ParseTraceConfig(options.trace_config, Environment));
  sandbox::Rules rules;
  rules.files.read = FilesToRead(options);
  rules.files.write = FoldersToWrite(options, trace);
  if (options.server.shared_memory.clients_may_register)
    rules.files.objects.emplace_back("/dev/shm");
  rules.files.devices = GpuDevices(options);
  rules.may_connect = trace.is_opentelemetry || options.cog_port.has_value() || is_ranked ||
                      !options.shadow_of.empty();
  RETURN_IF_ERROR(AllowStores(options, rules));
  if (rules.may_connect) AllowCertificates(rules);
  const bool has_gpu = !rules.files.devices.empty();
  // CUDA names its threads by /proc/self/task/<id>/comm, and does not start where it cannot.
  if (has_gpu) rules.files.objects.emplace_back("/proc/self/task");
  rules.has_unix_sockets = has_gpu;  // memory that CUDA shares goes by them
  AllowSockets(options, rules);
  rules.files.devices.insert(rules.files.devices.end(), std::begin(kDevices), std::end(kDevices));
  rules.must_be_whole = options.sandbox == SandboxMode::kOn;
  auto entered = sandbox::Enter(rules);
  if (!entered.ok()) {
    if (!rules.must_be_whole) return entered.status().WithPrefix("--sandbox best-effort");
    return entered.status().WithMessage("--sandbox on: " + entered.status().message() +
                                        "; --sandbox best-effort starts with what there is");
  }
  for (const std::string& what : entered->lacks)
    logging::Warning("the sandbox is not whole", {{"reason", what}});
  logging::Info("the sandbox is in force",
                {{"landlock", std::to_string(entered->landlock)},
                 {"system_call_filter", entered->has_filter ? "true" : "false"}});
  return Status::Ok();
}

}  // namespace inflight::tool
