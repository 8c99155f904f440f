// SPDX-License-Identifier: Apache-2.0
// inflight sleep and inflight wake: a running server gives the memory of models back, and takes it
// again.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "asked_server.h"
#include "base/status_macros.h"
#include "command_line.h"
#include "commands.h"

namespace inflight::tool {
namespace {

using nlohmann::json;

constexpr int kPatienceS = 24 * 3600;  // for requests that run, and for weights that are read

const Usage kSleepUsage = {
    "inflight sleep [URL] [--model NAME] [--level 1] [--mode keep]",
    "Has a server that runs with --enable-sleep-mode give the memory of weights and KV cache back, "
    "and returns when that is done.\nURL is http://localhost:8000 where it is left out. Requests "
    "wait until `inflight wake`."};
const Usage kWakeUsage = {"inflight wake [URL] [--model NAME]",
                          "Has a server take the memory again that `inflight sleep` gave back; "
                          "requests go on.\nURL is http://localhost:8000 where it is left out."};

struct CallOptions {
  std::string model;
  int level = 1;
  std::string mode = "keep";
  std::string api_key_file;
};

void AddCall(config::Schema<CallOptions>& schema) {
  schema.Add(
      "model", [](CallOptions& o) -> auto& { return o.model; },
      "An LLM, or a model that runs one; all where it is left out.");
  schema.Add(
      "api_key_file", [](CallOptions& o) -> auto& { return o.api_key_file; },
      "File whose first line is a key of the server's with the role control, where it asks for "
      "one.");
}

config::Schema<CallOptions> MakeSleepSchema() {
  config::Schema<CallOptions> schema;
  schema.Section("Sleep");
  AddCall(schema);
  schema.Add(
      "level", [](CallOptions& o) -> auto& { return o.level; },
      "1 keeps the weights in host memory, 2 reads them from the model's directory again.",
      config::Range(1, 2));
  schema.Add(
      "mode", [](CallOptions& o) -> auto& { return o.mode; },
      "What becomes of requests: they go on after waking, those that run end first, or all are "
      "cancelled.",
      config::OneOf({"keep", "wait", "abort"}));
  return schema;
}

config::Schema<CallOptions> MakeWakeSchema() {
  config::Schema<CallOptions> schema;
  schema.Section("Wake");
  AddCall(schema);
  return schema;
}

// What the server says of a call that it does not serve, or refuses.
Status RefusalOf(const std::string& url, const object_store::HttpResponse& response) {
  const json body = json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  const auto error = body.is_object() ? body.find("error") : body.end();
  const std::string words =
      error != body.end() && error->is_string() ? error->get<std::string>() : response.body;
  return FailedPrecondition(fmt::format("{}: answers {}: {}", url, response.status, words));
}

// A line for each model.
void PrintStates(const json& models) {
  constexpr double kGiB = 1 << 30;
  for (const json& model : models)
    fmt::print(
        "{:<40} {:<8} level {}  weights {:.2f} GiB, KV cache {:.2f} GiB given back; copy in "
        "host memory {:.2f} GiB\n",
        model.value("name", ""), model.value("is_sleeping", false) ? "sleeps" : "awake",
        model.value("level", 0), model.value("weight_bytes", 0.0) / kGiB,
        model.value("kv_cache_bytes", 0.0) / kGiB, model.value("host_copy_bytes", 0.0) / kGiB);
}

Status Call(const Usage& usage, const CallOptions& options,
            std::span<const std::string> positionals, const char* path, object_store::Pairs query) {
  if (positionals.size() > 1) return UsageError(usage, "one URL, of the server's HTTP port");
  std::string url = positionals.empty() ? "http://localhost:8000" : positionals.front();
  while (url.ends_with('/')) url.pop_back();
  ASSIGN_OR_RETURN(AskedServer server, AskedServer::Of(options.api_key_file, kPatienceS));
  if (!options.model.empty()) query.emplace_back("model", options.model);
  url += path;
  if (!query.empty()) url += "?" + object_store::EncodeQuery(query);
  ASSIGN_OR_RETURN(const auto response, server.Ask(url, "POST"));
  if (response.status != 200) return RefusalOf(url, response);
  const json body = json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  if (!body.is_object() || !body.contains("models"))
    return FailedPrecondition(url + ": does not answer as a server of models");
  PrintStates(body["models"]);
  return Status::Ok();
}

Status RunSleep(const CallOptions& options, std::span<const std::string> positionals) {
  return Call(kSleepUsage, options, positionals, "/sleep",
              {{"level", std::to_string(options.level)}, {"mode", options.mode}});
}

Status RunWake(const CallOptions& options, std::span<const std::string> positionals) {
  return Call(kWakeUsage, options, positionals, "/wake_up", {});
}

}  // namespace

int SleepMain(Args args) { return RunCommand(args, kSleepUsage, MakeSleepSchema(), RunSleep); }
int WakeMain(Args args) { return RunCommand(args, kWakeUsage, MakeWakeSchema(), RunWake); }

Manual SleepManual() { return {kSleepUsage, MakeSleepSchema().options()}; }
Manual WakeManual() { return {kWakeUsage, MakeWakeSchema().options()}; }

}  // namespace inflight::tool
