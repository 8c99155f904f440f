// SPDX-License-Identifier: Apache-2.0
#include "protocol/triton_backend/model_gauges.h"

#include <array>
#include <chrono>
#include <map>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "base/thread_boundary.h"
#include "base/thread_name.h"
#include "protocol/triton_backend/errors.h"

namespace inflight::triton_backend {
namespace {

// A family is the server's, not a model's: it is made with the first model that has a sample of it,
// and stays while the library does.
Result<TRITONSERVER_MetricFamily*> FamilyOf(serving::GaugeFamily family) {
  static std::mutex mutex;
  static auto& made = *new std::map<serving::GaugeFamily, TRITONSERVER_MetricFamily*>;
  const std::lock_guard lock(mutex);
  TRITONSERVER_MetricFamily*& found = made[family];
  if (found == nullptr) {
    const serving::GaugeFamilyInfo& info = serving::InfoOf(family);
    RETURN_IF_ERROR(FromTriton(TRITONSERVER_MetricFamilyNew(&found, TRITONSERVER_METRIC_KIND_GAUGE,
                                                            std::string(info.name).c_str(),
                                                            std::string(info.help).c_str()),
                               "TRITONSERVER_MetricFamilyNew"));
  }
  return found;
}

struct DeleteParameter {
  void operator()(TRITONSERVER_Parameter* parameter) const {
    TRITONSERVER_ParameterDelete(parameter);
  }
};
using ParameterPtr = std::unique_ptr<TRITONSERVER_Parameter, DeleteParameter>;

ParameterPtr Label(std::string_view name, std::string_view value) {
  return ParameterPtr(TRITONSERVER_ParameterNew(
      std::string(name).c_str(), TRITONSERVER_PARAMETER_STRING, std::string(value).c_str()));
}

}  // namespace

Result<std::unique_ptr<ModelGauges>> ModelGauges::Make(std::shared_ptr<serving::LlmModel> model,
                                                       int64_t period_ms) {
  std::unique_ptr<ModelGauges> gauges(new ModelGauges(std::move(model)));
  for (const serving::IterationField* const field :
       serving::FieldsOf(gauges->model_->iteration_profile())) {
    RETURN_IF_ERROR(gauges->Add(*field));
  }
  gauges->Set();
  if (period_ms > 0) {
    gauges->thread_ = std::thread([made = gauges.get(), period_ms] {
      NameThisThread("inflight-gauges");
      made->Run(period_ms);
    });
  }
  return gauges;
}

ModelGauges::~ModelGauges() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  stop_.notify_all();
  if (thread_.joinable()) thread_.join();
  for (const Gauge& gauge : gauges_) {
    LogFailure(TRITONSERVER_MetricDelete(gauge.metric), "TRITONSERVER_MetricDelete");
  }
}

Status ModelGauges::Add(const serving::IterationField& field) {
  ASSIGN_OR_RETURN(TRITONSERVER_MetricFamily* const family, FamilyOf(field.family));
  const std::array<ParameterPtr, 3> labels = {
      Label("model", model_->name()), Label("version", model_->version()),
      Label(serving::InfoOf(field.family).label, field.label_value)};
  std::array<const TRITONSERVER_Parameter*, labels.size()> given;
  for (size_t i = 0; i < labels.size(); ++i) given[i] = labels[i].get();
  TRITONSERVER_Metric* metric = nullptr;
  RETURN_IF_ERROR(FromTriton(TRITONSERVER_MetricNew(&metric, family, given.data(), given.size()),
                             "TRITONSERVER_MetricNew"));
  gauges_.push_back({.field = &field, .metric = metric});
  return Status::Ok();
}

void ModelGauges::Set() const {
  const serving::Iteration newest = model_->newest_iteration().iteration;
  for (const Gauge& gauge : gauges_) {
    const double value = gauge.field->value(newest, model_->iteration_profile());
    LogFailure(TRITONSERVER_MetricSet(gauge.metric, value), "TRITONSERVER_MetricSet");
  }
}

void ModelGauges::Run(int64_t period_ms) {
  std::unique_lock lock(mutex_);
  while (
      !stop_.wait_for(lock, std::chrono::milliseconds(period_ms), [&] { return is_stopping_; })) {
    lock.unlock();
    RunTurn("inflight-gauges", [this] { Set(); });
    lock.lock();
  }
}

}  // namespace inflight::triton_backend
