// SPDX-License-Identifier: Apache-2.0
// A version of a `tensorrt_llm` model in the server that loaded the plug-in: our model with what
// connects it to the server. All instances of the version share it, since one executor serves as
// many requests at once as its engine has room for.
#pragma once

#include <memory>
#include <string>

#include "base/worker_pool.h"
#include "inflight/status.h"
#include "protocol/triton_backend/cancel_watch.h"
#include "protocol/triton_backend/model_gauges.h"
#include "protocol/triton_backend/triton_api.h"
#include "serving/llm/llm_model.h"
#include "serving/repository/engine_loader.h"

namespace inflight::triton_backend {

class PluginModel {
 public:
  // Loads what the model's configuration and directory say. Errors name the key of the
  // configuration at fault.
  static Result<std::unique_ptr<PluginModel>> Load(TRITONBACKEND_Model* model,
                                                   const serving::EngineLoader& load);
  ~PluginModel();  // when the server has no request of it any more
  PluginModel(const PluginModel&) = delete;
  PluginModel& operator=(const PluginModel&) = delete;

  // Begins the request, which is then ours, or answers it with an error.
  void Execute(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request);

  Status CheckReady() const;

 private:
  PluginModel(std::unique_ptr<WorkerPool> text_pool, std::shared_ptr<serving::LlmModel> llm,
              int64_t cancel_period_ms)
      : text_pool_(std::move(text_pool)), llm_(std::move(llm)), watch_(cancel_period_ms) {}

  std::unique_ptr<WorkerPool> text_pool_;  // where the model makes guides
  std::shared_ptr<serving::LlmModel> llm_;
  std::unique_ptr<ModelGauges> gauges_;  // null where the server has no metrics
  CancelWatch watch_;
};

}  // namespace inflight::triton_backend
