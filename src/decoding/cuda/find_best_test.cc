// SPDX-License-Identifier: Apache-2.0
// The best logits that the device finds against decoding::BestContinuations of the same row: equal
// ids, logits and scores. Without a usable GPU each test is skipped and says why.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "decoding/beam_search.h"
#include "decoding/cuda/sampler_pair.h"

namespace inflight::decoding {
namespace {

using Ids = std::vector<TokenId>;

class FindBestTest : public testing::Test {
 protected:
  static constexpr int kMaxSeqLen = 400;
  static constexpr int kBeam = 3;
  static constexpr float kCum = -4.75F;
  static constexpr auto kUnwritten = std::byte{0x5a};

  void SetUp() override { NEED_TEST_GPU(); }

  Device& device() { return *TestGpu().value(); }

  void Open(int vocab_size, int num_slots, bool may_use_clusters = true) {
    samplers_ = std::make_unique<Samplers>(device(), TestStream(device()), num_slots, vocab_size,
                                           kMaxSeqLen, may_use_clusters);
  }

  // A sequence without rules in each slot.
  void SetUpPlain(int num_slots) {
    for (int slot = 0; slot < num_slots; ++slot) samplers_->Setup(slot, {}, {0});
  }

  // Slot r for row r, or none for the row `padding`.
  void Find(std::span<const float> logits, int count, int padding = -1) {
    const auto num_rows = static_cast<int>(logits.size()) / samplers_->vocab_size();
    std::vector<int32_t> row_slots(static_cast<size_t>(num_rows));
    std::iota(row_slots.begin(), row_slots.end(), 0);
    if (padding >= 0) row_slots[static_cast<size_t>(padding)] = -1;
    samplers_->Upload(row_slots, logits);
    row_bytes_ = BestLogits::Bytes(count);
    memory_ = Must(PinnedBuffer::Allocate(device(), static_cast<size_t>(num_rows) * row_bytes_));
    std::fill_n(memory_.data(), memory_.size(), kUnwritten);
    Must(samplers_->gpu().FindBest(samplers_->params(), count,
                                   reinterpret_cast<BestLogits*>(memory_.data()),
                                   TestStream(device())));
    MustCuda(cudaStreamSynchronize(samplers_->handle()));
  }

  const BestLogits& Found(int row) const {
    return *reinterpret_cast<const BestLogits*>(memory_.data() +
                                                static_cast<size_t>(row) * row_bytes_);
  }
  Ids FoundIds(int row) const {
    Ids ids;
    for (const BestLogits::Entry& entry : Found(row).entries()) ids.push_back(entry.id);
    return ids;
  }

  // What Find left of a row beside the host's; `logits` are the row's, scratch afterwards.
  void ExpectAsOnTheHost(int row, std::span<float> logits, int count) {
    samplers_->cpu().Process(row, samplers_->tokens(row), logits.data());
    std::vector<BeamCandidate> want;
    BestContinuations(logits, kBeam, kCum, count, &want);
    std::ranges::sort(want, [&](const BeamCandidate& a, const BeamCandidate& b) {
      const float x = logits[static_cast<size_t>(a.token)];
      const float y = logits[static_cast<size_t>(b.token)];
      return x != y ? x > y : a.token < b.token;
    });
    std::vector<BeamCandidate> got;
    BestContinuations(Found(row), kBeam, kCum, &got);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].token, want[i].token) << "place " << i;
      ASSERT_EQ(got[i].beam, kBeam);
      ASSERT_EQ(Found(row).entries()[i].logit, logits[static_cast<size_t>(got[i].token)]);
      ASSERT_FLOAT_EQ(got[i].cum_log_prob, want[i].cum_log_prob) << "place " << i;
    }
  }

  // Rows of every kind, each with another rule.
  void CompareRows(int vocab_size, int count, bool may_use_clusters = true) {
    SCOPED_TRACE(std::to_string(count) + " of " + std::to_string(vocab_size));
    constexpr int kNumRows = 2 * kNumShapesOfRows;
    Open(vocab_size, kNumRows, may_use_clusters);
    Random random(static_cast<uint64_t>(vocab_size + count));
    const auto row_size = static_cast<size_t>(vocab_size);
    std::vector<float> logits(row_size * kNumRows);
    for (int r = 0; r < kNumRows; ++r) {
      FillRow(r % kNumShapesOfRows, random,
              std::span(logits).subspan(static_cast<size_t>(r) * row_size, row_size));
      Ids tokens(static_cast<size_t>(random.Below(kMaxSeqLen)));
      for (TokenId& token : tokens) token = random.Below(std::min(vocab_size, 50));
      const Request request = r % 2 == 0 ? Request() : RandomRequest(random, vocab_size, tokens);
      samplers_->Setup(r, MakeSamplingRule(request, 1, /*num_prompt_tokens=*/0), std::move(tokens));
    }
    Find(logits, count);
    for (int r = 0; r < kNumRows; ++r) {
      SCOPED_TRACE("row " + std::to_string(r));
      ExpectAsOnTheHost(r, std::span(logits).subspan(static_cast<size_t>(r) * row_size, row_size),
                        count);
      if (HasFatalFailure()) return;
    }
  }

  void FindInARowThatRises(int vocab_size) {
    Open(vocab_size, 1);
    SetUpPlain(1);
    std::vector<float> logits(static_cast<size_t>(vocab_size));
    std::iota(logits.begin(), logits.end(), 0.0F);
    Find(logits, BestLogits::kMaxCount);
    Ids want(BestLogits::kMaxCount);
    std::ranges::generate(want, [id = vocab_size]() mutable { return --id; });
    EXPECT_EQ(FoundIds(0), want);
  }

  std::unique_ptr<Samplers> samplers_;
  PinnedBuffer memory_;
  size_t row_bytes_ = 0;
};

