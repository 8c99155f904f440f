// SPDX-License-Identifier: Apache-2.0
#include "serving/pipelines/continued_guide.h"

#include <utility>

namespace inflight::serving {
namespace {

class Continued final : public Guide {
 public:
  Continued(std::shared_ptr<const Guide> guide, std::shared_ptr<const GuideState> place)
      : guide_(std::move(guide)), place_(std::move(place)) {}

  std::unique_ptr<GuideState> Begin() const override { return place_->Clone(); }
  int num_tokens() const override { return guide_->num_tokens(); }
  uint64_t bytes() const override { return guide_->bytes(); }

 private:
  const std::shared_ptr<const Guide> guide_;
  const std::shared_ptr<const GuideState> place_;  // which the guide outlives
};

}  // namespace

std::shared_ptr<const Guide> ContinuedGuide(std::shared_ptr<const Guide> guide,
                                            std::shared_ptr<const GuideState> place) {
  return std::make_shared<const Continued>(std::move(guide), std::move(place));
}

}  // namespace inflight::serving
