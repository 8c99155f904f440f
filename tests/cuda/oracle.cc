// SPDX-License-Identifier: Apache-2.0
#include "oracle.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "decoding/sampler.h"
#include "gpu_test.h"
#include "paged_model.h"
#include "tiny_models.h"

namespace inflight::gpu {
namespace {

// Logits of these models have a deviation of 1; computed in bf16 they err by about 2^-8 of it for
// each of some ten roundings in a row, and the largest of a thousand errors is three times that.
constexpr double kMargin = 0.1;

double LogProb(const std::vector<float>& logits, TokenId id) {
  const double max = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  return logits[static_cast<size_t>(id)] - max - std::log(sum);
}

}  // namespace

Oracle::Oracle(const model::ModelConfig& config, model::AttentionWindows windows)
    : engine_(RandomEngine(config, TinyLimits(), Cpu())), windows_(std::move(windows)) {}

std::vector<std::vector<float>> Oracle::Logits(std::span<const TokenId> tokens) const {
  const ops::OpTable ops = Must(ops::FindOps(Cpu(), model::KernelShape(engine_->config)));
  golden::PagedModel model(engine_, ops, Cpu(), /*num_sequences=*/1, /*block_size=*/16, windows_);
  const std::array pieces = {golden::Piece{.sequence = 0, .tokens = tokens}};
  return model.Step(pieces, /*last_only=*/false);
}

testing::AssertionResult Oracle::IsGreedy(std::span<const TokenId> prompt,
                                          std::span<const TokenId> ids,
                                          std::span<const float> log_probs) {
  std::vector<TokenId> tokens(prompt.begin(), prompt.end());
  tokens.insert(tokens.end(), ids.begin(), ids.end());
  const std::vector<std::vector<float>> logits = Logits(tokens);
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::vector<float>& row = logits[prompt.size() - 1 + i];
    const auto best = std::ranges::max_element(row);
    if (ids[i] < 0 || static_cast<size_t>(ids[i]) >= row.size())
      return testing::AssertionFailure() << "id " << i << " of " << ids.size() << " is " << ids[i];
    const double deficit = *best - row[static_cast<size_t>(ids[i])];
    largest_deficit_ = std::max(largest_deficit_, deficit);
    num_near_ties_ += deficit > 0 ? 1 : 0;
    ++num_judged_;
    if (deficit > kMargin)
      return testing::AssertionFailure()
             << "id " << i << " of " << ids.size() << " after a prompt of " << prompt.size()
             << ": got " << ids[i] << " with logit " << row[static_cast<size_t>(ids[i])]
             << ", the best is " << best - row.begin() << " with " << *best;
    if (log_probs.empty()) continue;
    const double error = std::abs(LogProb(row, ids[i]) - log_probs[i]);
    largest_error_ = std::max(largest_error_, error);
    if (!(error <= kMargin))
      return testing::AssertionFailure() << "log-prob of id " << i << ": got " << log_probs[i]
                                         << ", want " << LogProb(row, ids[i]);
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult Oracle::IsTruthful(std::span<const TokenId> prompt,
                                            const Beam& beam) const {
  std::vector<TokenId> tokens(prompt.begin(), prompt.end());
  tokens.insert(tokens.end(), beam.output_ids.begin(), beam.output_ids.end());
  const std::vector<std::vector<float>> logits = Logits(tokens);
  if (beam.output_log_probs.size() != beam.output_ids.size())
    return testing::AssertionFailure()
           << beam.output_log_probs.size() << " log-probs of " << beam.output_ids.size() << " ids";
  for (size_t i = 0; i < beam.output_ids.size(); ++i) {
    const double want = LogProb(logits[prompt.size() - 1 + i], beam.output_ids[i]);
    if (!(std::abs(want - beam.output_log_probs[i]) <= kMargin))
      return testing::AssertionFailure()
             << "log-prob of id " << i << " after a prompt of " << prompt.size() << ": got "
             << beam.output_log_probs[i] << ", want " << want;
  }
  return testing::AssertionSuccess();
}

int Oracle::NumOtherDraws(const Request& request, std::span<const TokenId> ids) const {
  const int vocab_size = engine_->config.vocab_size;
  std::vector<TokenId> tokens = request.input_ids;
  tokens.insert(tokens.end(), ids.begin(), ids.end());
  std::vector<std::vector<float>> logits = Logits(tokens);
  decoding::Sampler sampler(1, vocab_size, 1);
  const auto prompt_len = static_cast<int>(request.input_ids.size());
  sampler.Setup(0,
                decoding::MakeSamplingRule(request, request.sampling.seed.value_or(0), prompt_len),
                request.input_ids, static_cast<int>(tokens.size()));
  int num_others = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const size_t position = request.input_ids.size() + i;
    const auto drawn =
        sampler.Sample(0, std::span(tokens).first(position), logits[position - 1].data());
    num_others += drawn.id != ids[i] ? 1 : 0;
    sampler.Append(0, ids[i]);
  }
  return num_others;
}

}  // namespace inflight::gpu
