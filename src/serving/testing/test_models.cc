// SPDX-License-Identifier: Apache-2.0
#include "serving/testing/test_models.h"

#include "base/check.h"

namespace inflight::serving {

TestModels::TestModels(const GeneratedConfigOptions& options, bool threaded, ExecutorLimits limits)
    : executor(std::make_shared<FakeExecutor>(limits, threaded)) {
  const auto tokenizer = Tokenizer::FromJson(ByteTokenizerJson());
  CHECK(tokenizer.ok());
  preprocessing = std::make_shared<PreprocessingModel>(
      PreprocessingConfig(options), "1",
      PreprocessingOptions{.tokenizer = *tokenizer,
                           .text_pool = text_pool,
                           .vocab_size = executor->limits().vocab_size});
  llm = std::make_shared<LlmModel>(
      LlmConfig(options), "1", LlmBackend{.steps = nullptr, .executor = executor, .end_ids = {257}},
      contract::LlmRequestDefaults{.decoupled = options.decoupled,
                                   .exclude_input_in_output = options.exclude_input_in_output});
  postprocessing = std::make_shared<PostprocessingModel>(
      PostprocessingConfig(options), "1",
      PostprocessingOptions{.tokenizer = *tokenizer, .text_pool = text_pool});
  auto made = PipelineModel::Create(PipelineModel::Kind::kEnsemble, EnsembleConfig(options), "1",
                                    {preprocessing, llm, postprocessing});
  CHECK(made.ok());
  ensemble = *made;
}

}  // namespace inflight::serving
