// SPDX-License-Identifier: Apache-2.0
// inflight doctor: what of this machine stands in a server's way.
#include <fmt/format.h>

#include <cstdio>

#include "base/status_macros.h"
#include "command_line.h"
#include "commands.h"
#include "doctor/findings.h"
#include "json/json_writer.h"
#include "serve_options.h"

namespace inflight::tool {
namespace {

using doctor::Finding;
using doctor::Verdict;

struct DoctorOptions {
  bool json = false;
  std::string address = "127.0.0.1";
  int http_port = ServeOptions().http.port;
  int grpc_port = ServeOptions().grpc.port;
  int metrics_port = ServeOptions().metrics.listener.port;
};

const Usage kDoctorUsage = {
    "inflight doctor [--json] [--http-port N] [--grpc-port N] [--metrics-port N]",
    "Looks at what a server meets on this machine, as the user who asks: instruction sets, memory, "
    "limits, ports, libraries,\nGPU; says what to change. The exit status is 1 where a server "
    "would not start, or fail under load."};

config::Schema<DoctorOptions> MakeDoctorSchema() {
  config::Schema<DoctorOptions> schema;
  schema.Section("Doctor");
  schema.Add(
      "json", [](DoctorOptions& o) -> auto& { return o.json; },
      "Prints JSON: findings with subject, verdict (ok, advice, fault), found, remedy; and how "
      "many "
      "are advice and faults.",
      config::Switch());
  schema.Add(
      "address", [](DoctorOptions& o) -> auto& { return o.address; },
      "IP address at which the ports are tried.");
  schema.Add(
      "http_port", [](DoctorOptions& o) -> auto& { return o.http_port; },
      "Port for HTTP; 0 looks at none.", config::Range(0, 65535));
  schema.Add(
      "grpc_port", [](DoctorOptions& o) -> auto& { return o.grpc_port; },
      "Port for gRPC; 0 looks at none.", config::Range(0, 65535));
  schema.Add(
      "metrics_port", [](DoctorOptions& o) -> auto& { return o.metrics_port; },
      "Port for metrics; 0 looks at none.", config::Range(0, 65535));
  return schema;
}

struct Counts {
  int advice = 0;
  int faults = 0;
};

Counts CountOf(const std::vector<Finding>& findings) {
  Counts counts;
  for (const Finding& finding : findings) {
    counts.advice += finding.verdict == Verdict::kAdvice ? 1 : 0;
    counts.faults += finding.verdict == Verdict::kFault ? 1 : 0;
  }
  return counts;
}

void PrintJson(const std::vector<Finding>& findings, const Counts& counts) {
  std::string text;
  inflight::json::Writer writer(text);
  writer.BeginObject().Key("findings").BeginArray();
  for (const Finding& finding : findings) {
    writer.BeginObject();
    writer.Key("subject").String(finding.subject);
    writer.Key("verdict").String(doctor::Name(finding.verdict));
    writer.Key("found").String(finding.found);
    if (!finding.remedy.empty()) writer.Key("remedy").String(finding.remedy);
    writer.EndObject();
  }
  writer.EndArray().Key("advice").Int(counts.advice).Key("faults").Int(counts.faults).EndObject();
  fmt::print("{}\n", text);
}

void PrintText(const std::vector<Finding>& findings, const Counts& counts) {
  for (const Finding& finding : findings) {
    fmt::print("{:<7} {:<14} {}\n", doctor::Name(finding.verdict), finding.subject, finding.found);
    if (!finding.remedy.empty()) fmt::print("        {:<14} -> {}\n", "", finding.remedy);
  }
  fmt::print("faults: {}, advice: {}\n", counts.faults, counts.advice);
}

}  // namespace

int DoctorMain(Args args) {
  Counts counts;
  const auto look = [&counts](DoctorOptions& options,
                              std::span<const std::string> positionals) -> Status {
    RETURN_IF_ERROR(NoPositionals(kDoctorUsage, positionals));
    if (!doctor::IsIpAddress(options.address)) {
      return InvalidArgument("address: got '" + options.address +
                             "', an IP address is needed, such as 127.0.0.1 or ::1");
    }
    std::vector<doctor::Port> ports;
    const auto add = [&ports](const char* name, const char* option, int number) {
      if (number != 0) ports.push_back({name, option, number, {}});
    };
    add("HTTP", "--http-port", options.http_port);
    add("gRPC", "--grpc-port", options.grpc_port);
    add("metrics", "--metrics-port", options.metrics_port);
    const auto findings = doctor::Judge(doctor::ReadMachine("/", options.address, ports));
    counts = CountOf(findings);
    if (options.json)
      PrintJson(findings, counts);
    else
      PrintText(findings, counts);
    return Status::Ok();
  };
  const int status = RunCommand(args, kDoctorUsage, MakeDoctorSchema(), look);
  return status != 0 || counts.faults > 0 ? 1 : 0;
}

Manual DoctorManual() {
  return {kDoctorUsage, MakeDoctorSchema().options(),
          "0, or 1 where there is a fault, or after an error, which one line on standard error "
          "describes."};
}

}  // namespace inflight::tool