// The next one in little, for compute-sanitizer.
TEST_F(FindBestTest, FindsWhatTheHostFindsInAFewRows) {
  for (const int vocab_size : {33, 4096}) CompareRows(vocab_size, 8);
}
TEST_F(FindBestTest, FindsWhatTheHostFinds) {
  for (const int vocab_size : {1, 2, 5, 33, 257, 1000, 4096, 50257, 128256})
    for (const int count : {1, 4, 8, 20, BestLogits::kMaxCount}) CompareRows(vocab_size, count);
}

TEST_F(FindBestTest, FindsWhatTheHostFindsWithoutClusters) {
  for (const int vocab_size : {5, 4096, 50257})
    for (const int count : {1, 8, BestLogits::kMaxCount})
      CompareRows(vocab_size, count, /*may_use_clusters=*/false);
}

// Rows that do not fit into the shared memory of a cluster.
TEST_F(FindBestTest, FindsWhatTheHostFindsInAVastVocabulary) { CompareRows(600001, 8); }

TEST_F(FindBestTest, TiesGoToTheLowerId) {
  Open(6, 1);
  SetUpPlain(1);
  Find(std::vector<float>{1, 2, 1, 2, 2, 1}, 4);
  EXPECT_EQ(FoundIds(0), (Ids{1, 3, 4, 0}));
  EXPECT_EQ(Found(0).max, 2.0F);

  // Across the chunks of a cluster, and of both zeros.
  constexpr int kVocab = 100000;
  Open(kVocab, 2);
  SetUpPlain(2);
  std::vector<float> logits(2 * kVocab, -1.0F);
  for (const size_t id : {99999, 70000, 40000, 12, 3}) logits[id] = id % 2 == 0 ? 0.0F : -0.0F;
  std::fill_n(logits.begin() + kVocab, kVocab, 7.0F);
  Find(logits, 7);
  EXPECT_EQ(FoundIds(0), (Ids{3, 12, 40000, 70000, 99999, 0, 1}));
  EXPECT_EQ(FoundIds(1), (Ids{0, 1, 2, 3, 4, 5, 6}));
}

// Each logit is better than all before it, so that every list overflows again and again.
TEST_F(FindBestTest, ARowThatRisesIsSortedThrough) { FindInARowThatRises(128256); }
// The same in little, for compute-sanitizer.
TEST_F(FindBestTest, AShortRowThatRisesIsSortedThrough) { FindInARowThatRises(33000); }

TEST_F(FindBestTest, WhatIsImpossibleIsNotFound) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  Open(5, 4);
  SetUpPlain(4);
  Find(std::vector<float>{-kInfinity, 2,          kNan,       -kInfinity, 1,           //
                          kNan,       kNan,       kNan,       kNan,       kNan,        //
                          -kInfinity, -kInfinity, -kInfinity, -kInfinity, -kInfinity,  //
                          0,          kInfinity,  1,          2,          3},
       /*count=*/4);
  EXPECT_EQ(FoundIds(0), (Ids{1, 4}));
  EXPECT_NEAR(Found(0).sum_of_exps, 1 + std::exp(-1.0), 1e-7);
  for (const int row : {1, 2, 3}) EXPECT_TRUE(FoundIds(row).empty()) << row;
}

TEST_F(FindBestTest, RowsOfNoSlotAreLeftAlone) {
  constexpr int kVocab = 300;
  Open(kVocab, 3);
  SetUpPlain(3);
  Find(std::vector<float>(3 * kVocab, 1.0F), /*count=*/2, /*padding=*/1);
  EXPECT_EQ(FoundIds(0), (Ids{0, 1}));
  EXPECT_EQ(FoundIds(2), (Ids{0, 1}));
  const auto* const bytes = reinterpret_cast<const std::byte*>(&Found(1));
  EXPECT_TRUE(std::all_of(bytes, bytes + row_bytes_, [](std::byte b) { return b == kUnwritten; }));
}

}  // namespace
}  // namespace inflight::decoding
