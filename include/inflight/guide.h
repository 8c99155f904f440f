// SPDX-License-Identifier: Apache-2.0
// What the answer of a request must look like: a JSON schema, a regular expression, a choice or a
// grammar. GuideText is what a client says; a Guide is made
// of it and of a vocabulary once, and says for every sequence which tokens may come next.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "inflight/request.h"

namespace inflight {

enum class GuideKind : uint8_t {
  kJsonObject = 0,  // any JSON object; `text` is empty
  kJsonSchema = 1,  // `text` is the schema
  kRegex = 2,       // the whole answer matches `text`
  kChoice = 3,      // `text` is a JSON array of the texts of which the answer is one
  kEbnf = 4,        // `text` is a grammar (GBNF), whose first rule is `root`
};

struct GuideText {
  GuideKind kind = GuideKind::kJsonObject;
  std::string text = {};

  bool operator==(const GuideText&) const = default;
};

// Where one sequence stands. Threads: one at a time per object.
class GuideMatcher {
 public:
  virtual ~GuideMatcher() = default;

  // Sets the bit of each token that may come next, and clears all others. `allowed` has a bit for
  // each token of the vocabulary; end ids are the caller's. False: nothing may come but the end.
  virtual bool FillMask(std::span<uint32_t> allowed) = 0;  // [ceil(vocab_size / 32)]

  // Whether the text may end here.
  virtual bool MayEnd() const = 0;

  // The token joined the sequence. False: it was not allowed, and nothing is from now on.
  virtual bool Accept(TokenId token) = 0;
};

// Threads: immutable but for what it caches; any.
class Guide {
 public:
  virtual ~Guide() = default;
  virtual std::unique_ptr<GuideMatcher> NewMatcher() const = 0;
};

}  // namespace inflight
