// SPDX-License-Identifier: Apache-2.0
// The device's sampler against the CPU's: equal ids, log-probs within 1e-5. Draws against the
// formula. Without a usable GPU each test is skipped and says why.
#include "decoding/cuda/device_sampler.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "decoding/cuda/sampler_pair.h"

namespace inflight::decoding {
namespace {

class DeviceSamplerTest : public testing::Test {
 protected:
  void SetUp() override { NEED_TEST_GPU(); }

  Device& device() { return *TestGpu().value(); }
  Stream& stream() { return TestStream(device()); }

  // `num_steps` steps of `num_slots` rows each, every row of another kind, with another rule in
  // each slot every few steps.
  void CompareManyRows(int vocab_size, int num_slots, int num_steps, bool may_use_clusters = true) {
    Random random(static_cast<uint64_t>(vocab_size));
    constexpr int kMaxSeqLen = 3000;
    Samplers samplers(device(), stream(), num_slots, vocab_size, kMaxSeqLen, may_use_clusters);
    std::vector<float> logits(static_cast<size_t>(num_slots + 1) * static_cast<size_t>(vocab_size));
    std::vector<int32_t> row_slots(static_cast<size_t>(num_slots) + 1);
    int num_wrong = 0;
    int kind = 0;
    for (int step = 0; step < num_steps && num_wrong < 10; ++step) {
      for (int slot = 0; slot < num_slots; ++slot) {
        if (step % 3 != 0) break;
        std::vector<TokenId> tokens(static_cast<size_t>(random.Below(slot % 8 == 0 ? 2900 : 60)));
        const int num_ids = std::min(vocab_size, slot % 3 == 0 ? 5 : 4000);  // few: many n-grams
        for (TokenId& token : tokens) token = random.Below(num_ids);
        Request request = RandomRequest(random, vocab_size, tokens);
        if (step % 9 == 6) request.sampling.temperature = 0.0F;  // steps of greedy rows alone
        const int num_prompt_tokens = random.Below(static_cast<int>(tokens.size()) + 1);
        samplers.Setup(slot, MakeSamplingRule(request, random.Next(), num_prompt_tokens),
                       std::move(tokens));
      }
      // Slots in random order, one row of padding somewhere.
      std::iota(row_slots.begin(), row_slots.end(), -1);
      for (size_t i = row_slots.size(); i > 1; --i)
        std::swap(row_slots[i - 1],
                  row_slots[static_cast<size_t>(random.Below(static_cast<int>(i)))]);
      for (size_t r = 0; r < row_slots.size(); ++r)
        FillRow(kind++ % kNumShapesOfRows, random,
                std::span(logits).subspan(r * static_cast<size_t>(vocab_size),
                                          static_cast<size_t>(vocab_size)));
      num_wrong +=
          samplers.Compare(row_slots, logits,
                           "vocab " + std::to_string(vocab_size) + " step " + std::to_string(step) +
                               " first kind " + std::to_string(kind % kNumShapesOfRows));
    }
    samplers.ExpectSameTokens();
  }

  // One rule of any kind in each of the samplers, over a vocabulary of 4096.
  static void SetUpAnyRule(int slot, Random& random, std::initializer_list<Samplers*> all) {
    constexpr int kVocab = 4096;
    std::vector<TokenId> tokens(static_cast<size_t>(20 + slot));
    for (TokenId& token : tokens) token = random.Below(kVocab);
    Request request = RandomRequest(random, kVocab, tokens);
    if (slot % 3 == 0) {
      request.sampling.temperature = 1.0F, request.sampling.top_k.reset();
      request.sampling.top_p = 0.9F, request.sampling.top_p_decay = 0.7F;
      request.sampling.top_p_min = 0.05F;
    }
    const SamplingRule rule = MakeSamplingRule(request, random.Next(), /*num_prompt_tokens=*/10);
    for (Samplers* samplers : all) samplers->Setup(slot, rule, tokens);
  }

