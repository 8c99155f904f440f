// SPDX-License-Identifier: Apache-2.0
// The bad texts of requests in the form that the executor reads, kept for the next requests with
// the same: making them looks at the whole vocabulary.
//
// Threads: any.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "inflight/bad_texts.h"
#include "inflight/tokenizer.h"

namespace inflight::serving {

class BadTextCache {
 public:
  // `tokenizer` is that which decodes.
  explicit BadTextCache(std::shared_ptr<const Tokenizer> tokenizer);

  // Null where all are empty. kInvalidArgument beyond the bounds of bad_texts.h.
  Result<std::shared_ptr<const BadTexts>> Get(std::span<const std::string> texts);

 private:
  struct Entry {
    std::vector<std::string> texts;
    std::shared_ptr<const BadTexts> made;
  };
  static constexpr size_t kMaxEntries = 16;  // of at most some MiB each

  std::shared_ptr<const BadTexts> Find(std::span<const std::string> texts);
  const std::shared_ptr<const TokenTexts>& Tokens();  // made by the first call

  const std::shared_ptr<const Tokenizer> tokenizer_;
  std::once_flag tokens_made_;
  std::shared_ptr<const TokenTexts> tokens_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // the latest used first
};

}  // namespace inflight::serving
