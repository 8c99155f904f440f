// SPDX-License-Identifier: Apache-2.0
// The device's sampler against the CPU's: equal ids, log-probs within 1e-5. Draws against the
// formula. Without a usable GPU each test is skipped and says why.
#include "decoding/cuda/device_sampler.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "ops/cuda/cuda_stream.h"
#include "tensor/cuda_status.h"
#include "tensor/test_gpu.h"

namespace inflight::decoding {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int32_t kUntouched = -77;

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) {
    ADD_FAILURE() << result.status().message();
    std::abort();
  }
  return std::move(*result);
}
void Must(const Status& status) {
  if (status.ok()) return;
  ADD_FAILURE() << status.message();
  std::abort();
}
void MustCuda(cudaError_t error) { Must(inflight::cuda::ToStatus(error, "test")); }

// xorshift64*: fast enough to make millions of logits.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15 + 1) {}
  uint64_t Next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545F4914F6CDD1D;
  }
  int Below(int n) { return static_cast<int>((Next() >> 33) % static_cast<uint64_t>(n)); }
  float Uniform() { return static_cast<float>(Next() >> 40) * 0x1p-24F; }  // [0, 1)
  // Nearly normal: the sum of twelve uniform numbers of 5 bits, from one draw.
  float Normal() {
    uint64_t bits = Next() >> 4;
    int sum = 0;
    for (int i = 0; i < 12; ++i, bits >>= 5) sum += static_cast<int>(bits & 31);
    return (static_cast<float>(sum) - 186.0F) / 32.0F + Uniform() / 32.0F;
  }

 private:
  uint64_t state_;
};

constexpr int kNumShapesOfRows = 14;

// A row of one of kNumShapesOfRows kinds; ties, infinities and flat rows among them.
void FillRow(int kind, Random& random, std::span<float> row) {
  const int n = static_cast<int>(row.size());
  const auto normal = [&](float deviation) {
    for (float& x : row) x = deviation * random.Normal();
  };
  switch (kind) {
    case 0:
      return normal(3.0F);
    case 1:
      return normal(1.0F);
    case 2:
      return normal(0.02F);
    case 3:  // as a language model's: a few stand out
      normal(2.0F);
      for (int i = 0; i < 30; ++i) row[random.Below(n)] = 6.0F + 9.0F * random.Uniform();
      return;
    case 4:  // one stands out
      normal(2.0F);
      row[random.Below(n)] = 25.0F;
      return;
    case 5:  // ties everywhere
      normal(3.0F);
      for (float& x : row) x = std::round(x * 4.0F) / 4.0F;
      return;
    case 6:  // a few distinct values
      for (float& x : row) x = static_cast<float>(random.Below(4)) * 0.5F;
      return;
    case 7:
      return std::fill(row.begin(), row.end(), -1.25F);
    case 8:
      std::fill(row.begin(), row.end(), -kInfinity);
      row[random.Below(n)] = 3.0F;
      return;
    case 9:
      return std::fill(row.begin(), row.end(), -kInfinity);
    case 10:  // masked tokens, NaN and zeros of both signs
      normal(2.0F);
      for (float& x : row) {
        if (random.Below(8) == 0) x = -kInfinity;
        if (random.Below(64) == 0) x = std::numeric_limits<float>::quiet_NaN();
        if (random.Below(4) == 0) x = random.Below(2) == 0 ? 0.0F : -0.0F;
      }
      return;
    case 11:  // no finite largest
      normal(2.0F);
      row[random.Below(n)] = kInfinity;
      row[random.Below(n)] = kInfinity;
      return;
    case 12:  // of all sizes
      for (float& x : row) x = std::ldexp(random.Normal(), random.Below(60) - 40);
      return;
    default:  // falling; the best in one chunk
      for (int i = 0; i < n; ++i) row[i] = 10.0F - 0.001F * static_cast<float>(i);
      return;
  }
}