  template <typename T>
  Buffer Upload(const std::vector<T>& values) {
    Buffer buffer = Must(Buffer::Allocate(device(), "test", values.size() * sizeof(T)));
    MustCuda(cudaMemcpy(buffer.data(), values.data(), values.size() * sizeof(T),
                        cudaMemcpyHostToDevice));
    return buffer;
  }

  // The drafts of `rows`, which `steps` drew, as nodes of a tree: draft d is node 2 d + 1. Returns
  // row_shifts of `num_rows` of each slot.
  static std::vector<uint8_t> PlaceAsTree(Samplers* rows, Samplers* steps, int num_slots,
                                          int num_rows) {
    const DeviceSampleParams& params = rows->params();
    std::vector<uint8_t> shifts;
    for (int slot = 0; slot < num_slots; ++slot) {
      const size_t num_tokens = rows->tokens(slot).size();
      std::vector<TokenId> nodes;
      for (int d = 0; d + 1 < num_rows; ++d) {
        const TokenId draft = steps->tokens(slot)[num_tokens + static_cast<size_t>(d)];
        nodes.push_back((draft + 1) % rows->vocab_size());
        nodes.push_back(draft);
      }
      MustCuda(cudaMemcpy(params.tokens + int64_t{slot} * params.max_seq_len + num_tokens,
                          nodes.data(), nodes.size() * sizeof(TokenId), cudaMemcpyHostToDevice));
      for (int row = 0; row < num_rows; ++row)
        for (int back = 0; back < DeviceSampleParams::kTextShifts; ++back)
          shifts.push_back(static_cast<uint8_t>(std::max(0, row - back)));
    }
    return shifts;
  }

  // The first `count` tokens that `steps` drew behind those of `rows` join them.
  static void GoOn(Samplers* rows, Samplers* steps, int num_slots, int count) {
    const DeviceSampleParams& params = rows->params();
    for (int slot = 0; slot < num_slots; ++slot) {
      std::vector<TokenId>& tokens = rows->tokens(slot);
      const size_t num_tokens = tokens.size() + static_cast<size_t>(count);
      tokens.assign(steps->tokens(slot).begin(),
                    steps->tokens(slot).begin() + static_cast<ptrdiff_t>(num_tokens));
      MustCuda(cudaMemcpy(params.tokens + int64_t{slot} * params.max_seq_len, tokens.data(),
                          num_tokens * 4, cudaMemcpyHostToDevice));
      const auto size = static_cast<int32_t>(num_tokens);
      MustCuda(cudaMemcpy(params.num_tokens + slot, &size, 4, cudaMemcpyHostToDevice));
    }
  }

  // P of each id when `rule` draws from `logits`, by the formula in double precision
  // (docs/reference/decoding.md, "Top-k"). No two of them are equal.
  static std::vector<double> Probabilities(const SamplingRule& rule, std::vector<float> logits) {
    const auto n = logits.size();
    std::vector<double> weights(n);
    const double max = *std::max_element(logits.begin(), logits.end());
    for (size_t i = 0; i < n; ++i)
      weights[i] = std::exp((double{logits[i]} - max) /
                            (rule.temperature == 1.0F ? 1.0 : rule.temperature + 1e-6));
    std::vector<int> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int a, int b) { return weights[a] > weights[b]; });
    if (rule.top_k > 0) order.resize(std::min(n, static_cast<size_t>(rule.top_k)));
    while (weights[order.back()] < rule.min_p) order.pop_back();
    double sum = 0;
    for (const int id : order) sum += weights[id];
    double left = rule.top_p * sum;
    std::vector<double> result(n);
    for (const int id : order) {
      const double mass = std::min(left, weights[id]);
      result[id] = mass / (rule.top_p * sum);
      left -= mass;
    }
    return result;
  }

