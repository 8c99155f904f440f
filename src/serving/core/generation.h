// SPDX-License-Identifier: Apache-2.0
// A request by what it asks and an answer by what it says, in place of tensors: for front ends that
// speak of texts and tokens themselves. A model that takes such requests says so by Model::text.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "inflight/adapter.h"
#include "inflight/chat_template.h"
#include "inflight/executor.h"
#include "inflight/guide.h"
#include "inflight/request.h"
#include "inflight/tokenizer.h"
#include "parameters/model_defaults.h"

namespace inflight::serving {

// Texts up to this many bytes are tokenized on the caller's thread (tens of microseconds), longer
// ones on a thread for that.
inline constexpr size_t kInlineTextBytes = 4096;

// Longer ones keep a thread free for others.
inline constexpr size_t kLongTextBytes = 64 * 1024;

// What tokenizing holds for a while, for each byte of its text: pieces, their ids and their merges.
inline constexpr size_t kTokenizingBytesPerByte = 40;

// A text to be tokenized.
struct PromptText {
  std::string text;
  std::vector<size_t> plain_at = {};  // of Tokenizer::Encode
  bool add_special_tokens = true;     // templates write them themselves
  // What ends reasoning: a guided answer is free up to and with this text; empty: the model does
  // not reason, and all of the answer is guided.
  std::string guide_begins_after = {};
  std::string guide_opening = {};  // it is so only where it begins with this; empty: always
  // Of an answer that reasons in messages of their own: what ends such a message, with what another
  // one begins behind that, and what is written in the model's place where it has no tokens left to
  // reason with: for the first time, and where it reasons on all the same.
  struct ReasoningMessages {
    std::string end, next;
    std::string cut, cut_again;
  };
  std::optional<ReasoningMessages> reasoning_messages = {};
};

struct Generation {
  // The prompt is `llm.input_ids`, or where those are empty the text that this makes: a short one
  // on the caller's thread, a long one on the text pool.
  std::function<Result<PromptText>()> make_prompt = {};
  size_t text_bytes = 0;  // about as many as the text has
  // Prompts to be taken where that one is too long, or leaves the answer less than it asks for: by
  // index, each shorter than the one before. The first that fits is.
  size_t num_shorter_prompts = 0;
  std::function<Result<PromptText>(size_t index)> make_shorter_prompt = {};

  // What the executor is asked, but for what is LlmModel::Admit's. Ids of end_ids come beside the
  // model's own. max_tokens 0: as many as the sequence has room for.
  inflight::Request llm = {};
  bool ignores_model_ends = false;  // the model's own ids end nothing
  bool penalizes_prompt = true;     // else tokens of the answer alone count for penalties
  std::vector<TokenId> shown_special_tokens = {};  // whose texts are part of the answer's
  std::vector<std::string> stop_texts = {};        // the text ends before the first of them
  // What the answer's text must be; errors of it are about `field`.
  struct Guided {
    GuideSpec spec;  // but for what the prompt says
    std::string field;
    bool may_begin_later = false;  // PromptText::guide_begins_after may be set
    // In place of `spec`, where the answer is messages in channels and the prompt has not begun the
    // last of them: those that it may have, with `spec` in the last. A prompt that opens the
    // reasoning makes it free up to and with `begins_after`.
    std::optional<GuideSpec> as_messages = {};
  };
  std::optional<Guided> guided = {};
  // That the model may reason with, where PromptText says how its reasoning ends.
  std::optional<int> max_reasoning_tokens = {};
};

// What became known since the last answer.
struct Generated {
  std::string text;  // joined, the texts of a sequence are the whole; none ends inside a character
  // The executor's: index, ids, log-probs, counts. Why a sequence ended is `finish_reason`.
  inflight::Response response;
  FinishReason finish_reason = FinishReason::kNotFinished;
  std::string stop_text = {};  // of Generation::stop_texts, which the text ended before
  int num_prompt_tokens = 0;
};

// The parameter of a request that names an adapter (LoRA), and that of its responses.
inline constexpr std::string_view kLoraName = "lora_name";

// What a name of an adapter stands for, as its files were when it was looked for.
struct FoundAdapter {
  LoraUse use;
  uint64_t file_bytes = 0;
};

// Adapters of a model by name. Threads: all methods are thread-safe. Both look at files.
class AdapterNames {
 public:
  virtual ~AdapterNames() = default;
  virtual std::vector<std::string> Names() const = 0;  // that there are now, by the alphabet
  // kNotFound where nobody has the name.
  virtual Result<FoundAdapter> Find(const std::string& name) = 0;
};

// What such front ends know of a model.
struct TextModel {
  std::shared_ptr<const Tokenizer> tokenizer;
  ExecutorLimits limits;
  std::optional<ChatTemplate> chat_template;
  Status no_chat_template;  // why there is none
  parameters::ModelDefaults defaults;
  std::shared_ptr<AdapterNames> adapters;  // null: none has a name
};

}  // namespace inflight::serving
