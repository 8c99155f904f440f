// SPDX-License-Identifier: Apache-2.0
// The guides of requests (inflight/guide.h), compiled for a model's vocabulary and kept for the
// next requests with the same: making one looks at the whole vocabulary, and may take a while. Of
// requests that ask for the same at once the first makes it, and the others wait.
//
// What a guide holds is charged to the client that had it made, for as long as it is kept or used.
// It grows as it is used: what it has grown by is charged, and counts for the bounds of what is
// kept, when a request asks for it again or a new guide is kept. A request for one that is kept
// also looks at one of the others, each in its turn.
//
// Threads: any.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/memory_account.h"
#include "inflight/guide.h"
#include "inflight/tokenizer.h"

namespace inflight::serving {

// Whose texts a guide is made of.
struct GuideTokens {
  int num_tokens = 0;  // the model's; those that the tokenizer has not are left out
  std::vector<TokenId> shown =
      {};  // special tokens whose texts are part of the answer's, ascending

  bool operator==(const GuideTokens&) const = default;
};

class GuideCache {
 public:
  using Maker = Result<std::shared_ptr<const Guide>>(const GuideSpec& spec,
                                                     std::shared_ptr<const TokenTexts> tokens);

  static constexpr size_t kMaxEntries = 256;
  static constexpr uint64_t kMaxBytes = uint64_t{256} << 20;  // of all that are kept
  static constexpr size_t kMaxVocabularies = 8;

  // The tokenizer is that which decodes; where it is to be loaded, by the first guide.
  explicit GuideCache(std::shared_ptr<const Tokenizer> tokenizer, Maker* make = &MakeGuide);
  explicit GuideCache(std::function<Result<std::shared_ptr<const Tokenizer>>()> load_tokenizer);

  // Whether Get would find it, or why it cannot be made: many requests may ask for the same.
  bool Has(const GuideSpec& spec, const GuideTokens& tokens);

  // Errors are MakeGuide's, but that all are kInvalidArgument; kResourceExhausted: `memory` has no
  // room. With an `opening` what spec.begins_after ends is there only where the text begins with
  // that (reasoned_guide.h).
  Result<std::shared_ptr<const Guide>> Get(const GuideSpec& spec, const GuideTokens& tokens,
                                           const std::shared_ptr<AccountShare>& memory,
                                           const std::string& opening = {});

 private:
  class Making;
  struct Entry {
    GuideSpec spec;
    GuideTokens tokens;
    Result<std::shared_ptr<const Guide>> made;  // or why it could not be
    uint64_t own_bytes = 0;                     // beside the guide, which may grow
    uint64_t counted_bytes = 0;                 // of bytes_: of both, when it was last looked at
  };
  using Entries = std::list<Entry>;
  struct Vocabulary {
    GuideTokens tokens;
    std::shared_ptr<const TokenTexts> texts;
  };

  Result<std::shared_ptr<const Guide>> GetOne(const GuideSpec& spec, const GuideTokens& tokens,
                                              const std::shared_ptr<AccountShare>& memory);
  Result<std::shared_ptr<const TokenTexts>> TextsOf(const GuideTokens& tokens);
  void Keep(Entry entry);
  // Under `mutex_`. What they put into `forgotten` should end without the lock.
  Entries::iterator Find(const GuideSpec& spec, const GuideTokens& tokens);  // now the first
  // Charges and counts what the guide holds by now, or forgets it: its client has no room for it.
  void Look(Entries::iterator entry, Entries& forgotten);
  void LookAtNext(Entries& forgotten);
  void DropOldest(Entries& forgotten);  // what is past the bounds
  void Forget(Entries::iterator entry, Entries& forgotten);

  static size_t HashOf(const GuideSpec& spec, const GuideTokens& tokens);
  static bool IsCharged(const Entry& entry);
  static uint64_t BytesOf(const Entry& entry);

  const std::function<Result<std::shared_ptr<const Tokenizer>>()> load_tokenizer_;
  Maker* const make_;
  std::mutex mutex_;
  Entries entries_;  // the latest used first
  std::unordered_multimap<size_t, Entries::iterator> by_hash_;
  uint64_t bytes_ = 0;                            // counted of all entries
  Entries::iterator next_look_ = entries_.end();  // of LookAtNext
  std::vector<const Making*> makings_;            // of threads that make a guide
  std::condition_variable has_made_;              // one of these, or failed to
  std::mutex vocabularies_mutex_;
  std::shared_ptr<const Tokenizer> tokenizer_;  // null: not loaded yet
  std::list<Vocabulary> vocabularies_;          // the latest used first
};

}  // namespace inflight::serving