// Rules about tokens, some of which `tokens` meet.
void AddBans(Random& random, int vocab_size, std::span<const TokenId> tokens, Request& request) {
  const auto token = [&] { return random.Below(vocab_size); };
  if (random.Below(3) == 0) request.sampling.no_repeat_ngram_size = 1 + random.Below(4);
  if (random.Below(3) == 0) {
    request.end_ids = {token(), token(), token()};
    request.sampling.min_tokens = random.Below(5);
  }
  if (random.Below(3) != 0) return;
  for (int i = 0; i < 600; ++i) request.bad_words.push_back({token()});
  for (size_t size = 1; size < 6; ++size) {
    const auto tail = tokens.last(std::min(tokens.size(), size));
    request.bad_words.emplace_back(tail.begin(), tail.end());
    request.bad_words.back().push_back(token());
    request.bad_words.emplace_back(size, token());
  }
}

std::shared_ptr<std::vector<float>> RandomBias(Random& random, int vocab_size) {
  auto bias = std::make_shared<std::vector<float>>(static_cast<size_t>(vocab_size));
  for (float& x : *bias) x = random.Below(16) == 0 ? -kInfinity : random.Normal();
  return bias;
}

Request RandomRequest(Random& random, int vocab_size, std::span<const TokenId> tokens) {
  Request request;
  SamplingParams& sampling = request.sampling;
  const auto one_of = [&](std::initializer_list<float> values) {
    return *(values.begin() + random.Below(static_cast<int>(values.size())));
  };
  switch (random.Below(8)) {
    case 0:
      break;  // greedy
    case 1:
    case 2:
    case 3:
      sampling.top_k = static_cast<int>(one_of({2, 3, 40, 50, 200, 513, 1023, 1024, 2000}));
      if (random.Below(2) == 0) sampling.top_p = one_of({1e-6F, 0.5F, 0.9F, 1.0F});
      break;
    case 4:
    case 5:
    case 6:
      sampling.top_p = one_of({1e-6F, 0.1F, 0.5F, 0.9F, 0.999F, 1.0F});
      break;
    default:
      sampling.min_p = one_of({0.01F, 0.3F, 1.0F});
  }
  if (random.Below(3) == 0) sampling.min_p = one_of({1e-5F, 0.02F, 0.3F, 1.0F});
  if (random.Below(2) == 0) sampling.temperature = one_of({0.0F, 0.05F, 0.7F, 0.9F, 1.3F, 50.0F});
  if (random.Below(3) == 0) sampling.repetition_penalty = one_of({1.2F, 0.7F, 3.0F});
  if (random.Below(4) == 0) sampling.presence_penalty = one_of({0.6F, -0.5F, 7.0F});
  if (random.Below(4) == 0) sampling.frequency_penalty = one_of({0.1F, -0.3F, 0.77F});
  if (random.Below(2) == 0) {
    sampling.top_p_decay = one_of({0.5F, 0.9F, 1.0F});
    sampling.top_p_min = one_of({0.05F, 0.4F, 1.0F});
    sampling.top_p_reset_id = random.Below(vocab_size);
  }
  if (random.Below(3) == 0) sampling.prompt_ignore_length = random.Below(100);
  if (random.Below(4) == 0) request.embedding_bias = RandomBias(random, vocab_size);
  if (random.Below(2) == 0) AddBans(random, vocab_size, tokens, request);
  request.output.return_log_probs = random.Below(3) == 0;
  request.output.normalize_log_probs = random.Below(2) == 0;
  return request;
}

