// SPDX-License-Identifier: Apache-2.0
#include "protocol/triton_backend/plugin_model.h"

#include <charconv>
#include <cstdint>
#include <exception>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/log_table.h"
#include "base/status_macros.h"
#include "contract/key_report.h"
#include "protocol/triton_backend/errors.h"
#include "protocol/triton_backend/request_call.h"
#include "protocol/triton_backend/request_reader.h"
#include "serving/configuration/model_config.h"
#include "serving/repository/llm_loader.h"

namespace inflight::triton_backend {
namespace {

using ::inference::ModelConfig;

constexpr std::string_view kCancelPeriodKey = "cancellation_check_period_ms";

Result<std::string> ConfigOf(TRITONBACKEND_Model* model) {
  TRITONSERVER_Message* message = nullptr;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelConfig(model, /*config_version=*/1, &message),
                             "TRITONBACKEND_ModelConfig"));
  const char* text = nullptr;
  size_t num_bytes = 0;
  const Status read = FromTriton(TRITONSERVER_MessageSerializeToJson(message, &text, &num_bytes),
                                 "TRITONSERVER_MessageSerializeToJson");
  std::string json = read.ok() ? std::string(text, num_bytes) : "";
  LogFailure(TRITONSERVER_MessageDelete(message), "TRITONSERVER_MessageDelete");
  RETURN_IF_ERROR(read);
  return json;
}

Result<serving::Candidate> CandidateOf(TRITONBACKEND_Model* model) {
  serving::Candidate candidate;
  TRITONBACKEND_ArtifactType type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  const char* location = nullptr;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelRepository(model, &type, &location),
                             "TRITONBACKEND_ModelRepository"));
  candidate.dir = location;
  ASSIGN_OR_RETURN(const std::string json, ConfigOf(model));
  ASSIGN_OR_RETURN(candidate.parsed,
                   serving::ParseModelConfigJson(json, serving::UnknownMembers::kIgnored));
  candidate.kind = serving::KindOf(candidate.parsed.config);
  return candidate;
}

// This library is one model of the five: what the others are made of is in other backends.
Status CheckKind(const serving::Candidate& candidate) {
  const bool has_length = serving::HasInput(candidate.parsed.config, "request_output_len");
  if (candidate.kind == serving::ModelKind::kLlm && has_length) return Status::Ok();
  return InvalidArgument(
      "model '" + candidate.parsed.config.name() + "': backend '" +
      candidate.parsed.config.backend() +
      "' runs tensorrt_llm models, which have the inputs input_ids and "
      "request_output_len and the output output_ids; this configuration has not");
}

// Cancels are looked for as often as this; where the key is left open, ten times as often as the
// back-end of old, which an idle server does not notice.
Result<int64_t> CancelPeriodOf(const ModelConfig& config, contract::KeyReport& keys) {
  constexpr int64_t kDefaultMs = 10;
  constexpr int64_t kMaxMs = 3'600'000;
  const auto text = serving::FindParameter(config, std::string(kCancelPeriodKey));
  if (!text) return kDefaultMs;
  int64_t period_ms = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), period_ms);
  if (error != std::errc() || end != text->data() + text->size() || period_ms < 1 ||
      period_ms > kMaxMs) {
    return InvalidArgument(kCancelPeriodKey, "got \"" + *text + "\", must be from 1 to " +
                                                 std::to_string(kMaxMs) + " milliseconds");
  }
  for (contract::KeyLine& line : keys) {
    if (line.key != kCancelPeriodKey) continue;
    line.effect = contract::KeyEffect::kHonoured;
    line.value = *text;
    line.reason.clear();
  }
  return period_ms;
}

}  // namespace

Result<std::unique_ptr<PluginModel>> PluginModel::Load(TRITONBACKEND_Model* model,
                                                       const serving::EngineLoader& load) {
  uint64_t version = 0;
  RETURN_IF_ERROR(
      FromTriton(TRITONBACKEND_ModelVersion(model, &version), "TRITONBACKEND_ModelVersion"));
  ASSIGN_OR_RETURN(const serving::Candidate candidate, CandidateOf(model));
  RETURN_IF_ERROR(CheckKind(candidate));
  contract::KeyReport keys;
  auto text_pool = std::make_unique<WorkerPool>(/*num_threads=*/1, "text");
  // The model's own reference holds nothing: the pool goes first, so that no task outlives it.
  const std::shared_ptr<WorkerPool> lent(std::shared_ptr<void>(), text_pool.get());
  auto loaded = serving::LoadLlmModel(
      candidate, std::to_string(version),
      {.executor = {}, .end_ids_are_alike = true, .text_pool = lent}, load, keys);
  const auto cancel_period_ms = CancelPeriodOf(candidate.parsed.config, keys);
  logging::Table("configuration of model " + candidate.parsed.config.name() + " version " +
                     std::to_string(version),
                 contract::ToTable(keys));
  RETURN_IF_ERROR(loaded.status());
  RETURN_IF_ERROR(cancel_period_ms.status());

  std::unique_ptr<PluginModel> made(
      new PluginModel(std::move(text_pool), std::move(loaded->model), *cancel_period_ms));
  auto gauges = ModelGauges::Make(made->llm_, loaded->stats_check_period_ms);
  if (gauges.ok()) {
    made->gauges_ = std::move(*gauges);
  } else {
    logging::Warning("the server shows no gauges of the model",
                     {{"model", made->llm_->name()}, {"reason", gauges.status().message()}});
  }
  return made;
}

// Guides that are being made are given to the executor, which ends all that it still has, before
// what its sinks call goes.
PluginModel::~PluginModel() {
  text_pool_.reset();
  llm_->executor().Shutdown(/*drain_ms=*/0);
}

void PluginModel::Execute(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request) {
  const auto call = std::make_shared<RequestCall>(instance, request, watch_);
  auto read = ReadRequest(request);
  const auto cancel = read.ok() ? read->cancel : std::make_shared<serving::CancelToken>();
  if (const Status opened = call->Open(cancel); !opened.ok()) {
    logging::Error("a request ends without a response: " + opened.message());
    LogFailure(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL),
               "TRITONBACKEND_RequestRelease");
    return;
  }
  if (!read.ok()) {
    call->OnResponse({.status = read.status(), .is_final = true});
    return;
  }
  call->NoteStart();
  llm_->Infer(std::move(*read),
              [call](const serving::Response& response) { call->OnResponse(response); });
}

Status PluginModel::CheckReady() const {
  if (llm_->ready()) return Status::Ok();
  return Unavailable("model '" + llm_->name() +
                     "': its executor had a fault and takes no requests; restart the server");
}

}  // namespace inflight::triton_backend
