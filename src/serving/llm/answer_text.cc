// SPDX-License-Identifier: Apache-2.0
#include "serving/llm/answer_text.h"

#include <algorithm>
#include <utility>

namespace inflight::serving {

Result<bool> IncludesStopWords(const Parameters& parameters) {
  const auto found = parameters.find(kIncludeStopWords);
  if (found == parameters.end()) return true;
  if (const bool* includes = std::get_if<bool>(&found->second)) return *includes;
  return InvalidArgument(std::string(kIncludeStopWords) +
                         ": the parameter has another type, must be a boolean: true keeps the stop "
                         "word that ends a text, false leaves it out");
}

AnswerText::AnswerText(AnswerTextOptions options)
    : stop_words_(std::make_shared<const std::vector<std::string>>(std::move(options.stop_words))),
      options_(std::move(options)) {
  for (int i = 0; i < options_.num_sequences; ++i) {
    sequences_.push_back(
        {.detokenizer = Detokenizer(options_.tokenizer, options_.skip_special_tokens,
                                    options_.shown_special_tokens),
         .stop = StopText(stop_words_, options_.trims_stop_words),
         .text = {}});
  }
}

std::vector<std::string> AnswerText::Append(const inflight::Response& response) {
  finish_reasons_.clear();
  if (response.beams.empty()) {
    std::string text = Next(response);
    const bool has_stopped = HasStopped(response.sequence_index);
    finish_reasons_.push_back(has_stopped ? FinishReason::kStopWords : response.finish_reason);
    return {std::move(text)};
  }
  std::vector<std::string> texts;
  for (const Beam& beam : response.beams) texts.push_back(OfBeam(beam, response.is_final));
  return texts;
}

std::string AnswerText::Next(const inflight::Response& response) {
  Sequence& sequence = sequences_[static_cast<size_t>(response.sequence_index)];
  const std::span<const TokenId> ids = response.output_ids;
  num_read_ = ids.size();
  if (!options_.prompt.empty()) return WithPrompt(ids, sequence.stop);
  std::string chunk;
  if (stop_words_->empty()) {
    chunk = sequence.detokenizer.Append(ids);
  } else {  // a step with drafts may have gone on behind the word
    num_read_ = 0;
    while (num_read_ < ids.size() && !sequence.stop.found())
      chunk += sequence.stop.Feed(sequence.detokenizer.Append(ids.subspan(num_read_++, 1)));
  }
  if (response.is_sequence_final) {
    chunk += sequence.stop.Feed(sequence.detokenizer.Finish());
    chunk += sequence.stop.Finish();
  }
  if (!options_.accumulates) return chunk;
  return sequence.text += chunk;
}

std::string AnswerText::OfBeam(const Beam& beam, bool is_last) {
  StopText stop(stop_words_, options_.trims_stop_words);
  std::string text;
  if (!options_.prompt.empty()) {
    text = WithPrompt(beam.output_ids, stop);
  } else {
    Detokenizer detokenizer(options_.tokenizer, options_.skip_special_tokens);
    text = stop.Feed(detokenizer.Append(beam.output_ids));
    if (is_last || beam.finish_reason != FinishReason::kNotFinished) {
      text += stop.Feed(detokenizer.Finish());
      text += stop.Finish();
    }
  }
  finish_reasons_.push_back(stop.found() ? FinishReason::kStopWords : beam.finish_reason);
  return text;
}

// Stop words count behind the prompt.
std::string AnswerText::WithPrompt(std::span<const TokenId> generated, StopText& stop) const {
  const auto decode = [this](std::span<const TokenId> ids) {
    return options_.tokenizer->Decode(ids, options_.skip_special_tokens);
  };
  std::vector<TokenId> ids = options_.prompt;
  ids.insert(ids.end(), generated.begin(), generated.end());
  std::string text = decode(ids);
  if (stop_words_->empty()) return text;
  const size_t begin = std::min(decode(options_.prompt).size(), text.size());
  const std::string generated_text = stop.Feed(text.substr(begin));
  text.resize(begin);
  return text + generated_text + stop.Finish();
}

bool AnswerText::all_have_stopped() const {
  return std::all_of(sequences_.begin(), sequences_.end(),
                     [](const Sequence& sequence) { return sequence.stop.found(); });
}

}  // namespace inflight::serving
