// SPDX-License-Identifier: Apache-2.0
// Operators of a stream of OpChoice::kFixed: a token's results have the same bits among few tokens
// and many, in a chunk that begins anywhere, and as a decode row.
#include <cmath>

#include "cuda_test.h"

namespace inflight::ops {
namespace {

using cuda::GemmParams;

// Values [first, first + count).
std::vector<float> Part(const std::vector<float>& values, int64_t first, int64_t count) {
  return {values.begin() + first, values.begin() + first + count};
}

struct FixedProduct {
  DType dtype, y_dtype;
  int64_t n, k;
};

class FixedProductTest : public CudaTest {
 protected:
  // Products of `num_rows` rows against those of some of them.
  void Compare(const FixedProduct& p, int64_t num_rows, const std::vector<int64_t>& counts) {
    const auto fixed = NewStream(kShape, 64, 64, OpChoice::kFixed);
    SCOPED_TRACE(std::string(DTypeName(p.dtype)) + " to " + std::string(DTypeName(p.y_dtype)) +
                 " " + std::to_string(p.n) + " x " + std::to_string(p.k));
    const DeviceTensor x = ToDevice(Tensor::Random(p.dtype, {num_rows, p.k}, 1));
    const DeviceTensor w = ToDevice(Tensor::Random(p.dtype, {p.n, p.k}, 2));
    const auto rows_of = [&](int64_t first, int64_t count, cuda::CudaStream& stream) {
      const DeviceTensor y = Output(p.y_dtype, {count, p.n});
      const GemmParams params = {
          .x = x.view().as<std::byte>() + first * p.k * static_cast<int64_t>(SizeOf(p.dtype)),
          .w = w.view().data,
          .y = y.view().data,
          .dtype = p.dtype,
          .y_dtype = p.y_dtype,
          .m = count,
          .n = p.n,
          .k = p.k};
      EXPECT_EQ(cuda::Gemm(params, stream), Status::Ok());
      return y.ToHost().ToFloats();
    };
    const std::vector<float> all = rows_of(0, num_rows, *fixed);
    for (const int64_t count : counts) {
      const int64_t first = count * 37 % (num_rows - count + 1);
      ASSERT_TRUE(SameBits(rows_of(first, count, *fixed), Part(all, first * p.n, count * p.n)))
          << count << " rows from " << first;
    }
    // The same numbers as without.
    const std::vector<float> fastest = rows_of(0, num_rows, stream());
    double errors = 0;
    double squares = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      errors += std::pow(double{all[i]} - fastest[i], 2);
      squares += std::pow(double{fastest[i]}, 2);
    }
    EXPECT_LT(std::sqrt(errors / squares), 5e-3);
  }
};

TEST_F(FixedProductTest, ARowHasTheSameBitsAmongFewRowsAndMany) {
  // Narrow ones, whose sums the library likes to cut; rows of y that are not aligned.
  for (const FixedProduct& p : {FixedProduct{DType::kBF16, DType::kBF16, 264, 512},
                                {DType::kBF16, DType::kBF16, 128, 8192},
                                {DType::kBF16, DType::kF32, 1001, 1024},
                                {DType::kF16, DType::kF16, 512, 4096},
                                {DType::kF16, DType::kF32, 264, 2048},
                                {DType::kF8E4M3, DType::kBF16, 264, 4096},
                                {DType::kF8E4M3, DType::kF16, 1024, 1024},
                                {DType::kF8E4M3, DType::kF32, 128, 8192}})
    Compare(p, 1030, {1, 2, 3, 5, 8, 9, 16, 17, 31, 64, 65, 100, 130, 256, 300, 513});
}
// The same in little, for compute-sanitizer.
TEST_F(FixedProductTest, ARowHasTheSameBitsInANarrowProduct) {
  Compare({DType::kBF16, DType::kBF16, 40, 128}, 80, {1, 17, 65});
}

struct AttentionCase {
  DType dtype, kv_dtype;
  int head_dim, num_heads, num_kv_heads;
  SlidingWindow sliding = {};
};

class FixedAttentionTest : public CudaTest {
 protected:
  static constexpr int kLength = 400;  // of sequence 0; the other's is 333
  static constexpr int kLayer = 1;

  // Queries of each position of a sequence, the same ones in every batch.
  static float QueryAt(const AttentionCase& c, int sequence, int position, int64_t i) {
    const auto width = static_cast<uint64_t>(c.num_heads * c.head_dim);
    Random random(static_cast<uint64_t>(sequence * 1000 + position) * width +
                  static_cast<uint64_t>(i));
    return random.Uniform();
  }

