// SPDX-License-Identifier: Apache-2.0
#include "protocol/sagemaker/hosted_models.h"

#include <condition_variable>
#include <utility>

#include "base/control_bytes.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "json/json_reader.h"
#include "json/json_writer.h"
#include "protocol/kserve/http/response.h"
#include "protocol/sagemaker/model_place.h"

namespace inflight::sagemaker {
namespace {

using http_listener::HttpRequest;
using http_listener::HttpResponse;
using kserve_http::Answer;
using kserve_http::kJson;

constexpr std::chrono::milliseconds kPollInterval{500};
constexpr char kTargetModel[] = "X-Amzn-SageMaker-Target-Model";

HttpResponse Refuse(int status, std::string_view message) {
  return Answer(status, kJson, json::ErrorBody(message));
}

HttpResponse NotHosted(const std::string& name) {
  return Refuse(404, "model '" + name + "' is not loaded");
}

void WriteModel(const std::string& name, const std::string& url, json::Writer& out) {
  out.BeginObject();
  out.Key("modelName").String(name);
  out.Key("modelUrl").String(url);
  out.EndObject();
}

struct LoadRequest {
  std::string name;
  std::string url;
};

Result<LoadRequest> ParseLoad(const std::string& body) {
  ASSIGN_OR_RETURN(const json::Value root, json::Value::Parse(body));
  const auto [name, url] = root.Pick<2>({"model_name", "url"});
  if (!name || !url) return InvalidArgument("members 'model_name' and 'url' are needed");
  LoadRequest request;
  ASSIGN_OR_RETURN(request.name, name->AsString());
  ASSIGN_OR_RETURN(request.url, url->AsString());
  if (request.name.empty()) return InvalidArgument("model_name: it is empty");
  if (HasControlBytes(request.name)) {
    return InvalidArgument("model_name: it has control bytes; choose a name without");
  }
  return request;
}

HttpResponse LoadError(const Status& status) {
  if (status.code() == StatusCode::kAlreadyExists) return Refuse(409, status.message());
  return Refuse(status.reason() == Reason::kOutOfMemory ? 507 : 400, status.message());
}

}  // namespace

std::optional<HostedModels::Hosted> HostedModels::Find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = hosted_.find(name);
  if (found == hosted_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string> HostedModels::ServedName(const std::string& name) const {
  const auto hosted = Find(name);
  if (!hosted) return std::nullopt;
  return hosted->served_name;
}

bool HostedModels::IsReady(const Hosted& hosted) const {
  const auto model = server_.FindModel(hosted.served_name, /*version=*/"");
  return model.ok() && (*model)->ready();
}

// A model that is not ready is an empty object: so the platform knows it.
HttpResponse HostedModels::List() const {
  std::map<std::string, Hosted> hosted;
  {
    const std::lock_guard lock(mutex_);
    hosted = hosted_;
  }
  std::string body;
  json::Writer out(body);
  out.BeginObject().Key("models").BeginArray();
  for (const auto& [name, model] : hosted) {
    if (IsReady(model)) {
      WriteModel(name, model.url, out);
    } else {
      out.BeginObject().EndObject();
    }
  }
  out.EndArray().EndObject();
  return Answer(200, kJson, std::move(body));
}

HttpResponse HostedModels::Describe(const std::string& name) const {
  const auto hosted = Find(name);
  if (!hosted) return NotHosted(name);
  std::string body;
  json::Writer out(body);
  WriteModel(name, hosted->url, out);
  return Answer(200, kJson, std::move(body));
}

HttpResponse HostedModels::Load(const HttpRequest& request) {
  const auto parsed = ParseLoad(*request.body);
  if (!parsed.ok()) return Refuse(400, parsed.status().message());
  const auto& [name, url] = *parsed;
  if (Find(name)) return Refuse(409, "model '" + name + "' is loaded already");
  const auto place = FindModelPlace(url);
  if (!place.ok()) return LoadError(place.status());
  const std::string* target = request.FindHeader(kTargetModel);
  const Hosted hosted{.url = url,
                      .served_name = target == nullptr ? name : *target,
                      .repository = place->repository.string()};
  if (const Status status = Serve(hosted, place->directory); !status.ok()) {
    logging::Error("hosted model not loaded",
                   {{"model", name}, {"url", url}, {"reason", status.message()}});
    return LoadError(status);
  }
  const std::lock_guard lock(mutex_);
  hosted_.emplace(name, hosted);
  return Answer(200, kJson);
}

Status HostedModels::Serve(const Hosted& hosted, const std::string& directory) {
  RETURN_IF_ERROR(server_.AddRepository(
      {.root = hosted.repository, .model = hosted.served_name, .directory = directory}));
  Status status = server_.LoadModel(hosted.served_name, {});
  if (!status.ok()) server_.RemoveRepository(hosted.repository);
  return status;
}

HttpResponse HostedModels::Unload(const std::string& name, const std::stop_token& stop) {
  const auto hosted = Find(name);
  if (!hosted) return NotHosted(name);
  const Status status = server_.UnloadModel(hosted->served_name, /*with_steps=*/true);
  if (!status.ok()) return Refuse(400, status.message());
  const auto deadline = std::chrono::steady_clock::now() + unload_timeout_;
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  while (!IsUnloaded(*hosted)) {
    if (stop.stop_requested() || std::chrono::steady_clock::now() >= deadline) {
      return Refuse(500, "model '" + name + "' still answers requests, unload it again");
    }
    never.wait_for(lock, stop, std::min(kPollInterval, unload_timeout_), [] { return false; });
  }
  server_.RemoveRepository(hosted->repository);
  const std::lock_guard guard(mutex_);
  hosted_.erase(name);
  return Answer(200, kJson);
}

// Also when its directory has gone, and with it its place in the index.
bool HostedModels::IsUnloaded(const Hosted& hosted) const {
  for (const serving::IndexEntry& entry : server_.Index(/*ready_only=*/false)) {
    if (entry.name == hosted.served_name && !entry.state.empty() && entry.state != "UNAVAILABLE") {
      return false;
    }
  }
  return true;
}

}  // namespace inflight::sagemaker
