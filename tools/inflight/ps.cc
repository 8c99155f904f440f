// SPDX-License-Identifier: Apache-2.0
// inflight ps: what a running server serves, and what it is doing.
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "asked_server.h"
#include "base/status_macros.h"
#include "command_line.h"
#include "commands.h"
#include "metrics_text.h"

namespace inflight::tool {
namespace {

using nlohmann::json;

const Usage kPsUsage = {
    "inflight ps [URL] [--metrics-url URL] [--json]",
    "Asks a running server which models it has, in which state, and how many requests run and "
    "wait. The exit status is 1 where\nno server answers."};

struct PsOptions {
  std::string url = "http://localhost:8000";
  std::string metrics_url = "auto";
  std::string api_key_file;
  bool json = false;
};

config::Schema<PsOptions> MakePsSchema() {
  config::Schema<PsOptions> schema;
  schema.Section("Ps");
  schema.Add(
      "url", [](PsOptions& o) -> auto& { return o.url; }, "Address of the server's HTTP port.");
  schema.Add(
      "metrics_url", [](PsOptions& o) -> auto& { return o.metrics_url; },
      "Address of its metrics port; auto is port 8002 of the same host, and empty asks for none.");
  schema.Add(
      "api_key_file", [](PsOptions& o) -> auto& { return o.api_key_file; },
      "File whose first line is a key of the server's, where it asks for one.");
  schema.Add(
      "json", [](PsOptions& o) -> auto& { return o.json; },
      "Prints JSON: models with name, version, state and reason; metrics.", config::Switch());
  return schema;
}

std::string Member(const json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// {name, version, state, reason} of each model: the index of the repository, or where that is
// closed to us the models of OpenAI's API.
Result<json> AskModels(AskedServer& asked, const std::string& url) {
  ASSIGN_OR_RETURN(auto response, asked.Ask(url + "/v2/repository/index", "POST"));
  json models = json::array();
  if (response.status == 200) {
    const json index = json::parse(response.body, nullptr, /*allow_exceptions=*/false);
    if (!index.is_array()) return InvalidArgument(url + ": does not answer as a server of models");
    for (const json& model : index)
      models.push_back({{"name", Member(model, "name")},
                        {"version", Member(model, "version")},
                        {"state", Member(model, "state")},
                        {"reason", Member(model, "reason")}});
    return models;
  }
  const int first_status = response.status;
  ASSIGN_OR_RETURN(response, asked.Ask(url + "/v1/models"));
  const json list = json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  const auto data = list.is_object() ? list.find("data") : list.end();
  if (response.status != 200 || data == list.end() || !data->is_array())
    return FailedPrecondition(fmt::format(
        "{}: answers {} to /v2/repository/index and {} to /v1/models{}", url, first_status,
        response.status, response.status == 401 ? "; --api-key-file names the file of a key" : ""));
  for (const json& model : *data)
    models.push_back(
        {{"name", Member(model, "id")}, {"version", ""}, {"state", "READY"}, {"reason", ""}});
  return models;
}

// Sums over all models.
json ReadMetrics(std::string_view page) {
  struct Row {
    const char* shown;
    std::string_view family;
    std::string_view label = {};  // empty: whatever its labels are
    std::string_view text = {};
  };
  constexpr Row kRows[] = {
      {"requests active", "nv_trt_llm_request_metrics", "request_type", "active"},
      {"requests waiting", "nv_trt_llm_request_metrics", "request_type", "waiting"},
      {"KV blocks used", "nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "used"},
      {"KV blocks", "nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "max"},
      {"tokens generated", "inflight_tokens_generated_total"},
      {"prompt tokens", "inflight_prompt_tokens_total"}};
  std::map<std::string, double> sums;
  for (const MetricSample& sample : ParseMetrics(page))
    for (const Row& row : kRows)
      if (sample.family == row.family && (row.label.empty() || sample.Has(row.label, row.text)))
        sums[row.shown] += sample.value;
  return sums;
}

std::string MetricsUrl(const PsOptions& options) {
  if (options.metrics_url != "auto") return options.metrics_url;
  const std::string origin = object_store::RequestTo(options.url).origin;
  const size_t colon = origin.find(':', origin.find_last_of("/]") + 1);  // none of an IPv6 address
  return origin.substr(0, colon) + ":8002";
}

// The address as an argument, as `top` and `sleep` have it.
Status TakeUrl(std::span<const std::string> positionals, PsOptions& options) {
  if (positionals.empty()) return Status::Ok();
  RETURN_IF_ERROR(NoPositionals(kPsUsage, positionals.subspan(1)));
  if (options.url != PsOptions().url)
    return UsageError(kPsUsage, fmt::format("the address stands there twice: '{}' and --url {}",
                                            positionals[0], options.url));
  options.url = positionals[0];
  return Status::Ok();
}

Status RunPs(PsOptions& options, std::span<const std::string> positionals) {
  RETURN_IF_ERROR(TakeUrl(positionals, options));
  ASSIGN_OR_RETURN(AskedServer asked, AskedServer::Of(options.api_key_file, /*patience_s=*/10));
  std::string url = options.url;
  while (url.ends_with('/')) url.pop_back();
  ASSIGN_OR_RETURN(const json models, AskModels(asked, url));
  json metrics = json::object();
  if (const std::string from = MetricsUrl(options); !from.empty()) {
    const auto page = asked.Ask(from.ends_with("/metrics") ? from : from + "/metrics");
    if (page.ok() && page->status == 200) metrics = ReadMetrics(page->body);
    if (!page.ok() && options.metrics_url != "auto") return page.status();
  }
  if (options.json) {
    fmt::print("{}\n", json({{"models", models}, {"metrics", metrics}})
                           .dump(1, ' ', false, json::error_handler_t::replace));
    return Status::Ok();
  }
  fmt::print("{:<40} {:<8} {:<12} {}\n", "MODEL", "VERSION", "STATE", "REASON");
  for (const json& model : models)
    fmt::print("{:<40} {:<8} {:<12} {}\n", Member(model, "name"), Member(model, "version"),
               Member(model, "state"), Member(model, "reason"));
  for (const auto& [name, value] : metrics.items())
    fmt::print("{:<40} {:.0f}\n", name, value.get<double>());
  return Status::Ok();
}

}  // namespace

int PsMain(Args args) { return RunCommand(args, kPsUsage, MakePsSchema(), RunPs); }

Manual PsManual() { return {kPsUsage, MakePsSchema().options()}; }

}  // namespace inflight::tool
