// SPDX-License-Identifier: Apache-2.0
// How many draft tokens a row is worth, by what steps were measured to cost and by how many drafts
// were accepted.
//
//   step time = base + cost * tokens of its rows
//
// In the time of one more token the steps seen yield `price` = cost * (tokens yielded / time)
// tokens. Where a draft is accepted with probability p, the j-th of a row is with p^j: it pays as
// long as p^j > price. So a step that waits for memory drafts far, one that computes all the time
// drafts nothing, and a text that nobody foresees is tried again more and more seldom. A step may
// cost far more for one token more, so all that try do so in the same step, one of kTryEvery.
//
// Of a tree of drafts each node has its own chance, by how often it was accepted where it was
// judged, times how much better or worse the sequence's drafts fare than all. As many nodes pay as
// make the sum of (chance - price) the largest.
//
// Only times depend on it: drafts never change what is drawn.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace inflight::scheduler {

// Of one sequence.
struct DraftRecord {
  static constexpr int kFirstSkip = 8;

  double accepted = 0;           // share of its judged drafts; newer ones count more
  bool has_any = false;          // else it begins with the share of all sequences
  int num_skipped = 0;           // rows without drafts since the last one with
  int num_to_skip = kFirstSkip;  // before one draft is tried although it does not pay
};

class DraftPace {
 public:
  static constexpr int kTryEvery = 32;

  // `chances`: guesses for the nodes of a tree; empty where drafts are a chain.
  explicit DraftPace(int max_draft_len, std::vector<double> chances = {})
      : max_(max_draft_len), chances_(std::move(chances)) {}

  void CountStep() { ++num_steps_; }  // each of them

  // Of a step without prefill: its tokens with drafts, and the tokens that it yielded.
  void Observe(int64_t step_ns, int num_tokens, int num_yielded);

  // A row had `num_drafted` drafts, of which `num_accepted` were accepted, one after another: the
  // first ones, or the nodes of a tree whose bits `accepted_nodes` has. 0 drafts where none was
  // planned, or none was found.
  void Note(DraftRecord* record, int num_drafted, int num_accepted, uint64_t accepted_nodes = 0);

  // Drafts of the sequence's next row, at most.
  int Length(const DraftRecord& record) const;

  double price() const { return price_; }  // in tokens, of one more token in a step

 private:
  void SetPrice();
  double Accepted(const DraftRecord& record) const;
  int ChainLength(double accepted) const;
  int TreeSize(double accepted) const;

  const int max_;
  std::vector<double> chances_;  // of a tree's nodes
  int64_t num_steps_ = 0;
  double price_ = 0.25;    // a guess, until steps differ
  double accepted_ = 0.6;  // of all sequences
  // Sums over steps, of which older ones count less.
  double steps_ = 0, tokens_ = 0, squares_ = 0, ns_ = 0, products_ = 0, yielded_ = 0;
};

}  // namespace inflight::scheduler