  // A million draws of the device from one row, against the formula.
  void ExpectDistribution(const Request& request, float deviation) {
    constexpr int kVocab = 1000;
    constexpr int kSlots = 1000;
    constexpr int kSteps = 1000;
    Samplers samplers(device(), stream(), kSlots, kVocab, kSteps + 1);
    Random random(5);
    std::vector<float> row(kVocab);
    FillRow(1, random, row);
    for (float& x : row) x *= deviation;
    std::vector<float> logits;
    std::vector<int32_t> row_slots(kSlots);
    for (int slot = 0; slot < kSlots; ++slot) {
      logits.insert(logits.end(), row.begin(), row.end());
      row_slots[static_cast<size_t>(slot)] = slot;
      samplers.Setup(slot, MakeSamplingRule(request, static_cast<uint64_t>(slot) * 977, 1), {0});
    }
    for (int step = 0; step < kSteps; ++step) {
      samplers.Upload(row_slots, logits);
      samplers.Launch();
    }
    std::vector<int32_t> tokens(static_cast<size_t>(kSlots) * (kSteps + 1));
    MustCuda(cudaStreamSynchronize(samplers.handle()));
    MustCuda(cudaMemcpy(tokens.data(), samplers.params().tokens, tokens.size() * 4,
                        cudaMemcpyDeviceToHost));
    std::vector<double> counts(kVocab);
    for (int slot = 0; slot < kSlots; ++slot)
      for (int step = 1; step <= kSteps; ++step)
        ++counts[static_cast<size_t>(tokens[static_cast<size_t>(slot * (kSteps + 1) + step)])];
    const std::vector<double> expected = Probabilities(MakeSamplingRule(request, 0, 1), row);
    // Ids expected less than ten times count as one.
    double statistic = 0, rest = 0, expected_rest = 0;
    int num_bins = 0;
    for (int id = 0; id < kVocab; ++id) {
      const double want = expected[id] * kSlots * kSteps;
      if (want == 0) {
        EXPECT_EQ(counts[id], 0) << "id " << id << " was not to be drawn";
      }
      if (want < 10) {
        rest += counts[id];
        expected_rest += want;
        continue;
      }
      statistic += (counts[id] - want) * (counts[id] - want) / want;
      ++num_bins;
    }
    if (expected_rest >= 10) {
      statistic += (rest - expected_rest) * (rest - expected_rest) / expected_rest;
      ++num_bins;
    }
    // Five standard deviations of the statistic above its mean.
    EXPECT_LT(statistic, num_bins - 1 + 5 * std::sqrt(2.0 * num_bins)) << num_bins << " bins";
    printf("chi-square %.1f over %d bins\n", statistic, num_bins);
  }
};

TEST_F(DeviceSamplerTest, DrawsWhatTheCpuDrawsFrom128256) { CompareManyRows(128256, 48, 24); }
TEST_F(DeviceSamplerTest, DrawsWhatTheCpuDrawsFrom50257) { CompareManyRows(50257, 60, 36); }
TEST_F(DeviceSamplerTest, DrawsWhatTheCpuDrawsFrom1000) { CompareManyRows(1000, 300, 45); }
TEST_F(DeviceSamplerTest, DrawsWhatTheCpuDrawsFromFew) {
  for (const int vocab_size : {1, 2, 5, 31, 32, 33, 130, 257}) CompareManyRows(vocab_size, 40, 18);
}
// What follows in little, which compute-sanitizer takes a minute for.
TEST_F(DeviceSamplerTest, AFewRowsDrawWhatTheCpuDraws) {
  for (const int vocab_size : {33, 1000, 50257}) CompareManyRows(vocab_size, kNumShapesOfRows, 1);
}
TEST_F(DeviceSamplerTest, AFewVastRowsDrawWhatTheCpuDraws) { CompareManyRows(600001, 2, 1); }

// Rows that do not fit into the shared memory of a cluster.
TEST_F(DeviceSamplerTest, DrawsWhatTheCpuDrawsFrom600001) { CompareManyRows(600001, 14, 9); }
TEST_F(DeviceSamplerTest, DrawsWhatTheCpuDrawsWithoutClusters) {
  CompareManyRows(50257, 42, 12, /*may_use_clusters=*/false);
  CompareManyRows(1000, 42, 12, /*may_use_clusters=*/false);
  CompareManyRows(128256, 42, 6, /*may_use_clusters=*/false);
}

