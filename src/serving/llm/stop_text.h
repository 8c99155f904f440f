// SPDX-License-Identifier: Apache-2.0
// Stop words as text (docs/reference/requests.md): ids match only where the model cuts its tokens
// as the tokenizer cuts the word, text matches always.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace inflight::serving {

// Watches the text of one sequence, chunk after chunk. The answer ends with the stop word that ends
// first, or before it where stop words are trimmed; what may be the beginning of one is then held
// back until more is known.
class StopText {
 public:
  // Sequences of one answer share their words, which may be long.
  using Words = std::shared_ptr<const std::vector<std::string>>;

  explicit StopText(Words words, bool trims = false);  // none of them empty
  explicit StopText(std::vector<std::string> words, bool trims = false)
      : StopText(std::make_shared<const std::vector<std::string>>(std::move(words)), trims) {}

  // What the next chunk adds to the answer; nothing once a stop word was found.
  std::string Feed(std::string chunk);
  // What was held back, when no chunk follows.
  std::string Finish();
  bool found() const { return found_; }
  const std::string& found_word() const { return found_word_; }  // empty: none was

 private:
  struct Match {
    size_t begin = 0, end = 0;
    const std::string* word = nullptr;
  };
  Match Find(std::string_view text, size_t num_before) const;
  size_t NumHeld(std::string_view text) const;

  Words words_;
  bool trims_;
  size_t longest_ = 0;  // bytes of the longest word
  // The end of what was fed, where a word may have begun: fewer bytes than the longest word. Where
  // stop words are trimmed it is held back.
  std::string tail_;
  bool found_ = false;
  std::string found_word_;
};

}  // namespace inflight::serving
