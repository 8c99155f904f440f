// SPDX-License-Identifier: Apache-2.0
#include "executor/host_rows.h"

#include <algorithm>
#include <utility>

#include "decoding/top_log_probs.h"

namespace inflight::executor {

struct HostRows::Search {
  decoding::BeamSearch beams;
  std::vector<SlotId> slots;  // [width]
  bool returns_generation_logits = false;
  int num_top_log_probs = 0;
  int num_best = 0;  // Row::num_best
  // Of the step.
  std::vector<decoding::BeamCandidate> candidates{};
  std::vector<std::shared_ptr<const decoding::BeamRow>> rows{};  // of live beams; or empty

  bool returns_rows() const { return returns_generation_logits || num_top_log_probs > 0; }
  bool Lives(int beam) const { return beam < std::ssize(beams.cum_log_probs()); }
};

HostRows::HostRows(int max_slots, int vocab_size, bool device_draws, int max_concurrency)
    : vocab_size_(vocab_size),
      device_draws_(device_draws),
      sampler_(max_slots, vocab_size, max_concurrency) {
  tokens_.resize(static_cast<size_t>(max_slots));
  slots_.resize(static_cast<size_t>(max_slots));
}

HostRows::~HostRows() = default;

bool HostRows::AreWanted(const Request& request) {
  const OutputOptions& output = request.output;
  return request.sampling.beam_width > 1 || output.return_context_logits ||
         output.return_generation_logits || output.num_top_log_probs > 0 ||
         !request.draft_ids.empty();
}

int HostRows::NumBest(const Request& request) {
  const OutputOptions& output = request.output;
  if (request.sampling.beam_width <= 1 || output.return_generation_logits ||
      output.num_top_log_probs > 0 || request.guide != nullptr)
    return 0;
  const int count = decoding::MakeBeamRule(request, 0, 0).num_candidates();
  return count <= decoding::BestLogits::kMaxCount ? count : 0;
}

void HostRows::Clear(SlotId slot) {
  slots_[static_cast<size_t>(slot)] = {};
  drafts(slot).clear();
}

void HostRows::Release(SlotId slot) {
  const std::unique_ptr<Search>& search = slots_[static_cast<size_t>(slot)].search;
  if (search != nullptr)
    for (const SlotId beam : search->slots) sampler_.Release(beam);
  sampler_.Release(slot);
}

void HostRows::SetUp(const SlotSetup& setup) {
  const OutputOptions& output = setup.request->output;
  const bool is_search = !setup.beam_slots.empty();
  Slot& slot = slots_[static_cast<size_t>(setup.slot)];
  slot.returns_generation_logits = !is_search && output.return_generation_logits;
  slot.num_top_log_probs = output.num_top_log_probs;
  slot.num_prompt_tokens = setup.num_prompt_tokens;
  slot.context_logits_from = setup.context_logits_from.value_or(setup.num_prompt_tokens);
  slot.search.reset();
  std::vector<TokenId>& tokens = tokens_[static_cast<size_t>(setup.slot)].tokens;
  tokens.reserve(static_cast<size_t>(setup.max_seq_len));
  tokens.assign(setup.tokens.begin(), setup.tokens.end());
  drafts(setup.slot) = setup.request->draft_ids;
  SetTree(setup.slot, nullptr);
  slot.has_client_drafts = !setup.request->draft_ids.empty();
  slot.draft_logits = setup.request->draft_logits;
  slot.draft_acceptance_threshold = setup.request->draft_acceptance_threshold;
  const decoding::SamplingRule rule =
      decoding::MakeSamplingRule(*setup.request, setup.seed, setup.num_prompt_tokens);
  sampler_.Setup(setup.slot, rule, setup.tokens, setup.max_seq_len);
  if (!is_search) return;
  for (const SlotId beam : setup.beam_slots) {
    if (beam == setup.slot) continue;
    Clear(beam);
    tokens_[static_cast<size_t>(beam)].tokens.reserve(static_cast<size_t>(setup.max_seq_len));
    sampler_.Setup(beam, rule, setup.tokens, setup.max_seq_len);
  }
  const auto beam_rule =
      decoding::MakeBeamRule(*setup.request, setup.num_prompt_tokens, setup.max_seq_len);
  slot.search =
      std::make_unique<Search>(Search{.beams = decoding::BeamSearch(beam_rule, setup.tokens),
                                      .slots = {setup.beam_slots.begin(), setup.beam_slots.end()},
                                      .returns_generation_logits = output.return_generation_logits,
                                      .num_top_log_probs = output.num_top_log_probs,
                                      .num_best = device_draws_ ? NumBest(*setup.request) : 0});
}

std::vector<Beam> HostRows::BestBeams(SlotId slot, bool is_last) const {
  return slots_[static_cast<size_t>(slot)].search->beams.Best(/*with_logits=*/is_last);
}

// The rows of a search follow each other, the one of beam 0 first.
std::span<HostRows::Row> HostRows::Find(const StepPlan& plan, std::vector<Row>* rows) const {
  size_t num_found = 0;
  int num_logits = 0;
  Search* search = nullptr;
  int beam = 0;
  for (int r = 0; r < plan.num_rows; ++r) {
    const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
    if (row.yields == 0) continue;
    const int logit = num_logits;
    num_logits += 1 + row.num_draft_tokens;
    const bool is_next_beam =
        search != nullptr && row.is_prefill == 0 && ++beam < static_cast<int>(search->slots.size());
    if (!is_next_beam) {
      const Slot& slot = slots_[static_cast<size_t>(row.slot)];
      search = slot.search.get();
      beam = 0;
      if (device_draws_ && search == nullptr && !slot.returns_rows() && !slot.has_client_drafts)
        continue;
    }
    if (num_found == rows->size()) rows->emplace_back();
    Row& found = (*rows)[num_found++];
    found.plan_row = r;
    found.slot = row.slot;
    found.logit = logit;
    found.num_drafts = row.num_draft_tokens;
    found.num_read = 0;
    found.returned.reset();
    found.drawn.clear();
    found.path.clear();
    found.verdict = decoding::GuideVerdict::kTokens;
    found.search = search;
    found.host_draws = search == nullptr &&
                       (!device_draws_ || slots_[static_cast<size_t>(row.slot)].has_client_drafts);
    found.beam = beam;
    found.num_best = search == nullptr ? 0 : search->num_best;
    if (row.is_prefill != 0) search = nullptr;
  }
  return std::span(*rows).first(num_found);
}

void HostRows::Read(Row* row) {
  if (row->search == nullptr) {
    ReadToken(row);
  } else {
    ReadBeam(row);
  }
}

void HostRows::ReadToken(Row* row) {
  const Slot& slot = slots_[static_cast<size_t>(row->slot)];
  const std::vector<TokenId>& tokens = tokens_[static_cast<size_t>(row->slot)].tokens;
  if (slot.returns_rows() && row->returned == nullptr)
    row->returned = std::make_shared<RowLogits>();
  if (slot.returns_generation_logits) {  // before decoding changes them
    AppendRows(row->logits, 1, vocab_size_, &row->returned->generation);
  }
  if (row->host_draws) {
    row->token = Draw(*row);
  } else if (slot.num_top_log_probs > 0) {
    sampler_.Process(row->slot, tokens, row->logits);
  }
  if (slot.num_top_log_probs == 0) return;
  const std::vector<TopLogProb> likeliest = decoding::TopLogProbs(
      {row->logits, static_cast<size_t>(vocab_size_)}, slot.num_top_log_probs);
  auto& returned = row->returned->top_log_probs;
  returned.insert(returned.end(), likeliest.begin(), likeliest.end());
}

void HostRows::DrawTokens(Row* row, const decoding::StopCriteria& stop) {
  float* const logits = row->logits;
  for (int node = -1;; ++row->num_read) {
    Read(row);
    row->verdict = row->token.verdict;
    if (row->verdict != decoding::GuideVerdict::kTokens) {
      row->finish_reason = FinishReason::kEndId;
      return;
    }
    row->drawn.push_back(row->token);
    row->finish_reason = decoding::CheckStop(stop, Append(row->slot, row->token.id));
    if (row->finish_reason != FinishReason::kNotFinished) return;
    node = NextDraft(*row, node);
    if (node < 0) return;
    row->path.push_back(node);
    row->logits = logits + int64_t{node + 1} * vocab_size_;
  }
}

// Of the row's drafts the one behind `node` (-1: behind the newest token) that was drawn; -1 where
// there is none.
int HostRows::NextDraft(const Row& row, int node) const {
  const SlotTokens& slot = tokens_[static_cast<size_t>(row.slot)];
  const auto drafts = std::span(slot.drafts).first(static_cast<size_t>(row.num_drafts));
  if (slot.tree != nullptr) return slot.tree->Child(node, row.token.id, drafts);
  const auto next = static_cast<size_t>(node + 1);
  return next < drafts.size() && drafts[next] == row.token.id ? node + 1 : -1;
}

void HostRows::ReadDrawn(Row* row, std::span<const TokenId> ids) {
  float* const logits = row->logits;
  for (size_t i = 0; i < ids.size(); ++i) {
    const size_t place =
        i == 0 || row->path.empty() ? i : static_cast<size_t>(row->path[i - 1]) + 1;
    row->logits = logits + place * static_cast<size_t>(vocab_size_);
    Read(row);
    Append(row->slot, ids[i]);
    ++row->num_read;
  }
}

// A draft with logits of its own is accepted or replaced; else the token is drawn.
decoding::SampledToken HostRows::Draw(const Row& row) {
  const Slot& slot = slots_[static_cast<size_t>(row.slot)];
  const auto& [tokens, drafts, tree] = tokens_[static_cast<size_t>(row.slot)];
  if (slot.draft_logits == nullptr || row.num_read >= row.num_drafts)
    return sampler_.Sample(row.slot, tokens, row.logits);
  const auto i = static_cast<size_t>(row.num_read);
  const auto width = static_cast<size_t>(vocab_size_);
  return sampler_.Verify(row.slot, tokens, row.logits,
                         {.id = drafts[i],
                          .logits = std::span(*slot.draft_logits).subspan(i * width, width),
                          .acceptance_threshold = slot.draft_acceptance_threshold});
}

void HostRows::ReadBeam(Row* row) {
  const Search& search = *row->search;
  row->continuations.clear();
  row->beam_row.reset();
  if (!search.Lives(row->beam)) return;
  const float cum = search.beams.cum_log_probs()[static_cast<size_t>(row->beam)];
  if (row->num_best > 0)
    return decoding::BestContinuations(*row->best, row->beam, cum, &row->continuations);
  const std::span<const float> logits(row->logits, static_cast<size_t>(vocab_size_));
  if (search.returns_rows()) row->beam_row = std::make_shared<decoding::BeamRow>();
  if (search.returns_generation_logits) row->beam_row->logits.assign(logits.begin(), logits.end());
  sampler_.Process(row->slot, tokens_[static_cast<size_t>(row->slot)].tokens, row->logits);
  if (const int count = search.num_top_log_probs; count > 0) {
    row->beam_row->top_log_probs = decoding::TopLogProbs(logits, count);
  }
  decoding::BestContinuations(logits, row->beam, cum, search.beams.rule().num_candidates(),
                              &row->continuations);
}

const std::vector<TokenId>& HostRows::Append(SlotId slot, TokenId token) {
  std::vector<TokenId>& tokens = tokens_[static_cast<size_t>(slot)].tokens;
  tokens.push_back(token);
  sampler_.Append(slot, token);
  return tokens;
}

void HostRows::ReturnDrawn(const Row& row, float* cum_log_prob, StepResult* result) {
  const auto r = static_cast<size_t>(row.plan_row);
  for (const decoding::SampledToken& token : row.drawn) {
    *cum_log_prob += token.log_prob_all;
    result->token_ids.push_back(token.id);
    result->log_probs.push_back(token.log_prob);
  }
  result->cum_log_probs[r] = *cum_log_prob;
  result->finish_reasons[r] = row.finish_reason;
  result->num_drafted[r] = row.num_drafts;
  result->verdicts[r] = row.verdict;
}

void HostRows::Return(Row* row, StepResult* result) {
  if (row->returned != nullptr) result->LogitsOf(row->plan_row) = std::move(*row->returned);
  row->returned.reset();
}

std::optional<BeamMove> HostRows::Advance(std::span<Row> rows, StepResult* result) {
  Search& search = *rows[0].search;
  const auto plan_row = static_cast<size_t>(rows[0].plan_row);
  search.candidates.clear();
  search.rows.clear();
  for (size_t b = 0; b < search.beams.cum_log_probs().size(); ++b) {
    if (search.returns_rows()) search.rows.push_back(std::exchange(rows[b].beam_row, {}));
    search.candidates.insert(search.candidates.end(), rows[b].continuations.begin(),
                             rows[b].continuations.end());
  }
  const auto num_kv_tokens =
      static_cast<int>(tokens_[static_cast<size_t>(search.slots[0])].tokens.size());
  const bool is_first = search.beams.num_generated() == 0;
  search.beams.Advance(&search.candidates, search.rows);
  if (search.beams.is_done()) {
    result->finish_reasons[plan_row] = FinishReason::kLength;
    if (!search.beams.has_answer()) result->verdicts[plan_row] = decoding::GuideVerdict::kNone;
    return std::nullopt;
  }
  const auto parents = search.beams.parents();
  if (!is_first) {
    std::copy(parents.begin(), parents.end(),
              result->parents.begin() + static_cast<ptrdiff_t>(plan_row));
  }
  ReorderTokens(search);
  return BeamMove{.slots = search.slots,
                  .parents = parents,
                  .tokens = search.beams.tokens(),
                  .num_kv_tokens = num_kv_tokens};
}

// Each beam's slot gets the tokens of its parent and the one that it goes on with.
void HostRows::ReorderTokens(const Search& search) {
  const auto parents = search.beams.parents();
  std::vector<std::vector<TokenId>> before(search.slots.size());  // of those that others need
  std::vector<std::unique_ptr<decoding::GuidedSlot>> guides(search.slots.size());
  for (size_t j = 0; j < search.slots.size(); ++j) {
    const auto parent = static_cast<size_t>(parents[j]);
    if (parent != j) guides[j] = sampler_.CloneGuide(search.slots[parent]);
    if (parent == j || !before[parent].empty()) continue;
    before[parent] = tokens_[static_cast<size_t>(search.slots[parent])].tokens;
  }
  for (size_t j = 0; j < search.slots.size(); ++j) {
    const SlotId slot = search.slots[j];
    const auto parent = static_cast<size_t>(parents[j]);
    const TokenId token = search.beams.tokens()[j];
    if (parent == j) {
      Append(slot, token);
      continue;
    }
    std::vector<TokenId>& tokens = tokens_[static_cast<size_t>(slot)].tokens;
    tokens.assign(before[parent].begin(), before[parent].end());
    tokens.push_back(token);
    if (guides[j] != nullptr) guides[j]->Accept(token);
    sampler_.Restart(slot, tokens, search.beams.rule().stop.max_seq_len, std::move(guides[j]));
  }
}

void HostRows::FindContext(const StepPlan& plan, std::vector<Context>* found) const {
  found->clear();
  int first_token = 0;  // of the row
  for (int r = 0; r < plan.num_rows; ++r) {
    const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
    const Slot& slot = slots_[static_cast<size_t>(row.slot)];
    const int begin = std::max(row.first_position, slot.context_logits_from);
    const int end = std::min(row.first_position + row.num_query_tokens, slot.num_prompt_tokens);
    if (row.is_prefill != 0 && begin < end) {
      found->push_back({.plan_row = r,
                        .first_token = first_token + begin - row.first_position,
                        .num_tokens = end - begin});
    }
    first_token += row.num_query_tokens;
  }
}

void AppendRows(const float* logits, int num_rows, int vocab_size, LogitsRows* out) {
  out->vocab_size = vocab_size;
  out->num_rows += num_rows;
  out->values.insert(out->values.end(), logits, logits + int64_t{num_rows} * vocab_size);
}

}  // namespace inflight::executor