TEST_F(DeviceSamplerTest, GraphOfManyStepsDrawsWhatTheCpuDraws) {
  constexpr int kVocab = 4096;
  constexpr int kSlots = 24;
  constexpr int kSteps = 20;
  Samplers samplers(device(), stream(), kSlots, kVocab, 64);
  Samplers alone(device(), stream(), kSlots, kVocab, 64);
  Random random(3);
  std::vector<float> logits(size_t{kSlots} * kVocab);
  std::vector<int32_t> row_slots(kSlots);
  for (int slot = 0; slot < kSlots; ++slot) {
    row_slots[static_cast<size_t>(slot)] = slot;
    Request request = RandomRequest(random, kVocab, {});
    request.sampling.repetition_penalty = 1.5F;
    const SamplingRule rule = MakeSamplingRule(request, 11, /*num_prompt_tokens=*/3);
    samplers.Setup(slot, rule, {1, 2, 3});
    alone.Setup(slot, rule, {1, 2, 3});
    FillRow(slot % 4, random,
            std::span(logits).subspan(static_cast<size_t>(slot) * kVocab, kVocab));
  }
  samplers.Upload(row_slots, logits);
  const size_t bytes = logits.size() * sizeof(float);
  const Buffer fresh = Must(Buffer::Allocate(device(), "test", bytes));
  MustCuda(cudaStreamSynchronize(samplers.handle()));
  MustCuda(cudaMemcpy(fresh.data(), samplers.params().logits, bytes, cudaMemcpyDeviceToDevice));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  MustCuda(cudaStreamBeginCapture(samplers.handle(), cudaStreamCaptureModeThreadLocal));
  MustCuda(cudaMemcpyAsync(samplers.params().logits, fresh.data(), bytes, cudaMemcpyDeviceToDevice,
                           samplers.handle()));
  samplers.Launch();
  MustCuda(cudaStreamEndCapture(samplers.handle(), &graph));
  MustCuda(cudaGraphInstantiate(&exec, graph, 0));
  for (int step = 0; step < kSteps; ++step) MustCuda(cudaGraphLaunch(exec, samplers.handle()));
  MustCuda(cudaStreamSynchronize(samplers.handle()));
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float> copy = logits;
    alone.Compare(row_slots, copy, "step " + std::to_string(step));
  }
  for (int slot = 0; slot < kSlots; ++slot) samplers.tokens(slot) = alone.tokens(slot);
  samplers.ExpectSameTokens();
}

