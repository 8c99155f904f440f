// SPDX-License-Identifier: Apache-2.0
#include "serving/pipelines/continued_guide.h"

#include <utility>
#include <vector>

namespace inflight::serving {
namespace {

class Continued final : public Guide {
 public:
  Continued(std::shared_ptr<const Guide> guide, std::span<const TokenId> answered)
      : guide_(std::move(guide)), answered_(answered.begin(), answered.end()) {}

  std::unique_ptr<GuideState> Begin() const override {
    std::unique_ptr<GuideState> state = guide_->Begin();
    for (const TokenId token : answered_) state->Accept(token);
    return state;
  }
  int num_tokens() const override { return guide_->num_tokens(); }
  uint64_t bytes() const override {
    return guide_->bytes() + answered_.capacity() * sizeof(TokenId);
  }

 private:
  const std::shared_ptr<const Guide> guide_;
  const std::vector<TokenId> answered_;
};

}  // namespace

std::shared_ptr<const Guide> ContinuedGuide(std::shared_ptr<const Guide> guide,
                                            std::span<const TokenId> answered) {
  if (guide == nullptr || answered.empty()) return guide;
  return std::make_shared<const Continued>(std::move(guide), answered);
}

}  // namespace inflight::serving
