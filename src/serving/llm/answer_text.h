// SPDX-License-Identifier: Apache-2.0
// The texts of one request's answer: ids of each sequence become text incrementally, and end with
// the first stop word or before it.
//
// Threads: that of the request's responses.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/request.h"
#include "inflight/tokenizer.h"
#include "serving/core/request.h"
#include "serving/llm/stop_text.h"

namespace inflight::serving {

// The request parameter that says whether the stop word that ends a text stays in it, as upstream's
// do; true where it is not given. kInvalidArgument when it is no boolean.
inline constexpr std::string_view kIncludeStopWords = "include_stop_str_in_output";
Result<bool> IncludesStopWords(const Parameters& parameters);

struct AnswerTextOptions {
  std::shared_ptr<const Tokenizer> tokenizer;
  bool skip_special_tokens = true;
  std::vector<TokenId> shown_special_tokens = {};  // that are not skipped
  std::vector<TokenId> prompt;  // stands before the text of an answer that does not stream
  int num_sequences = 1;
  std::vector<std::string> stop_words;
  bool trims_stop_words = false;  // the text ends before the stop word
  bool accumulates = false;       // each text is all of its sequence so far
};

class AnswerText {
 public:
  explicit AnswerText(AnswerTextOptions options);

  // The text of the next response of a sequence; no piece ends inside a character. Of a beam search
  // the texts of all beams, whole each time.
  std::vector<std::string> Append(const inflight::Response& response);

  // Why the sequences of that response ended: a text that a stop word cut ended there, whatever its
  // ids went on to do.
  const std::vector<FinishReason>& finish_reasons() const { return finish_reasons_; }

  // How many of the response's tokens the text was read from: those behind the one that ended a
  // stop word are not. Of a response without beams; set by Append.
  size_t num_read() const { return num_read_; }

  // A stop word was found: nothing follows. Beams go on, since others may still pass them.
  bool HasStopped(int sequence_index) const { return At(sequence_index).stop.found(); }
  bool all_have_stopped() const;
  // That ended the text of the sequence; empty: none.
  const std::string& stop_word(int sequence_index) const {
    return At(sequence_index).stop.found_word();
  }

 private:
  struct Sequence {
    Detokenizer detokenizer;
    StopText stop;
    std::string text;  // so far, of one that accumulates
  };
  const Sequence& At(int index) const { return sequences_[static_cast<size_t>(index)]; }
  std::string Next(const inflight::Response& response);
  std::string OfBeam(const Beam& beam, bool is_last);
  std::string WithPrompt(std::span<const TokenId> generated, StopText& stop) const;

  const StopText::Words stop_words_;
  const AnswerTextOptions options_;           // but for its stop words
  std::vector<Sequence> sequences_;           // [num_sequences]
  std::vector<FinishReason> finish_reasons_;  // set by Append
  size_t num_read_ = 0;
};

}  // namespace inflight::serving
