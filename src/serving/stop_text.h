// SPDX-License-Identifier: Apache-2.0
// Stop words as text (spec/serving-models.md 1.6.6): ids match only where the model cuts its tokens
// as the tokenizer cuts the word, text matches always.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace inflight::serving {

// Watches the text of one sequence, chunk after chunk.
class StopText {
 public:
  explicit StopText(std::vector<std::string> words);  // none of them empty

  // How many bytes of the next chunk belong to the answer: up to the end of the stop word that ends
  // first, all of them while none does, none after one did.
  size_t Feed(std::string_view chunk);
  bool found() const { return found_; }

 private:
  std::vector<std::string> words_;
  size_t longest_ = 0;  // bytes of the longest word
  std::string tail_;    // of what was fed: where a word may have begun, [< longest_]
  bool found_ = false;
};

}  // namespace inflight::serving