// Both samplers, with slots alike; logits, tokens and results of the device's one.
class Samplers {
 public:
  Samplers(Device& device, Stream& stream, int max_slots, int vocab_size, int max_seq_len,
           bool may_use_clusters = true)
      : stream_(stream),
        max_slots_(max_slots),
        vocab_size_(vocab_size),
        max_seq_len_(max_seq_len),
        cpu_(max_slots, vocab_size, 1),
        gpu_(Must(DeviceSampler::Create(device, max_slots, vocab_size, may_use_clusters))),
        tokens_(static_cast<size_t>(max_slots)),
        rules_(static_cast<size_t>(max_slots)) {
    const size_t rows = static_cast<size_t>(max_slots) + 4;
    const auto device_memory = [&](Buffer& buffer, size_t num_bytes) {
      buffer = Must(Buffer::Allocate(device, "test", num_bytes));
    };
    device_memory(logits_, rows * static_cast<size_t>(vocab_size) * sizeof(float));
    device_memory(device_tokens_,
                  static_cast<size_t>(max_slots) * static_cast<size_t>(max_seq_len) * 4);
    device_memory(num_tokens_, static_cast<size_t>(max_slots) * 4);
    device_memory(row_slots_, rows * 4);
    results_ = Must(PinnedBuffer::Allocate(device, rows * 12));
    MustCuda(cudaDeviceSynchronize());  // the zeroing
    params_ = {.row_slots = reinterpret_cast<int32_t*>(row_slots_.data()),
               .logits = reinterpret_cast<float*>(logits_.data()),
               .tokens = reinterpret_cast<int32_t*>(device_tokens_.data()),
               .num_tokens = reinterpret_cast<int32_t*>(num_tokens_.data()),
               .max_seq_len = max_seq_len,
               .ids = reinterpret_cast<int32_t*>(results_.data()),
               .log_probs = reinterpret_cast<float*>(results_.data()) + rows,
               .log_probs_all = reinterpret_cast<float*>(results_.data()) + 2 * rows};
  }

  cudaStream_t handle() { return ops::cuda::AsCuda(stream_).handle(); }
  DeviceSampleParams& params() { return params_; }
  std::vector<TokenId>& tokens(int slot) { return tokens_[static_cast<size_t>(slot)]; }

  void Setup(int slot, const SamplingRule& rule, std::vector<TokenId> tokens) {
    cpu_.Setup(slot, rule, tokens, max_seq_len_);
    Must(gpu_->Setup(slot, rule, tokens, stream_));
    const auto num_tokens = static_cast<int32_t>(tokens.size());
    MustCuda(cudaMemcpyAsync(params_.tokens + static_cast<int64_t>(slot) * max_seq_len_,
                             tokens.data(), tokens.size() * 4, cudaMemcpyHostToDevice, handle()));
    MustCuda(cudaMemcpyAsync(params_.num_tokens + slot, &num_tokens, 4, cudaMemcpyHostToDevice,
                             handle()));
    MustCuda(cudaStreamSynchronize(handle()));
    tokens_[static_cast<size_t>(slot)] = std::move(tokens);
    rules_[static_cast<size_t>(slot)] = rule;
  }

  void Upload(std::span<const int32_t> row_slots, std::span<const float> logits) {
    params_.num_rows = static_cast<int>(row_slots.size());
    MustCuda(cudaMemcpyAsync(row_slots_.data(), row_slots.data(), row_slots.size_bytes(),
                             cudaMemcpyHostToDevice, handle()));
    MustCuda(cudaMemcpyAsync(logits_.data(), logits.data(), logits.size_bytes(),
                             cudaMemcpyHostToDevice, handle()));
  }

  void Launch() { Must(gpu_->Sample(params_, stream_)); }

  // One step of the slots on both sides; `logits` [rows, vocab_size] is scratch afterwards. Returns
  // how many rows differ, and says so for the first ones.
  int Compare(std::span<const int32_t> row_slots, std::span<float> logits,
              const std::string& what) {
    const bool any_samples = std::any_of(row_slots.begin(), row_slots.end(), [&](int32_t slot) {
      return slot >= 0 && !rules_[static_cast<size_t>(slot)].greedy;
    });
    params_.any_row_samples = any_samples;
    Upload(row_slots, logits);
    for (size_t r = 0; r < row_slots.size(); ++r) {
      params_.ids[r] = kUntouched;
      params_.log_probs[r] = params_.log_probs_all[r] = 77.0F;
    }
    Launch();
    std::vector<SampledToken> want(row_slots.size());
    for (size_t r = 0; r < row_slots.size(); ++r)
      if (row_slots[r] >= 0)
        want[r] = cpu_.Sample(row_slots[r], tokens(row_slots[r]),
                              logits.data() + r * static_cast<size_t>(vocab_size_));
    MustCuda(cudaStreamSynchronize(handle()));
    int num_wrong = 0;
    for (size_t r = 0; r < row_slots.size(); ++r) {
      const int slot = row_slots[r];
      if (slot < 0) {
        EXPECT_EQ(params_.ids[r], kUntouched) << what << ", padded row " << r;
        continue;
      }
      const bool right = params_.ids[r] == want[r].id &&
                         std::abs(params_.log_probs[r] - want[r].log_prob) <= 1e-5F &&
                         std::abs(params_.log_probs_all[r] - want[r].log_prob_all) <= 1e-5F;
      if (!right && num_wrong++ < 3)
        ADD_FAILURE() << what << ", row " << r << ": got id " << params_.ids[r] << " log-probs "
                      << params_.log_probs[r] << " " << params_.log_probs_all[r] << ", want "
                      << want[r].id << " " << want[r].log_prob << " " << want[r].log_prob_all
                      << "\n"
                      << Describe(rules_[static_cast<size_t>(slot)], tokens(slot).size());
      tokens(slot).push_back(want[r].id);
      cpu_.Append(slot, want[r].id);
    }
    return num_wrong;
  }

