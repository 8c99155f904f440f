// SPDX-License-Identifier: Apache-2.0
// Beam search of one request (docs/reference/decoding.md): from the logits of its live beams to the
// next ones, to what has ended, and to the answer. Knows nothing of models, slots or blocks.
//
//   c(b)     cum_log_prob of live beam b: the sum of log P of its tokens; at first one beam, c = 0
//   s(b, t)  c(b) + log softmax(logits(b))[t], after penalties and bans
//   len      generated tokens, the end id counted
//   normed   s / len ^ length_penalty; s where length_penalty is 0 or len is 1
//
// One step, K = width, n = (1 + max(1, number of end ids)) K, which is 2 K with one end id:
//   1. BestContinuations: the n best of s(b, .) for each live beam; ties to the lower token.
//   2. Advance orders all of them by s + diversity_rate * b; ties to the lower beam, then the lower
//      token. The bonus only orders. It looks at the best n in that order, i = 0, 1, ...:
//      a. one that ends (an end id, or the last token of a stop word) and i < K becomes an ended
//         one while there are fewer than K; then it replaces the worst by normed if it is not
//         worse. If it is worse, early_stopping 1 leaves the loop.
//      b. one that ends and i >= K is passed over.
//      c. any other becomes the next live beam, until there are K.
//   3. done?  fewer than K ended: no, unless no beam lives. early_stopping 1: yes. 0: yes when the
//      worst ended one is not below the best live c / len ^ length_penalty, len as of now; anything
//      else ("never") takes the longest len there may be, if length_penalty > 0.
//   4. done, or the length limit is reached: the answer. Ended ones, and where it was not done the
//      live ones normed by their own length, ordered by normed, the first num_returned.
//
// Equal to transformers' generate(num_beams = K) with its length_penalty and early_stopping False
// (0), True (1), "never" (2). TensorRT-LLM differs in two places: under "never" it leaves the loop
// of 2a as under 1, and a stop word there keeps its beam in the race for another step.
//
// Beams that do not live (K - num_live, where bans leave too few continuations) are computed with
// the others and never chosen: their parent and token are those of the best live beam.
//
// Threads: BestContinuations is a pure function; a BeamSearch is used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "decoding/best_logits.h"
#include "decoding/stop.h"
#include "inflight/request.h"

namespace inflight::decoding {

struct BeamRule {
  int width = 1;         // K
  int num_returned = 1;  // [1, K]
  float length_penalty = 0;
  int early_stopping = 1;
  float diversity_rate = 0;
  bool wants_log_probs = false;  // of each token
  StopCriteria stop;

  int num_candidates() const;  // n
};

// The beam fields of a request, which are valid.
BeamRule MakeBeamRule(const Request& request, int num_prompt_tokens, int max_seq_len);

// What is returned of the row that a live beam's continuations were drawn from, where a request
// asks. Tokens drawn from one row share it.
struct BeamRow {
  std::vector<float> logits;              // [vocab_size] as the model computed them; or empty
  std::vector<TopLogProb> top_log_probs;  // [num_top_log_probs]
};

// A continuation of a live beam.
struct BeamCandidate {
  int beam = 0;
  TokenId token = 0;
  float cum_log_prob = 0;  // s
};

// Appends the `count` best continuations of a beam whose cum_log_prob is `cum`, in any order; fewer
// where fewer are possible. NaN and -inf count as impossible.
void BestContinuations(std::span<const float> logits, int beam, float cum, int count,
                       std::vector<BeamCandidate>* out);
// The same, of a row whose best logits are known.
void BestContinuations(const BestLogits& best, int beam, float cum,
                       std::vector<BeamCandidate>* out);

float NormedScore(float cum_log_prob, int len, float length_penalty);

class BeamSearch {
 public:
  // `prompt` is what stop words may begin in.
  BeamSearch(const BeamRule& rule, std::span<const TokenId> prompt);

  const BeamRule& rule() const { return rule_; }
  // Of the live beams, [num_live]: one before the first Advance.
  std::span<const float> cum_log_probs() const { return live_scores_; }

  // One step. `candidates` are of all live beams; reordered. After it, beam j continues the beam
  // parents()[j] as it was before, by tokens()[j]. `rows` are of the live beams, or empty.
  void Advance(std::vector<BeamCandidate>* candidates,
               std::span<const std::shared_ptr<const BeamRow>> rows = {});
  std::span<const int32_t> parents() const { return parents_; }  // [width]
  std::span<const TokenId> tokens() const { return tokens_; }    // [width]
  bool is_done() const { return is_done_; }  // by the rules above, or at the length limit
  // Something lives or has ended. Where bans leave nothing at all, there is none.
  bool has_answer() const { return !live_nodes_.empty() || !ended_.empty(); }
  int num_generated() const { return num_generated_; }  // Advances so far

  // The answer if the search ended here, best first: all that there is until it is done. Logits are
  // many bytes: only where the answer is the last.
  std::vector<Beam> Best(bool with_logits = true) const;

 private:
  // Generated tokens form a tree; a sequence is the path from a node to the root, -1.
  struct Node {
    TokenId token;
    int32_t parent;
    float cum_log_prob;
    std::shared_ptr<const BeamRow> row;  // null where nothing of it is returned
  };
  struct Ended {
    int32_t node;  // of the last token that is returned
    float cum_log_prob;
    float normed;
    FinishReason reason;
  };

  int32_t NodeOf(int beam) const { return live_nodes_.empty() ? -1 : live_nodes_[beam]; }
  FinishReason EndOf(const BeamCandidate& candidate) const;
  bool EndsWithStopWord(const BeamCandidate& candidate, const std::vector<TokenId>& word) const;
  bool AddEnded(const BeamCandidate& candidate, FinishReason reason);
  void AddLive(const BeamCandidate& candidate);
  bool RulesAreMet() const;
  float WorstNormed() const;
  std::shared_ptr<const BeamRow> RowOf(const BeamCandidate& candidate) const;
  Beam MakeBeam(const Ended& ended, bool with_logits) const;

  BeamRule rule_;
  std::vector<TokenId> prompt_tail_;  // as much of it as a stop word may reach into
  std::vector<Node> nodes_;
  std::vector<int32_t> live_nodes_;  // [num_live]; empty before the first Advance
  std::vector<float> live_scores_;   // [num_live]
  std::vector<int32_t> next_nodes_;
  std::vector<float> next_scores_;
  std::vector<Ended> ended_;                              // [<= width]
  std::span<const std::shared_ptr<const BeamRow>> rows_;  // of the Advance under way
  std::vector<int32_t> parents_;
  std::vector<TokenId> tokens_;
  int num_generated_ = 0;
  bool is_met_ = false;  // rule 3
  bool is_done_ = false;
};

}  // namespace inflight::decoding
