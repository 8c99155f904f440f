// SPDX-License-Identifier: Apache-2.0
// inflight shadow: the same requests to two servers, and in what their answers differ.
#include <pthread.h>
#include <signal.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/status_macros.h"
#include "command_line.h"
#include "commands.h"
#include "shadow/grpc_call.h"
#include "shadow/grpc_proxy.h"
#include "shadow/proxy.h"
#include "shadow/report.h"
#include "tls_options.h"

namespace inflight::tool {
namespace {

using shadow::Outcome;
using shadow::RecordedCall;
using shadow::RecordedRequest;

const Usage kUsage = {
    "inflight shadow --old URL --new URL (--requests FILE | --port PORT | --grpc-port PORT)",
    "Sends requests to two servers and tells in what their answers differ: those of a file, or "
    "those of clients of a port,\nwhich get the old server's answers. The exit status is 1 where "
    "answers differ."};

struct Options {
  std::string old_url, new_url;
  std::string requests;
  std::optional<int> port;
  std::optional<int> grpc_port;
  tls::PortTlsOptions http_tls{.port = "http"};
  tls::PortTlsOptions grpc_tls{.port = "grpc"};
  std::string address = "127.0.0.1";
  std::string record;
  std::string report;
  int concurrency = 1;
  int timeout_secs = 120;
  double tolerance = shadow::CompareRules().tolerance;
  std::vector<std::string> ignore;
};

config::Schema<Options> MakeSchema() {
  config::Schema<Options> schema;
  schema.Section("Servers");
  schema.Add(
      "old", [](Options& o) -> auto& { return o.old_url; },
      "URL of the server that is trusted, such as http://localhost:8000 or grpc://localhost:8001; "
      "over TLS https or grpcs.");
  schema.Add(
      "new", [](Options& o) -> auto& { return o.new_url; }, "URL of the server to compare.");
  schema.Add(
      "timeout_secs", [](Options& o) -> auto& { return o.timeout_secs; },
      "Seconds that an answer may take.", config::Range(1, 86400));
  schema.Section("Requests");
  schema.Add(
      "requests", [](Options& o) -> auto& { return o.requests; },
      "File of requests, a JSON object a line; - is standard input.");
  schema.Add(
      "concurrency", [](Options& o) -> auto& { return o.concurrency; },
      "Requests of the file that are under way at a time.", config::Range(1, 256));
  schema.Add(
      "port", [](Options& o) -> auto& { return o.port; },
      "Listen here for clients over HTTP until a signal; 0 picks a free port.",
      config::Range(0, 65535));
  schema.Add(
      "grpc_port", [](Options& o) -> auto& { return o.grpc_port; },
      "Listen here for clients over gRPC until a signal; 0 picks a free port.",
      config::Range(0, 65535));
  schema.Add(
      "address", [](Options& o) -> auto& { return o.address; },
      "Address of --port and --grpc-port.");
  schema.Add(
      "record", [](Options& o) -> auto& { return o.record; },
      "File to which requests of clients are added, for --requests.");
  schema.Section("TLS");
  AddTlsOptions(schema, "http", [](Options& o) -> auto& { return o.http_tls; });
  AddTlsOptions(schema, "grpc", [](Options& o) -> auto& { return o.grpc_tls; });
  schema.Section("Report");
  schema.Add(
      "report", [](Options& o) -> auto& { return o.report; },
      "File for a line of JSON for each request.");
  schema.Add(
      "tolerance", [](Options& o) -> auto& { return o.tolerance; },
      "By how much numbers with a fraction may differ: absolute up to 1, relative beyond.",
      config::Range(0, 1));
  schema.Add(
      "ignore", [](Options& o) -> auto& { return o.ignore; },
      "Member of JSON that is not compared, wherever it stands.");
  return schema;
}

using File = std::unique_ptr<FILE, int (*)(FILE*)>;

Result<File> OpenToWrite(const std::string& option, const std::string& path, const char* mode) {
  if (path.empty()) return File(nullptr, std::fclose);
  File file(std::fopen(path.c_str(), mode), std::fclose);
  if (file == nullptr) return NotFound(option + ": cannot write '" + path + "'");
  return file;
}

// What lines of the file say, in turn, for several threads.
template <typename Recorded>
class RequestFile {
 public:
  using Parse = Result<Recorded> (*)(const std::string& line);
  RequestFile(std::istream& in, Parse parse) : in_(in), parse_(parse) {}

