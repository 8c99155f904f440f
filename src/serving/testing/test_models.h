// SPDX-License-Identifier: Apache-2.0
// For tests: the four models over a FakeExecutor and the byte tokenizer.
#pragma once

#include <memory>

#include "base/worker_pool.h"
#include "serving/configuration/generated_config.h"
#include "serving/llm/llm_model.h"
#include "serving/pipelines/pipeline_model.h"
#include "serving/pipelines/postprocessing_model.h"
#include "serving/pipelines/preprocessing_model.h"
#include "serving/testing/fake_executor.h"
#include "serving/testing/test_requests.h"

namespace inflight::serving {

// The models as `inflight serve DIR` makes them.
struct TestModels {
  std::shared_ptr<FakeExecutor> executor;
  std::shared_ptr<WorkerPool> text_pool = WorkerPool::MakeShared(1, "text");
  std::shared_ptr<PreprocessingModel> preprocessing;
  std::shared_ptr<LlmModel> llm;
  std::shared_ptr<PostprocessingModel> postprocessing;
  std::shared_ptr<PipelineModel> ensemble;

  explicit TestModels(const GeneratedConfigOptions& options = {.max_batch_size = 8},
                      bool threaded = false, ExecutorLimits limits = FakeExecutor::SmallLimits());
  ~TestModels() { executor->Stop(); }  // its sinks hold the models, and they hold it
  TestModels(const TestModels&) = delete;
  TestModels& operator=(const TestModels&) = delete;
};

}  // namespace inflight::serving
