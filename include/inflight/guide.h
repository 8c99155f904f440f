// SPDX-License-Identifier: Apache-2.0
// What the text of an answer must be: JSON, a value of a JSON schema, a match of a regular
// expression, one of several texts, or a text of a grammar. A guide is compiled once for a
// vocabulary and read at every token: the mask of a step has the tokens after which the text can
// still become whole.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "inflight/bad_texts.h"
#include "inflight/request.h"
#include "inflight/status.h"

namespace inflight {

// A guide as a client gives it.
struct GuideSpec {
  enum class Kind : uint8_t {
    kJson,        // any JSON object; `text` is empty
    kJsonSchema,  // `text` is a JSON schema
    kRegex,       // `text` matches whole
    kChoice,      // `text` is a JSON array of the texts to choose from
    kGrammar,     // `text` is a grammar in GBNF or EBNF; the rule `root` is the whole
    kTagged  // `text` is a JSON object that docs/reference/structured-output.md, "Tagged" gives
  };
  Kind kind = Kind::kJson;
  std::string text = {};
  // The answer is free up to and with this text, and what follows is guided, such as the tag that
  // ends reasoning; empty: all of it is guided.
  std::string begins_after = {};

  bool operator==(const GuideSpec&) const = default;
};

// Where one sequence stands in its guide. Threads: one at a time per object, but for Clone.
class GuideState {
 public:
  virtual ~GuideState() = default;

  // The same place, for a beam that forks. Threads call it side by side while nobody changes this.
  virtual std::unique_ptr<GuideState> Clone() const = 0;

  // Sets the bit of each token that may come next and clears the others; `mask`
  // [ceil(num_tokens / 32)], bit t % 32 of word t / 32 is token t. Tokens without bytes, such as
  // those that end a sequence, are never set: whether the text may end here is CanEnd. False: the
  // mask could not be found within its bound of work, and is cleared.
  virtual bool Mask(std::span<uint32_t> mask) = 0;

  // The token came next. False, and nothing changed, where it may not.
  virtual bool Accept(TokenId token) = 0;

  // Whether the text so far is whole.
  virtual bool CanEnd() const = 0;
};

// A compiled guide. Threads: immutable; may be shared by any number of sequences.
class Guide {
 public:
  virtual ~Guide() = default;

  virtual std::unique_ptr<GuideState> Begin() const = 0;
  virtual int num_tokens() const = 0;  // of the vocabulary that it is for
  virtual uint64_t bytes() const = 0;  // of memory that it holds, the vocabulary's left out
};

// kInvalidArgument names the keyword, rule or place that is wrong or not supported, and what is
// supported; kResourceExhausted where the guide is past its bounds of memory and work.
Result<std::shared_ptr<const Guide>> MakeGuide(const GuideSpec& spec,
                                               std::shared_ptr<const TokenTexts> tokens);

}  // namespace inflight