// Drafts that are what will be drawn: the rows of a step that follows them draw what steps one
// after the other draw, for every rule, and so does the step behind them.
TEST_F(DeviceSamplerTest, RowsBehindDraftsDrawWhatStepsOneAfterAnotherDraw) {
  constexpr int kVocab = 4096;
  constexpr int kSlots = 30;
  constexpr int kRows = 5;  // of a slot: a token and four drafts
  Samplers steps(device(), stream(), kSlots, kVocab, 128);
  Samplers rows(device(), stream(), kSlots, kVocab, 128);
  Random random(8);
  std::vector<float> logits(size_t{kSlots} * (kRows + 1) * kVocab);  // [step, slot, vocab]
  const auto row_of = [&](int step, int slot) {
    return std::span(logits).subspan((static_cast<size_t>(step) * kSlots + slot) * kVocab, kVocab);
  };
  std::vector<int32_t> all_slots(kSlots);
  std::iota(all_slots.begin(), all_slots.end(), 0);
  for (int slot = 0; slot < kSlots; ++slot) {
    SetUpAnyRule(slot, random, {&steps, &rows});
    for (int step = 0; step <= kRows; ++step)
      FillRow(slot % kNumShapesOfRows, random, row_of(step, slot));
  }
  const auto of_step = [&](int step) {
    const auto all =
        std::span(logits).subspan(size_t{kSlots} * kVocab * step, size_t{kSlots} * kVocab);
    return std::vector<float>(all.begin(), all.end());
  };
  for (int step = 0; step <= kRows; ++step) {
    std::vector<float> copy = of_step(step);
    EXPECT_EQ(steps.Compare(all_slots, copy, "step " + std::to_string(step)), 0);
  }

  std::vector<int32_t> row_slots, positions;
  std::vector<float> of_rows;
  DeviceSampleParams& params = rows.params();
  for (int slot = 0; slot < kSlots; ++slot) {
    const auto num_tokens = static_cast<int>(rows.tokens(slot).size());
    const TokenId* const drafts = steps.tokens(slot).data() + num_tokens;
    MustCuda(cudaMemcpy(params.tokens + int64_t{slot} * 128 + num_tokens, drafts,
                        (kRows - 1) * sizeof(TokenId), cudaMemcpyHostToDevice));
    for (int step = 0; step < kRows; ++step) {
      row_slots.push_back(slot);
      positions.push_back(num_tokens + step);
      of_rows.insert(of_rows.end(), row_of(step, slot).begin(), row_of(step, slot).end());
    }
  }
  // More rows than the samplers have slots: memory of the test's own.
  const Buffer device_slots = Upload(row_slots);
  const Buffer device_positions = Upload(positions);
  const Buffer device_logits = Upload(of_rows);
  const PinnedBuffer results = Must(PinnedBuffer::Allocate(device(), row_slots.size() * 12));
  const DeviceSampleParams one_by_one = params;
  params.row_slots = reinterpret_cast<int32_t*>(device_slots.data());
  params.row_positions = reinterpret_cast<int32_t*>(device_positions.data());
  params.logits = reinterpret_cast<float*>(device_logits.data());
  params.num_rows = kSlots * kRows;
  params.ids = reinterpret_cast<int32_t*>(results.data());
  params.log_probs = reinterpret_cast<float*>(results.data()) + row_slots.size();
  params.log_probs_all = params.log_probs + row_slots.size();
  const auto expect_drawn = [&](const char* what) {
    MustCuda(cudaMemcpy(params.logits, of_rows.data(), of_rows.size() * sizeof(float),
                        cudaMemcpyHostToDevice));
    rows.Launch();
    MustCuda(cudaStreamSynchronize(rows.handle()));
    for (size_t r = 0; r < row_slots.size(); ++r)
      EXPECT_EQ(params.ids[r], steps.tokens(row_slots[r])[static_cast<size_t>(positions[r])])
          << what << ", slot " << row_slots[r] << " after " << positions[r];
    rows.ExpectSameTokens();  // nothing was appended
  };
  expect_drawn("drafts one behind the other");

  const Buffer device_shifts = Upload(PlaceAsTree(&rows, &steps, kSlots, kRows));
  params.row_shifts = reinterpret_cast<uint8_t*>(device_shifts.data());
  expect_drawn("drafts of a tree");

  params = one_by_one;
  GoOn(&rows, &steps, kSlots, kRows);
  rows.Upload(all_slots, of_step(kRows));
  params.any_row_samples = true;
  rows.Launch();
  MustCuda(cudaStreamSynchronize(rows.handle()));
  for (int slot = 0; slot < kSlots; ++slot)
    EXPECT_EQ(params.ids[slot], steps.tokens(slot).back()) << "slot " << slot;
}

