// SPDX-License-Identifier: Apache-2.0
// The `preprocessing` model: text or a conversation -> token ids, words -> word lists and biases.
// Behaviour: docs/reference/requests.md.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/worker_pool.h"
#include "contract/word_list.h"
#include "inflight/tokenizer.h"
#include "serving/core/generation.h"
#include "serving/core/model.h"

namespace inflight::serving {

struct PreprocessingOptions {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<WorkerPool> text_pool;
  bool add_special_tokens = true;
  bool pad_is_eos = false;  // up to 0.10 the pad token is always the end token
  int vocab_size = 0;       // of the engine that gets the ids
  // Longer texts have more tokens than the engine takes, whatever they are, and are refused before
  // they are tokenized. 0 = no such engine, or no such bound.
  size_t max_prompt_bytes = 0;
  // What its directory has for conversations and of defaults.
  std::optional<ChatTemplate> chat_template = {};
  Status no_chat_template = {};
  parameters::ModelDefaults defaults = {};
};

// No prompt of so many tokens has more bytes; 0 where it may have any number.
size_t MaxPromptBytes(const Tokenizer& tokenizer, int max_tokens);

class PreprocessingModel : public Model {
 public:
  PreprocessingModel(::inference::ModelConfig config, std::string version,
                     PreprocessingOptions options, Clock& clock = Clock::System());

  void Infer(Request request, ResponseHandler handler) override;

  // The steps, also for the ensemble. Errors name the tensor as the client calls it.
  // The first string of `query` in tokens.
  Result<std::vector<TokenId>> EncodePrompt(const Tensor& query) const;
  // The prompt that the model's chat template makes of the only string of `messages`
  // (conversation/messages_text.h), in tokens.
  Result<std::vector<TokenId>> EncodeMessages(const Tensor& messages) const;
  // One word per string; words without tokens (the empty string of old clients) are left out.
  // Appends the words as they are to `texts`, where that is not null; empty ones are none.
  Result<contract::Words> EncodeWords(const Tensor& words,
                                      std::vector<std::string>* texts = nullptr) const;
  // The sum of each word's weight at each of its ids, [vocab_size] for the LLM's embedding_bias;
  // empty if one of the two tensors is missing, or no word is left beside empty ones.
  // kInvalidArgument where their sizes differ, a weight is NaN or +inf, or the tokenizer does not
  // know a word.
  Result<std::vector<float>> EncodeBias(const Tensor* words, const Tensor* weights,
                                        int vocab_size) const;
  // Refuses what is not supported, such as decoder prompts and pictures, unless it is empty.
  Status CheckUnsupported(const Tensor& tensor) const;

  const PreprocessingOptions& options() const { return options_; }
  const Tokenizer& tokenizer() const { return *options_.tokenizer; }
  WorkerPool& text_pool() const { return *options_.text_pool; }

 private:
  // What the rows of a request became, row by row; words only where a list was sent.
  struct Batch {
    std::vector<std::vector<TokenId>> ids;
    std::vector<int32_t> lengths, end_ids, pad_ids;
    std::vector<contract::Words> bad_words, stop_words;
    std::vector<std::vector<float>> biases;  // empty = none
    std::vector<uint64_t> extra_ids;         // of rows of prompt tables
  };

  Status CheckPromptBytes(const Tensor& prompt, size_t num_bytes) const;
  Result<std::vector<TokenId>> EncodeBiasWord(std::string_view word, int vocab_size) const;
  Result<std::vector<Tensor>> Run(const Request& request) const;
  Status EncodeRow(const std::vector<Tensor>& inputs, Batch& batch) const;
  TokenId default_end_id() const;  // -1 = the tokenizer has none
  TokenId default_pad_id() const;

  const PreprocessingOptions options_;
  Clock& clock_;
};

}  // namespace inflight::serving
