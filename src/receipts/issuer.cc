// SPDX-License-Identifier: Apache-2.0
#include "receipts/issuer.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "parameters/engine_limits.h"
#include "receipts/hashes.h"
#include "receipts/request_members.h"

namespace inflight::receipts {

void Draft::Add(const Response& response, bool is_read) {
  if (!not_covered_.empty()) return;
  if (has_beams_) {  // each response has them whole
    if (!response.is_final) return;
    if (response.finish_reason == FinishReason::kCancelled)
      not_covered_ = "a cancelled beam search";
    for (const Beam& beam : response.beams)
      sequences_.push_back({.ids = beam.output_ids,
                            .log_probs = beam.output_log_probs,
                            .reason = beam.finish_reason});
    return;
  }
  const auto index = static_cast<size_t>(response.sequence_index);
  if (index >= sequences_.size()) sequences_.resize(index + 1);
  Sequence& sequence = sequences_[index];
  const std::vector<TokenId>& ids = response.output_ids;
  if (response.is_sequence_final) sequence.reason = response.finish_reason;
  if (!is_read) {
    sequence.has_more |= !ids.empty();
    return;
  }
  const std::vector<float>& log_probs = response.output_log_probs;
  sequence.ids.insert(sequence.ids.end(), ids.begin(), ids.end());
  sequence.log_probs.insert(sequence.log_probs.end(), log_probs.begin(), log_probs.end());
}

SequenceRecord Draft::RecordOf(const Sequence& sequence, bool has_stopped) const {
  SequenceRecord record{.ids = sequence.ids, .end = FinishReasonName(sequence.reason)};
  const bool has_ended = sequence.reason != FinishReason::kNotFinished &&
                         sequence.reason != FinishReason::kCancelled && !sequence.has_more;
  if (!has_ended) record.end = has_stopped ? kStopText : FinishReasonName(FinishReason::kCancelled);
  if (receipt_.request.output.return_log_probs)
    record.log_probs = HashOfNumbers(sequence.log_probs);
  return record;
}

std::string Draft::Finish(const std::function<bool(int sequence)>& has_stopped) const {
  if (!not_covered_.empty()) return NoReceiptText(not_covered_);
  Receipt receipt = receipt_;
  for (size_t i = 0; i < sequences_.size(); ++i)
    receipt.outputs.push_back(
        RecordOf(sequences_[i], !has_beams_ && has_stopped(static_cast<int>(i))));
  return ReceiptText(receipt);
}

void Issuer::BringAdapter(Request& request) {
  if (!request.lora || !request.lora->is_own) return;
  LoraUse& use = *request.lora;
  if (use.tensors != nullptr || use.read == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    if (adapters_.contains(use.id)) return;
  }
  if (auto tensors = use.read(); tensors.ok()) use.tensors = *std::move(tensors);
}

Draft Issuer::Begin(const Request& request, const ExecutorLimits& limits) {
  if (const char* what = NotCovered(request)) return Draft(std::string(what));
  Receipt receipt{.engine = engine_,
                  .prompt = HashOfIds(request.input_ids),
                  .num_prompt_tokens = static_cast<int64_t>(request.input_ids.size())};
  if (request.lora) {
    auto hash = AdapterHash(*request.lora);
    if (!hash.ok()) return Draft("an adapter that cannot be read");
    receipt.adapter = *std::move(hash);
  }
  Request& kept = receipt.request;
  kept.input_ids = request.input_ids;
  kept.max_tokens = request.max_tokens;
  kept.end_ids = request.end_ids;
  kept.stop_words = request.stop_words;
  kept.bad_words = request.bad_words;
  kept.sampling = request.sampling;
  kept.output.return_log_probs = request.output.return_log_probs;
  kept.output.normalize_log_probs = request.output.normalize_log_probs;
  std::erase(kept.end_ids, -1);  // which the executor drops
  parameters::ShortenToSequence(limits, kept);
  receipt.has_ids = options_.has_prompts;
  const SamplingParams& sampling = request.sampling;
  const bool has_beams = sampling.beam_width > 1;
  const int num_sequences = has_beams ? 0 : std::max(1, sampling.num_return_sequences.value_or(1));
  return {std::move(receipt), has_beams, static_cast<size_t>(num_sequences)};
}

Result<std::string> Issuer::AdapterHash(const LoraUse& use) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = adapters_.find(use.id); found != adapters_.end()) return found->second;
  }
  std::shared_ptr<const LoraTensors> tensors = use.tensors;
  if (tensors == nullptr) {
    if (use.read == nullptr) return NotFound("the adapter is of an earlier request");
    ASSIGN_OR_RETURN(tensors, use.read());
  }
  std::string hash = HashOfAdapter(*tensors);
  const std::lock_guard lock(mutex_);
  return adapters_.emplace(use.id, std::move(hash)).first->second;
}

}  // namespace inflight::receipts