  // Unset at the end.
  Result<std::optional<Recorded>> Next() {
    const std::lock_guard lock(mutex_);
    std::string line;
    while (std::getline(in_, line)) {
      ++number_;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      auto request = parse_(line);
      if (!request.ok()) return request.status().WithPrefix("line " + std::to_string(number_));
      return std::optional(*std::move(request));
    }
    return std::optional<Recorded>();
  }

 private:
  std::istream& in_;
  const Parse parse_;
  std::mutex mutex_;
  int64_t number_ = 0;
};

Status ReplayInTurn(RequestFile<RecordedRequest>& requests, const shadow::ShadowOptions& options,
                    shadow::Report& report) {
  boost::asio::io_context io{1};
  while (true) {
    ASSIGN_OR_RETURN(auto request, requests.Next());
    if (!request) return Status::Ok();
    shadow::AskBoth(io, options, *std::move(request), {},
                    [&](const Outcome& outcome) { report.Add(outcome); });
    io.run();
    io.restart();
  }
}

struct GrpcServers {
  shadow::GrpcAddress old_server;
  shadow::GrpcAddress new_server;
};

Status CallInTurn(RequestFile<RecordedCall>& calls, const GrpcServers& servers,
                  const shadow::ShadowOptions& options, shadow::Report& report) {
  const auto client_of = [](const shadow::GrpcAddress& server) {
    return grpc_client::GrpcClient(server.host, server.port, server.is_tls);
  };
  grpc_client::GrpcClient old_server = client_of(servers.old_server);
  grpc_client::GrpcClient new_server = client_of(servers.new_server);
  while (true) {
    ASSIGN_OR_RETURN(const auto call, calls.Next());
    if (!call) return Status::Ok();
    report.Add(shadow::CallBoth(old_server, new_server, *call, options));
  }
}

// `in_turn` takes requests of the file until there are none, on several threads.
template <typename Recorded, typename InTurn>
Status Replay(const Options& options, Result<Recorded> (*parse)(const std::string& line),
              const InTurn& in_turn) {
  std::ifstream file;
  if (options.requests != "-") {
    file.open(options.requests);
    if (!file) return NotFound("--requests: cannot open '" + options.requests + "'");
  }
  RequestFile<Recorded> requests(options.requests == "-" ? std::cin : file, parse);
  std::vector<Status> ends(static_cast<size_t>(options.concurrency));
  std::vector<std::thread> threads;
  for (Status& end : ends) threads.emplace_back([&] { end = in_turn(requests); });
  for (std::thread& thread : threads) thread.join();
  for (const Status& end : ends) RETURN_IF_ERROR(end.WithPrefix("--requests"));
  return Status::Ok();
}

// `start` gives the server, or what is wrong; it writes requests to the file that it is given.
template <typename Start>
Status ServeClients(const Options& options, const Start& start) {
  ASSIGN_OR_RETURN(const File record, OpenToWrite("--record", options.record, "a"));
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ASSIGN_OR_RETURN(const auto started, start(record.get()));
  std::printf("listening at %s:%d\n", options.address.c_str(), started->port());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  started->Stop(std::chrono::seconds(5));
  return Status::Ok();
}

Status ServeHttp(const Options& options, const shadow::ShadowOptions& servers,
                 shadow::Report& report) {
  return ServeClients(options, [&](FILE* record) {
    shadow::ProxyOptions proxy;
    proxy.listener.address = options.address;
    proxy.listener.port = *options.port;
    proxy.listener.tls = options.http_tls;
    proxy.shadow = servers;
    proxy.record = record;
    return shadow::Proxy::Start(proxy, report);
  });
}

Status ServeGrpc(const Options& options, const GrpcServers& servers,
                 const shadow::ShadowOptions& rules, shadow::Report& report) {
  shadow::GrpcProxyOptions proxy;
  ASSIGN_OR_RETURN(proxy.listener.tls, tls::MakePortTls(options.grpc_tls, "h2"));
  return ServeClients(options, [&](FILE* record) {
    proxy.listener.address = options.address;
    proxy.listener.port = *options.grpc_port;
    proxy.old_server = servers.old_server;
    proxy.new_server = servers.new_server;
    proxy.shadow = rules;
    proxy.record = record;
    return shadow::GrpcProxy::Start(proxy, report);
  });
}

Result<GrpcServers> GrpcServersOf(const Options& options) {
  GrpcServers servers;
  if (!shadow::IsGrpcUrl(options.old_url) || !shadow::IsGrpcUrl(options.new_url))
    return UsageError(kUsage, "--old and --new: both are of one protocol, http or grpc");
  if (options.port)
    return UsageError(kUsage,
                      "--port listens to clients over HTTP, and --old is a server over gRPC: "
                      "--grpc-port listens to its clients");
  auto address = shadow::ParseGrpcUrl(options.old_url);
  if (!address.ok()) return address.status().WithPrefix("--old");
  servers.old_server = *std::move(address);
  address = shadow::ParseGrpcUrl(options.new_url);
  if (!address.ok()) return address.status().WithPrefix("--new");
  servers.new_server = *std::move(address);
  return servers;
}

Result<http_client::Url> ServerAt(const char* option, const std::string& url) {
  if (url.empty()) return UsageError(kUsage, std::string(option) + " is needed");
  auto parsed = http_client::ParseUrl(url);
  if (!parsed.ok()) return parsed.status().WithPrefix(option);
  return parsed;
}

Status Run(const Options& options, std::span<const std::string> positionals) {
  RETURN_IF_ERROR(NoPositionals(kUsage, positionals));
  shadow::ShadowOptions servers;
  GrpcServers grpc_servers;
  const bool is_grpc = shadow::IsGrpcUrl(options.old_url) || shadow::IsGrpcUrl(options.new_url);
  if (is_grpc) {
    ASSIGN_OR_RETURN(grpc_servers, GrpcServersOf(options));
  } else {
    ASSIGN_OR_RETURN(servers.old_server, ServerAt("--old", options.old_url));
    ASSIGN_OR_RETURN(servers.new_server, ServerAt("--new", options.new_url));
  }
  servers.timeout = std::chrono::seconds(options.timeout_secs);
  servers.rules = {.tolerance = options.tolerance, .ignored = options.ignore};
  if (options.grpc_port && !is_grpc)
    return UsageError(kUsage,
                      "--grpc-port listens to clients over gRPC, and --old is a server over HTTP");
  const bool is_live = options.port || options.grpc_port;
  if (options.requests.empty() != is_live)
    return UsageError(kUsage, "one of --requests, --port and --grpc-port is needed");
  if (!options.record.empty() && !is_live)
    return UsageError(kUsage, "--record is for requests of --port and --grpc-port");
  ASSIGN_OR_RETURN(const File file, OpenToWrite("--report", options.report, "w"));
  shadow::Report report(stdout, file.get());
  if (options.grpc_port) {
    RETURN_IF_ERROR(ServeGrpc(options, grpc_servers, servers, report));
  } else if (options.port) {
    RETURN_IF_ERROR(ServeHttp(options, servers, report));
  } else if (is_grpc) {
    RETURN_IF_ERROR(Replay(options, shadow::ParseRecordedCall, [&](auto& calls) {
      return CallInTurn(calls, grpc_servers, servers, report);
    }));
  } else {
    RETURN_IF_ERROR(Replay(options, shadow::ParseRecordedRequest, [&](auto& requests) {
      return ReplayInTurn(requests, servers, report);
    }));
  }
  report.PrintSummary();
  if (report.num_unequal() == 0) return Status::Ok();
  return FailedPrecondition(std::to_string(report.num_unequal()) + " of " +
                            std::to_string(report.num_requests()) +
                            " requests are answered otherwise, or not");
}

}  // namespace

int ShadowMain(Args args) { return RunCommand(args, kUsage, MakeSchema(), Run); }

Manual ShadowManual() {
  return {
      kUsage, MakeSchema().options(),
      "0 where all answers are equal; 1 where some differ or one is missing, or after an error, "
      "which one line on standard error describes."};
}

}  // namespace inflight::tool
