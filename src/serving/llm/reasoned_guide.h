// SPDX-License-Identifier: Apache-2.0
// The guide of an answer that may begin with reasoning or not, as the model likes: where it opens
// with the tag of reasoning it is free up to and with the tag that closes it, and guided from
// there on; else it is guided from its beginning.
#pragma once

#include <memory>
#include <string>

#include "inflight/bad_texts.h"
#include "inflight/guide.h"

namespace inflight::serving {

struct ReasonedGuideParts {
  std::string opening;                       // the tag
  std::shared_ptr<const Guide> with;         // begins behind the closing tag
  std::shared_ptr<const Guide> without;      // of the same vocabulary
  std::shared_ptr<const TokenTexts> tokens;  // of that vocabulary
};

std::shared_ptr<const Guide> MakeReasonedGuide(ReasonedGuideParts parts);

}  // namespace inflight::serving
