// SPDX-License-Identifier: Apache-2.0
// The `postprocessing` model: token ids -> text, each call by itself (the ensemble detokenizes
// incrementally instead). One whose configuration declares OUTPUT as TYPE_INT32, as cog-triton's
// does, passes the ids on. Behaviour: docs/reference/requests.md.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/worker_pool.h"
#include "inflight/tokenizer.h"
#include "serving/core/model.h"
#include "serving/llm/guide_cache.h"
#include "serving/pipelines/bad_text_cache.h"

namespace inflight::serving {

struct PostprocessingOptions {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<WorkerPool> text_pool;
  bool skip_special_tokens = true;
};

class PostprocessingModel : public Model {
 public:
  PostprocessingModel(::inference::ModelConfig config, std::string version,
                      PostprocessingOptions options, Clock& clock = Clock::System());

  void Infer(Request request, ResponseHandler handler) override;

  const std::shared_ptr<const Tokenizer>& tokenizer() const { return options_.tokenizer; }
  bool skip_special_tokens() const { return options_.skip_special_tokens; }
  bool passes_ids() const { return passes_ids_; }
  BadTextCache& bad_texts() { return bad_texts_; }
  GuideCache& guides() { return guides_; }

 private:
  Result<std::vector<Tensor>> Run(const Request& request) const;

  const PostprocessingOptions options_;
  const bool passes_ids_;
  BadTextCache bad_texts_;
  GuideCache guides_;
  Clock& clock_;
};

}  // namespace inflight::serving
