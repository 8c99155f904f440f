// SPDX-License-Identifier: Apache-2.0
// Models that give their memory back for a while (docs/sleep.md). Paths, query and the member
// is_sleeping are those of vllm-project/vllm/vllm/entrypoints/serve/sleep/api_router.py.
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "json/json_writer.h"
#include "protocol/http_listener/query.h"
#include "protocol/kserve/http/endpoints.h"
#include "protocol/kserve/http/response.h"

namespace inflight::kserve_http {
namespace {

using http_listener::HttpRequest;
using http_listener::HttpResponse;

struct AskedSleep {
  std::string model;  // empty: all
  SleepOptions options;
};
struct AskedWake {
  std::string model;
  WakeOptions options;
};

Status NotKnown(const std::string& name, std::string_view known) {
  return InvalidArgument(name, "is not known here; the query has " + std::string(known));
}

Result<std::string> ModelNamed(const std::string& value) {
  if (value.empty()) return InvalidArgument("model", "got '', must be a model's name");
  return value;
}

Result<int> LevelOf(const std::string& value) {
  int level = 0;
  const char* const end = value.data() + value.size();
  const auto parsed = std::from_chars(value.data(), end, level);
  if (parsed.ec == std::errc() && parsed.ptr == end && (level == 1 || level == 2)) return level;
  return InvalidArgument("level", "got '" + value +
                                      "', must be 1 (weights are kept in host memory) or 2 (they "
                                      "are read from the model's directory again)");
}

Result<SleepMode> ModeOf(const std::string& value) {
  if (value == "keep") return SleepMode::kKeep;
  if (value == "wait") return SleepMode::kWait;
  if (value == "abort") return SleepMode::kAbort;
  return InvalidArgument("mode", "got '" + value +
                                     "', must be keep (requests go on after waking), wait (those "
                                     "that run end first) or abort (all are cancelled)");
}

Result<AskedSleep> ParseSleep(const std::string& target) {
  AskedSleep asked;
  RETURN_IF_ERROR(http_listener::ForEachInQuery(
      target, [&](const std::string& name, const std::string& value) -> Status {
        if (name == "level") {
          ASSIGN_OR_RETURN(asked.options.level, LevelOf(value));
        } else if (name == "mode") {
          ASSIGN_OR_RETURN(asked.options.mode, ModeOf(value));
        } else if (name == "model") {
          ASSIGN_OR_RETURN(asked.model, ModelNamed(value));
        } else {
          return NotKnown(name, "level, mode and model");
        }
        return Status::Ok();
      }));
  return asked;
}

// Without tags all is taken again.
Result<AskedWake> ParseWake(const std::string& target) {
  AskedWake asked;
  WakeOptions tags = {.weights = false, .kv_cache = false};
  bool has_tags = false;
  RETURN_IF_ERROR(http_listener::ForEachInQuery(
      target, [&](const std::string& name, const std::string& value) -> Status {
        if (name == "model") {
          ASSIGN_OR_RETURN(asked.model, ModelNamed(value));
          return Status::Ok();
        }
        if (name != "tags") return NotKnown(name, "tags and model");
        has_tags = true;
        if (value != "weights" && value != "kv_cache")
          return InvalidArgument("tags", "got '" + value + "', must be weights or kv_cache");
        (value == "weights" ? tags.weights : tags.kv_cache) = true;
        return Status::Ok();
      }));
  if (has_tags) asked.options = tags;
  return asked;
}

Result<std::string> ParseModel(const std::string& target) {
  std::string model;
  RETURN_IF_ERROR(http_listener::ForEachInQuery(
      target, [&](const std::string& name, const std::string& value) -> Status {
        if (name != "model") return NotKnown(name, "model");
        ASSIGN_OR_RETURN(model, ModelNamed(value));
        return Status::Ok();
      }));
  return model;
}

// Whether one of the models sleeps, and what each has given back.
HttpResponse AnswerStates(const Context& context, const std::string& model) {
  const auto states = context.server.SleepStates(model);
  if (!states.ok()) return Error(states.status());
  bool is_sleeping = false;
  for (const serving::SleepingModel& each : *states) is_sleeping |= !each.state.is_awake;
  std::string body;
  json::Writer out(body);
  out.BeginObject();
  out.Key("is_sleeping").Bool(is_sleeping);
  out.Key("models").BeginArray();
  for (const serving::SleepingModel& each : *states) {
    out.BeginObject();
    out.Key("name").String(each.name);
    out.Key("version").String(each.version);
    out.Key("is_sleeping").Bool(!each.state.is_awake);
    out.Key("level").Int(each.state.level);
    out.Key("weight_bytes").Uint(each.state.weight_bytes);
    out.Key("kv_cache_bytes").Uint(each.state.kv_cache_bytes);
    out.Key("host_copy_bytes").Uint(each.state.host_copy_bytes);
    out.EndObject();
  }
  out.EndArray();
  out.EndObject();
  return Answer(200, kJson, std::move(body));
}

}  // namespace

HttpResponse HandleSleep(const Context& context, const Route&, const HttpRequest& request) {
  const auto asked = ParseSleep(request.target);
  if (!asked.ok()) return Error(asked.status());
  if (const Status slept = context.server.Sleep(asked->model, asked->options); !slept.ok())
    return Error(slept);
  return AnswerStates(context, asked->model);
}

HttpResponse HandleWakeUp(const Context& context, const Route&, const HttpRequest& request) {
  const auto asked = ParseWake(request.target);
  if (!asked.ok()) return Error(asked.status());
  if (const Status woken = context.server.WakeUp(asked->model, asked->options); !woken.ok())
    return Error(woken);
  return AnswerStates(context, asked->model);
}

HttpResponse HandleIsSleeping(const Context& context, const Route&, const HttpRequest& request) {
  const auto model = ParseModel(request.target);
  return model.ok() ? AnswerStates(context, *model) : Error(model.status());
}

}  // namespace inflight::kserve_http