// The same logits at every step, so that each rule decides what comes next: every one of these
// slots leaves what a slot without rules repeats.
TEST_F(DeviceSamplerTest, RulesDecideWhatComesNextAsOnTheCpu) {
  constexpr int kVocab = 1000;
  constexpr int kSteps = 40;
  std::vector<Request> requests(9);
  requests[1].sampling.no_repeat_ngram_size = 1;
  requests[2].sampling.no_repeat_ngram_size = 3;
  requests[3].bad_words = {{0}, {1, 2, 3}, {5, 5}, {4}};
  requests[4].end_ids = {0, 1};
  requests[4].sampling.min_tokens = 10;
  std::vector<float> bias(kVocab);
  bias[999] = 1000.0F;
  requests[5].embedding_bias = std::make_shared<std::vector<float>>(bias);
  requests[6].sampling = {.temperature = 30.0F, .top_p = 1.0F, .top_p_decay = 0.7F};
  requests[7].sampling = {.presence_penalty = 0.6F, .prompt_ignore_length = 2};
  std::vector<std::string> digits;
  for (int id = 0; id < kVocab; ++id) digits.push_back(std::to_string(id));
  const std::vector<std::string> bad = {"00", "0101", "22", "33"};
  requests[8].bad_texts = Must(MakeBadTexts(bad, MakeTokenTexts(digits)));
  const auto num_slots = static_cast<int>(requests.size());
  Samplers samplers(device(), stream(), num_slots, kVocab, 64);
  std::vector<int32_t> row_slots(requests.size());
  std::iota(row_slots.begin(), row_slots.end(), 0);
  for (int slot = 0; slot < num_slots; ++slot)
    samplers.Setup(slot, MakeSamplingRule(requests[static_cast<size_t>(slot)], 5, 3), {0, 1, 0});
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float> logits;
    for (int slot = 0; slot < num_slots; ++slot)
      for (int id = 0; id < kVocab; ++id) logits.push_back(9.0F - 0.25F * static_cast<float>(id));
    ASSERT_EQ(samplers.Compare(row_slots, logits, "step " + std::to_string(step)), 0);
    if (step == kSteps / 2)  // as after a pause: from the tokens alone
      for (int slot = 0; slot < num_slots; ++slot)
        samplers.Setup(slot, MakeSamplingRule(requests[static_cast<size_t>(slot)], 5, 3),
                       samplers.tokens(slot));
  }
  samplers.ExpectSameTokens();
  EXPECT_EQ(samplers.tokens(0).back(), 0);
  for (int slot = 1; slot < num_slots; ++slot)
    EXPECT_NE(samplers.tokens(slot), samplers.tokens(0)) << "slot " << slot;
  EXPECT_EQ(samplers.tokens(1).back(), 41);  // each id once; 0 and 1 stood in the prompt
  EXPECT_EQ(samplers.tokens(5).back(), 999);
  std::string text;
  for (const TokenId id : samplers.tokens(8)) text += digits[static_cast<size_t>(id)];
  for (const std::string& word : bad) EXPECT_EQ(text.find(word), std::string::npos) << text;
}

uint64_t TakenBytes(Device& device) {
  uint64_t bytes = 0;
  for (const MemoryLedger::Entry& entry : device.ledger().entries()) bytes += entry.bytes;
  return bytes;
}

// Texts that several slots have take memory once; what no slot has any more serves later texts, and
// goes with the sampler.
TEST_F(DeviceSamplerTest, BadTextsTakeMemoryOnceAndLeaveItToLaterOnes) {
  Random random(9);
  Request request;
  const auto next_rule = [&] {
    request.bad_texts = RandomBadTexts(random, 1000, {});
    return MakeSamplingRule(request, 0, 1);
  };
  stream();  // is made when it is first asked for
  const uint64_t without = TakenBytes(device());
  {
    Samplers samplers(device(), stream(), 3, 1000, 64);
    const uint64_t before = TakenBytes(device());
    const uint64_t pinned_before = samplers.gpu().pinned_bytes();
    const SamplingRule rule = next_rule();
    samplers.Setup(0, rule, {1});
    const uint64_t with_one = TakenBytes(device());
    EXPECT_GE(with_one - before,
              request.bad_texts->texts.size() + RandomTokenTexts(1000)->bytes.size());
    EXPECT_EQ(samplers.gpu().pinned_bytes() - pinned_before, with_one - before);
    samplers.Setup(1, rule, {2});
    EXPECT_EQ(TakenBytes(device()), with_one);
    samplers.Setup(2, next_rule(), {3});
    const uint64_t second = TakenBytes(device()) - with_one;
    EXPECT_GT(second, 0U);
    EXPECT_LT(second, with_one - before);  // the vocabulary is there
    for (int i = 0; i < 20; ++i) {
      samplers.Setup(0, {}, {1});
      samplers.Setup(1, {}, {2});
      samplers.Setup(2, next_rule(), {3});
      samplers.Setup(0, next_rule(), {1});
      EXPECT_EQ(TakenBytes(device()), with_one + second);
    }
  }
  EXPECT_EQ(TakenBytes(device()), without);
}

