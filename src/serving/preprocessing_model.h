// SPDX-License-Identifier: Apache-2.0
// The `preprocessing` model: text -> token ids, words -> word lists. Behaviour:
// docs/protocol/models.md.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/worker_pool.h"
#include "contract/word_list.h"
#include "serving/model.h"
#include "tokenizer/tokenizer.h"

namespace inflight::serving {

struct PreprocessingOptions {
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::shared_ptr<WorkerPool> text_pool;
  bool add_special_tokens = true;
  bool pad_is_eos = false;  // up to 0.10 the pad token is always the end token
};

class PreprocessingModel : public Model {
 public:
  PreprocessingModel(::inference::ModelConfig config, std::string version,
                     PreprocessingOptions options, Clock& clock = Clock::System());

  void Infer(Request request, ResponseHandler handler) override;

  // The steps, also for the ensemble. Errors name the tensor as the client calls it.
  // The first string of `query`, a tensor of one row, in tokens.
  Result<std::vector<TokenId>> EncodePrompt(const Tensor& query) const;
  // One word per string; words without tokens (the empty string of old clients) are left out.
  Result<contract::Words> EncodeWords(const Tensor& words) const;
  // Refuses what is not built: any bias word that is not empty, any decoder prompt.
  Status CheckUnsupportedText(const Tensor& tensor) const;

  const tokenizer::Tokenizer& tokenizer() const { return *options_.tokenizer; }
  WorkerPool& text_pool() const { return *options_.text_pool; }

 private:
  Result<std::vector<Tensor>> Run(const Request& request) const;

  const PreprocessingOptions options_;
  Clock& clock_;
};

}  // namespace inflight::serving