  // That the device's tokens of every slot are those of the host.
  void ExpectSameTokens() {
    std::vector<int32_t> num_tokens(static_cast<size_t>(max_slots_));
    std::vector<int32_t> all(static_cast<size_t>(max_slots_) * static_cast<size_t>(max_seq_len_));
    MustCuda(cudaMemcpy(num_tokens.data(), num_tokens_.data(), num_tokens.size() * 4,
                        cudaMemcpyDeviceToHost));
    MustCuda(cudaMemcpy(all.data(), device_tokens_.data(), all.size() * 4, cudaMemcpyDeviceToHost));
    for (int slot = 0; slot < max_slots_; ++slot) {
      ASSERT_EQ(num_tokens[static_cast<size_t>(slot)], static_cast<int>(tokens(slot).size()))
          << "slot " << slot;
      const auto* begin = all.data() + static_cast<int64_t>(slot) * max_seq_len_;
      ASSERT_EQ(std::vector<TokenId>(begin, begin + tokens(slot).size()), tokens(slot))
          << "slot " << slot;
    }
  }

 private:
  static std::string Describe(const SamplingRule& rule, size_t position) {
    return "greedy " + std::to_string(rule.greedy) + " top_k " + std::to_string(rule.top_k) +
           " top_p " + std::to_string(rule.top_p) + " min_p " + std::to_string(rule.min_p) +
           " temperature " + std::to_string(rule.temperature) + " repetition " +
           std::to_string(rule.repetition_penalty) + " presence " +
           std::to_string(rule.presence_penalty) + " frequency " +
           std::to_string(rule.frequency_penalty) + " position " + std::to_string(position);
  }

  Stream& stream_;
  const int max_slots_;
  const int vocab_size_;
  const int max_seq_len_;
  Sampler cpu_;
  std::unique_ptr<DeviceSampler> gpu_;
  std::vector<std::vector<TokenId>> tokens_;  // [max_slots], as they should be
  std::vector<SamplingRule> rules_;           // [max_slots]
  Buffer logits_, device_tokens_, num_tokens_, row_slots_;
  PinnedBuffer results_;
  DeviceSampleParams params_;
};

class DeviceSamplerTest : public testing::Test {
 protected:
  void SetUp() override { NEED_TEST_GPU(); }

  Device& device() { return *TestGpu().value(); }
  Stream& stream() {
    static auto* stream =
        Must(ops::cuda::CudaStream::Create(device(),
                                           {.weight_dtype = DType::kBF16,
                                            .dtype = DType::kBF16,
                                            .kv_dtype = DType::kBF16,
                                            .head_dim = 64,
                                            .num_heads = 4,
                                            .num_kv_heads = 4,
                                            .hidden_size = 256,
                                            .intermediate_size = 512},
                                           /*max_num_tokens=*/16, /*max_num_rows=*/16))
            .release();
    return *stream;
  }

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

  // P of each id when `rule` draws from `logits`, by the formula in double precision
  // (spec/engine.md 4.8). No two of them are equal.
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

// The same logits at every step, so that each rule decides what comes next: every one of these
// slots leaves what a slot without rules repeats.
TEST_F(DeviceSamplerTest, RulesDecideWhatComesNextAsOnTheCpu) {
  constexpr int kVocab = 1000;
  constexpr int kSteps = 40;
  std::vector<Request> requests(8);
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
  samplers.params().num_rows = 0;
  samplers.Launch();
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