// Texts in memory that others had before, and those of another vocabulary.
TEST_F(DeviceSamplerTest, LaterBadTextsAreTheOnesThatCount) {
  constexpr int kVocab = 100;
  Samplers samplers(device(), stream(), 1, kVocab, 64);
  std::vector<float> flat(kVocab);
  for (int i = 0; i < kVocab; ++i)
    flat[static_cast<size_t>(i)] = 9.0F - 0.25F * static_cast<float>(i);
  for (int round = 0; round < 12; ++round) {
    std::vector<std::string> texts;
    for (int id = 0; id < kVocab; ++id) texts.push_back(std::to_string(id + 100 * (round % 2)));
    const auto tokens = MakeTokenTexts(texts);
    std::vector<std::string> bad;  // all but one of the first ids
    for (int id = 0; id < 10; ++id)
      if (id != round % 10) bad.push_back(texts[static_cast<size_t>(id)]);
    bad.resize(std::min<size_t>(bad.size(), static_cast<size_t>(1 + round)));
    Request request;
    request.bad_texts = Must(MakeBadTexts(bad, tokens));
    samplers.Setup(0, MakeSamplingRule(request, 0, 1), {50});
    for (int step = 0; step < 3; ++step) {
      std::vector<float> logits = flat;
      ASSERT_EQ(samplers.Compare(std::vector<int32_t>{0}, logits, "round " + std::to_string(round)),
                0);
    }
  }
}

// A slot whose tokens are full keeps them; its draw is still reported.
TEST_F(DeviceSamplerTest, FullSlotGetsNoMoreTokens) {
  Samplers samplers(device(), stream(), 2, 100, /*max_seq_len=*/4);
  samplers.Setup(0, {}, {5, 6, 7, 8});
  samplers.Setup(1, {}, {9});
  std::vector<float> logits(200);
  logits[42] = logits[142] = 1.0F;
  samplers.Compare(std::vector<int32_t>{0, 1}, logits, "full slot");
  samplers.tokens(0).pop_back();
  samplers.ExpectSameTokens();
}

TEST_F(DeviceSamplerTest, NoRowsAreNoLaunch) {
  Samplers samplers(device(), stream(), 1, 100, 4);
  samplers.Setup(0, {}, {9});
  samplers.params().ids[0] = kUntouched;
  samplers.params().num_rows = 0;
  samplers.Launch();
  MustCuda(cudaDeviceSynchronize());
  EXPECT_EQ(samplers.params().ids[0], kUntouched);
  samplers.ExpectSameTokens();
}

TEST_F(DeviceSamplerTest, TopKDrawsFollowTheFormula) {
  Request request;
  request.sampling.top_k = 50;
  request.sampling.top_p = 0.9F;
  ExpectDistribution(request, 1.5F);
}

TEST_F(DeviceSamplerTest, TopPDrawsFollowTheFormula) {
  Request request;
  request.sampling.top_p = 0.9F;
  request.sampling.temperature = 0.7F;
  ExpectDistribution(request, 2.0F);
}

TEST_F(DeviceSamplerTest, MinPDrawsFollowTheFormula) {
  Request request;
  request.sampling.min_p = 0.05F;
  ExpectDistribution(request, 1.0F);
}

}  // namespace
}  // namespace inflight::decoding
