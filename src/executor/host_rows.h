// SPDX-License-Identifier: Apache-2.0
// Rows of logits on the host, and what becomes of them: tokens that are drawn, the rows and the
// likeliest tokens that requests have returned, the steps of beam searches.
//
// A backend finds the rows of a step's plan (Find), has each of them read (Read), and takes what
// they gave in the order of the plan (Append and Return, or Advance).
//
// Threads: Read, drafts and Append may run for different slots at once, everything else in one
// thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "decoding/beam_search.h"
#include "decoding/sampler.h"
#include "decoding/stop.h"
#include "executor/backend.h"
#include "executor/beam_move.h"
#include "executor/step_inputs.h"

namespace inflight::executor {

class HostRows {
 public:
  struct Search;

  // A row of a plan that yields.
  struct Row {
    int plan_row = 0;
    SlotId slot = 0;
    int logit = 0;             // which row of the step's logits; those of its drafts follow
    int num_drafts = 0;        // that it computed: the first ones of its slot
    int num_read = 0;          // Reads so far: of that draft the next one judges
    Search* search = nullptr;  // null: a token is drawn
    bool host_draws = false;  // by the host: always, where the device draws none; else of a request
                              // that came with drafts
    int beam = 0;
    int num_best = 0;  // logits that the device chooses; 0: the host reads the whole row
    // The caller's, one of both.
    float* logits = nullptr;               // [vocab_size] Read changes them
    decoding::BestLogits* best = nullptr;  // [1], and its entries; where the device chooses

    // What DrawTokens drew.
    std::vector<decoding::SampledToken> drawn{};
    std::vector<int> path{};  // the drafts that were accepted, by number; see ReadDrawn
    FinishReason finish_reason = FinishReason::kNotFinished;
    decoding::GuideVerdict verdict = decoding::GuideVerdict::kTokens;

    // What Read found; of several Reads `returned` has the rows of all.
    decoding::SampledToken token{};
    std::shared_ptr<RowLogits> returned{};
    std::vector<decoding::BeamCandidate> continuations{};
    std::shared_ptr<decoding::BeamRow> beam_row{};
  };

  // Where the device draws, rows of which nothing is wanted are not found, Read draws no tokens,
  // and the device chooses for searches (NumBest). `max_concurrency` bounds how many Reads that
  // draw run at once.
  HostRows(int max_slots, int vocab_size, bool device_draws, int max_concurrency);
  ~HostRows();

  // Whether anything of such a request's rows is wanted beside a token of each.
  static bool AreWanted(const Request& request);

  // How many of the best logits are all that a search of such a request needs of each row; 0 where
  // it needs whole rows, or is none.
  static int NumBest(const Request& request);

  void SetUp(const SlotSetup& setup);
  void Clear(SlotId slot);    // whose rows nobody wants; also before what may fail of a set up
  void Release(SlotId slot);  // whose sequence, with all its beams, is over

  // Of slots that are set up.
  std::span<const SlotTokens> tokens() const { return tokens_; }  // [max_slots]
  decoding::Sampler& sampler() { return sampler_; }
  std::vector<TokenId>& drafts(SlotId slot) { return tokens_[static_cast<size_t>(slot)].drafts; }
  // Its drafts are nodes of that tree. None is set when it is set up.
  void SetTree(SlotId slot, const decoding::DraftTree* tree) {
    tokens_[static_cast<size_t>(slot)].tree = tree;
  }
  std::vector<Beam> BestBeams(SlotId slot, bool is_last) const;

  // The plan's rows that yield. Valid until `rows`, which keeps its capacity, is found anew.
  std::span<Row> Find(const StepPlan& plan, std::vector<Row>* rows) const;

  void Read(Row* row);

  // Draws one token after another, as if each had come in a step of its own, into row->drawn and
  // the slot's tokens: a draft is accepted when it is the very token that comes in its place, of a
  // tree a child of the one before it, and the logits behind it are then those of the next. Of rows
  // that the host draws.
  void DrawTokens(Row* row, const decoding::StopCriteria& stop);

  // Reads the logits of each of `ids`, which the device drew, and appends them to the slot. Where
  // drafts are a tree row->path has the nodes that were accepted.
  void ReadDrawn(Row* row, std::span<const TokenId> ids);

  // A token joined its slot's sequence, which is returned.
  const std::vector<TokenId>& Append(SlotId slot, TokenId token);
  // What DrawTokens drew joins the results and the sum of the slot's log-probs.
  static void ReturnDrawn(const Row& row, float* cum_log_prob, StepResult* result);
  // What the request wants of a row whose token was drawn.
  static void Return(Row* row, StepResult* result);

  // One step of a search: `rows` begin with that of its beam 0. Nothing when the search is over.
  std::optional<BeamMove> Advance(std::span<Row> rows, StepResult* result);

  // Prompt tokens of a row, whose logits it has to return.
  struct Context {
    int plan_row = 0;
    int first_token = 0;  // in the packed batch
    int num_tokens = 0;
  };
  void FindContext(const StepPlan& plan, std::vector<Context>* found) const;

 private:
  struct Slot {
    bool returns_rows() const { return returns_generation_logits || num_top_log_probs > 0; }

    std::unique_ptr<Search> search;
    bool returns_generation_logits = false;
    int num_top_log_probs = 0;
    int num_prompt_tokens = 0;
    int context_logits_from = 0;  // of prompt tokens from here on
    bool has_client_drafts = false;
    std::shared_ptr<const std::vector<float>> draft_logits;  // of the client's drafts; or null
    std::optional<float> draft_acceptance_threshold;
  };

  void ReadToken(Row* row);
  decoding::SampledToken Draw(const Row& row);
  int NextDraft(const Row& row, int node) const;
  void ReadBeam(Row* row);
  void ReorderTokens(const Search& search);

  const int vocab_size_;
  const bool device_draws_;
  decoding::Sampler sampler_;
  std::vector<SlotTokens> tokens_;  // [max_slots]
  std::vector<Slot> slots_;         // [max_slots]
};

void AppendRows(const float* logits, int num_rows, int vocab_size, LogitsRows* out);

}  // namespace inflight::executor