  // The result of each row's tokens, [num_queries, width] each.
  std::vector<std::vector<float>> Run(const AttentionCase& c, const DeviceCache& cache,
                                      const std::vector<SequenceRow>& rows,
                                      const std::vector<int>& sequences, int num_padded_rows,
                                      cuda::CudaStream& stream) {
    const DeviceBatch batch(device(), cache, rows, sequences, {.num_padded_rows = num_padded_rows});
    const int64_t num_tokens = batch.view().num_tokens;
    const int64_t width = int64_t{c.num_heads} * c.head_dim;
    Tensor q(c.dtype, {num_tokens, c.num_heads, c.head_dim});
    int64_t token = 0;
    for (size_t r = 0; r < rows.size(); ++r)
      for (int i = 0; i < rows[r].num_queries; ++i, ++token)
        for (int64_t e = 0; e < width; ++e)
          q.Set(token * width + e,
                QueryAt(c, sequences[r], rows[r].seq_len - rows[r].num_queries + i, e));
    for (int64_t e = token * width; e < num_tokens * width; ++e) q.Set(e, 1);
    const DeviceTensor device_q = ToDevice(q);
    const DeviceTensor y = Output(c.dtype, {num_tokens, width});
    Must(cuda::PlanAttention(
        {.batch = batch.view(), .kv = cache.view(), .num_heads = c.num_heads, .sliding = c.sliding},
        stream));
    // Scores of such a spread move the running maximum at other keys in each row.
    Must(cuda::Attention({.q = device_q.view(),
                          .batch = batch.view(),
                          .kv = cache.view(),
                          .layer = kLayer,
                          .scale = 2,
                          .sliding = c.sliding,
                          .y = y.view()},
                         stream));
    const std::vector<float> values = y.ToHost().ToFloats();
    std::vector<std::vector<float>> results;
    int64_t at = 0;
    for (const SequenceRow& row : rows) {
      results.push_back(Part(values, at, row.num_queries * width));
      at += row.num_queries * width;
    }
    return results;
  }
};

TEST_F(FixedAttentionTest, ATokenHasTheSameBitsInEveryChunkAndAsADecodeRow) {
  constexpr AttentionCase kCases[] = {
      {DType::kBF16, DType::kBF16, 128, 8, 2},
      {DType::kF16, DType::kF16, 64, 20, 1},
      {DType::kBF16, DType::kF8E4M3, 256, 4, 2},
      {DType::kF16, DType::kF8E4M3, 80, 6, 6},
      {DType::kBF16, DType::kBF16, 96, 8, 2, {.window = 75, .num_sinks = 5}},
      {DType::kBF16, DType::kF8E4M3, 128, 8, 2, {.window = 130, .num_sinks = 70}}};
  for (const AttentionCase& c : kCases) {
    SCOPED_TRACE(std::to_string(c.head_dim) + " kv " + std::string(DTypeName(c.kv_dtype)));
    const ShapeClass shape = {.weight_dtype = c.dtype,
                              .dtype = c.dtype,
                              .kv_dtype = c.kv_dtype,
                              .head_dim = c.head_dim,
                              .num_heads = c.num_heads,
                              .num_kv_heads = c.num_kv_heads,
                              .hidden_size = 64,
                              .intermediate_size = 64};
    const std::vector<float> scales =
        c.kv_dtype == DType::kF8E4M3 ? std::vector<float>{1, 1, 0.5F, 0.25F} : std::vector<float>{};
    DeviceCache cache(device(), {c.kv_dtype, c.num_kv_heads, c.head_dim, 16}, {kLength, 333}, 3,
                      scales);
    cache.Fill(kLayer, 0, kLength, 4);
    cache.Fill(kLayer, 1, 333, 5);
    cache.Upload();
    const auto fastest = NewStream(shape, 1024, 64);
    const auto fixed = NewStream(shape, 1024, 64, OpChoice::kFixed);
    // Whole prompts, by the kernel that attention_test.cc holds to the formula.
    const std::vector<float> whole[] = {
        Run(c, cache, {{kLength, kLength}}, {0}, 0, *fastest).front(),
        Run(c, cache, {{333, 333}}, {1}, 0, *fastest).front()};
    const int64_t width = int64_t{c.num_heads} * c.head_dim;
    const auto expect_same = [&](const std::vector<SequenceRow>& rows,
                                 const std::vector<int>& sequences, int num_padded_rows) {
      const auto results = Run(c, cache, rows, sequences, num_padded_rows, *fixed);
      for (size_t r = 0; r < rows.size(); ++r) {
        const int first = rows[r].seq_len - rows[r].num_queries;
        ASSERT_TRUE(SameBits(results[r],
                             Part(whole[sequences[r]], first * width, rows[r].num_queries * width)))
            << "row " << r << " of " << rows.size() << ": positions from " << first;
      }
    };
    expect_same({{kLength, kLength}}, {0}, 0);
    for (const int position : {0, 1, 63, 64, 75, 130, 399})
      expect_same({{1, position + 1}}, {0}, /*num_padded_rows=*/position % 3);
    expect_same({{1, 400}, {1, 17}, {1, 333}, {1, 200}, {1, 201}}, {0, 1, 1, 0, 1}, 3);
    expect_same({{1, 65}, {1, 128}, {37, 200}, {100, 333}, {1, 2}, {150, 400}, {64, 64}},
                {0, 1, 0, 1, 0, 0, 1}, 0);
  }
}

}  // namespace
}  // namespace inflight::ops
