// SPDX-License-Identifier: Apache-2.0
// The gauges nv_trt_llm_* of a model on the server's metrics page: those that our own server's page
// shows (docs/metrics.md), set from the newest iteration.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "inflight/status.h"
#include "protocol/triton_backend/triton_api.h"
#include "serving/llm/llm_model.h"

namespace inflight::triton_backend {

class ModelGauges {
 public:
  // Sets them every `period_ms`; not at all for 0, where the executor keeps no records. An error
  // where the server has no metrics.
  static Result<std::unique_ptr<ModelGauges>> Make(std::shared_ptr<serving::LlmModel> model,
                                                   int64_t period_ms);
  ~ModelGauges();
  ModelGauges(const ModelGauges&) = delete;
  ModelGauges& operator=(const ModelGauges&) = delete;

 private:
  struct Gauge {
    const serving::IterationField* field;
    TRITONSERVER_Metric* metric;
  };

  explicit ModelGauges(std::shared_ptr<serving::LlmModel> model) : model_(std::move(model)) {}
  Status Add(const serving::IterationField& field);
  void Set() const;
  void Run(int64_t period_ms);

  const std::shared_ptr<serving::LlmModel> model_;
  std::vector<Gauge> gauges_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace inflight::triton_backend
