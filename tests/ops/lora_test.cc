// SPDX-License-Identifier: Apache-2.0
#include "ops/lora.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "cases.h"
#include "compare.h"
#include "ops/linear.h"

namespace inflight::ops {
namespace {

// Row-major factors [rank, width], in rows of LoraStride(width) with zeros behind.
class Factor {
 public:
  Factor(DType dtype, int rank, int64_t width, uint64_t seed)
      : rank_(rank),
        width_(width),
        values_(Tensor::Random(dtype, {rank, width}, seed)),
        padded_(dtype, {rank * LoraStride(width) + kLoraPadding}) {
    for (int64_t i = 0; i < padded_.view().num_elements(); ++i) padded_.Set(i, 0);
    for (int r = 0; r < rank; ++r)
      for (int64_t i = 0; i < width; ++i) padded_.Set(r * LoraStride(width) + i, Get(r, i));
  }
  float Get(int row, int64_t i) const { return values_.Get(row * width_ + i); }
  const void* data() const { return padded_.view().data; }
  int rank() const { return rank_; }

 private:
  int rank_;
  int64_t width_;
  Tensor values_, padded_;
};

// One part at one site of a model of one layer.
struct RandomPart {
  RandomPart(DType dtype, int rank, int64_t in, int64_t first, int64_t num, uint64_t seed)
      : a(dtype, rank, in, seed),
        b(dtype, rank, num, seed + 1),
        part{.a = a.data(),
             .b = b.data(),
             .dtype = dtype,
             .rank = rank,
             .in_features = in,
             .first_feature = first,
             .num_features = num} {}
  Factor a, b;
  LoraPart part;
};

struct Adapter {
  void Add(LoraSite site, RandomPart part) {
    parts.push_back(std::make_unique<RandomPart>(std::move(part)));
    table.Add(0, site, parts.back()->part);
  }
  void AddBias(LoraSite site, int64_t in, int64_t first, int64_t num, uint64_t seed) {
    Tensor& values = biases.emplace_back(Tensor::Random(DType::kF32, {num}, seed));
    table.Add(0, site,
              {.in_features = in,
               .first_feature = first,
               .num_features = num,
               .bias = values.view().as<const float>()});
  }
  LoraTable table{1};
  std::vector<std::unique_ptr<RandomPart>> parts;
  std::vector<Tensor> biases;
};

constexpr int kNone = -1;

// Of each row of one token or more: which of `adapters`, or kNone.
struct Row {
  int num_tokens;
  int adapter;
};

LoraBatch BatchOf(const std::vector<Adapter>& adapters, const std::vector<Row>& rows) {
  int num_tokens = 0;
  for (const Row& row : rows) num_tokens += row.num_tokens;
  LoraBatch batch;
  batch.Clear(num_tokens);
  int first = 0;
  for (const Row& row : rows) {
    if (row.adapter != kNone)
      batch.Add(&adapters[static_cast<size_t>(row.adapter)].table, first, row.num_tokens);
    first += row.num_tokens;
  }
  batch.Group();
  return batch;
}

const std::vector<Row>& MixedRows() {
  static const std::vector<Row> rows = {{1, 0}, {1, kNone}, {5, 1}, {1, 2}, {1, 0},     {70, 3},
                                        {1, 4}, {3, kNone}, {1, 5}, {2, 6}, {1, kNone}, {9, 7}};
  return rows;
}

int NumTokens(const std::vector<Row>& rows) {
  int n = 0;
  for (const Row& row : rows) n += row.num_tokens;
  return n;
}

class LoraTest : public testing::TestWithParam<DType> {
 protected:
  std::unique_ptr<Device> device_ = Device::Cpu(3);
  Stream stream_{*device_};
};

// x = (1, 2); W = ((1, 0), (0, 1), (1, 1)), bias = (0, 0, 1); A = ((1, -1)), B^T = ((2, 0, 1/2)):
// x A^T = -1, B(Ax) = (-2, 0, -1/2), so y = relu(-1, 2, 3.5) = (0, 2, 3.5); without: (1, 2, 4).
TEST_P(LoraTest, HandCheckedCase) {
  const DType dtype = GetParam();
  const Tensor x = Tensor::Of(InputDType(dtype), {2, 2}, {1, 2, 1, 2});
  const PackedWeight w(dtype, CpuWeightLayout(dtype),
                       Tensor::Of(dtype, {3, 2}, {1, 0, 0, 1, 1, 1}));
  const Tensor bias = Tensor::Of(DType::kF32, {3}, {0, 0, 1});
  std::vector<float> a(16);
  std::vector<float> b(32);
  a[0] = 1, a[1] = -1, b[0] = 2, b[2] = 0.5F;
  const Tensor a_rows = Tensor::Of(dtype, {16}, a);
  const Tensor b_rows = Tensor::Of(dtype, {32}, b);
  LoraTable adapter(1);
  adapter.Add(0, LoraSite::kProj,
              {.a = a_rows.view().data,
               .b = b_rows.view().data,
               .dtype = dtype,
               .rank = 1,
               .in_features = 2,
               .first_feature = 0,
               .num_features = 3});
  LoraBatch batch;
  batch.Clear(2);
  batch.Add(&adapter, 0, 1);
  batch.Group();
  for (const OpTable& table : CpuOpTables({.weight_dtype = dtype})) {
    Tensor y(DType::kF32, {2, 3});
    ASSERT_EQ(table.linear({.x = {.values = x.view()},
                            .weight = w.weight(),
                            .bias = bias.view(),
                            .activation = ActivationKind::kRelu,
                            .y = y.view(),
                            .lora = {&batch, 0},
                            .site = LoraSite::kProj},
                           stream_),
              Status::Ok());
    EXPECT_EQ(y.ToFloats(), (std::vector<float>{0, 2, 3.5F, 1, 2, 4})) << table.name;
  }
}

// Eight adapters of different ranks and tokens without any, in one linear whose outputs are in two
// ranges, as of q and v: each token is as if the factors were merged into the weight. Two have a
// bias besides, and one nothing but a bias.
TEST_P(LoraTest, AMixedBatchAgreesWithMergedWeights) {
  const DType dtype = GetParam();
  const int in = 88;
  const int out = 200;
  const int first_biased = 30;  // across panels
  const int num_biased = 101;
  std::vector<Adapter> adapters(8);
  const std::vector<int> ranks = {1, 2, 5, 16, 64, 256, 8, 3};
  for (size_t i = 0; i < adapters.size(); ++i) {
    const uint64_t seed = 100 * (i + 1);
    if (i < 3) adapters[i].AddBias(LoraSite::kQkv, in, first_biased, num_biased, seed + 20);
    if (i == 2) continue;
    adapters[i].Add(LoraSite::kQkv, {dtype, ranks[i], in, 0, 96, seed});
    adapters[i].Add(LoraSite::kQkv, {dtype, ranks[7 - i], in, 150, 50, seed + 10});
  }
  const std::vector<Row>& rows = MixedRows();
  LoraBatch batch = BatchOf(adapters, rows);
  const int num_tokens = NumTokens(rows);
  const Tensor x = Tensor::Random(InputDType(dtype), {num_tokens, in}, 7);
  const Tensor w = Tensor::Random(dtype, {out, in}, 8);
  const PackedWeight packed(dtype, CpuWeightLayout(dtype), w);
  std::vector<float> want;
  std::vector<double> bound;
  int token = 0;
  for (const Row& row : rows)
    for (int i = 0; i < row.num_tokens; ++i, ++token)
      for (int n = 0; n < out; ++n) {
        double sum = 0;
        double abs_sum = 0;
        const auto add = [&](double x_k, double weight) {
          sum += x_k * weight;
          abs_sum += std::abs(x_k * weight);
        };
        for (int k = 0; k < in; ++k) add(x.Get(token * in + k), w.Get(n * in + k));
        int rank = 0;
        if (row.adapter == 0 || row.adapter == 1 || row.adapter == 2) {
          const Tensor& bias = adapters[static_cast<size_t>(row.adapter)].biases[0];
          const int column = n - first_biased;
          if (column >= 0 && column < num_biased) add(1, bias.Get(column));
        }
        if (row.adapter != kNone)
          for (const auto& part : adapters[static_cast<size_t>(row.adapter)].parts) {
            const int64_t column = n - part->part.first_feature;
            if (column < 0 || column >= part->part.num_features) continue;
            rank += part->a.rank();
            for (int j = 0; j < part->a.rank(); ++j)
              for (int k = 0; k < in; ++k)
                add(x.Get(token * in + k),
                    static_cast<double>(part->b.Get(j, column)) * part->a.Get(j, k));
          }
        want.push_back(static_cast<float>(sum));
        // As of one long sum; a product more, B's, is rounded.
        bound.push_back(SumBound(in * (rank + 1) + rank + 1, abs_sum));
      }
  for (const OpTable& table : CpuOpTables({.weight_dtype = dtype})) {
    Tensor got(DType::kF32, {num_tokens, out});
    ASSERT_EQ(table.linear({.x = {.values = x.view()},
                            .weight = packed.weight(),
                            .y = got.view(),
                            .lora = {&batch, 0},
                            .site = LoraSite::kQkv},
                           stream_),
              Status::Ok());
    EXPECT_TRUE(Within(got.ToFloats(), want, bound)) << table.name << " " << DTypeName(dtype);
  }
}

// Whatever adapters others have: a token has the bits that it has alone, with its adapter or
// without one.
TEST_P(LoraTest, ATokenIsTheSameAloneAndAmongOtherAdapters) {
  const DType dtype = GetParam();
  const int in = 40;
  const int out = 130;
  std::vector<Adapter> adapters(8);
  for (size_t i = 0; i < adapters.size(); ++i)
    for (const LoraSite site : {LoraSite::kFc, LoraSite::kGate})
      if (i != 3 || site == LoraSite::kGate)  // one without the gate's factors
        adapters[i].Add(site, {dtype, static_cast<int>(3 * i + 1), in, 0, out, 50 * i + 3});
  adapters[1].AddBias(LoraSite::kFc, in, 0, out, 1);
  adapters[3].AddBias(LoraSite::kFc, in, 7, 100, 2);
  const std::vector<Row>& rows = MixedRows();
  LoraBatch batch = BatchOf(adapters, rows);
  const int num_tokens = NumTokens(rows);
  const Tensor x = Tensor::Random(InputDType(dtype), {num_tokens, in}, 7);
  const PackedWeight gate(dtype, CpuWeightLayout(dtype), Tensor::Random(dtype, {out, in}, 8));
  const PackedWeight up(dtype, CpuWeightLayout(dtype), Tensor::Random(dtype, {out, in}, 9));
  for (const OpTable& table : CpuOpTables({.weight_dtype = dtype})) {
    const auto run = [&](const TensorView& tokens, LoraBatch* lora, const TensorView& y) {
      ASSERT_EQ(table.gated_linear({.x = {.values = tokens},
                                    .gate = gate.weight(),
                                    .up = up.weight(),
                                    .y = y,
                                    .lora = {lora, 0}},
                                   stream_),
                Status::Ok());
    };
    Tensor together(DType::kF32, {num_tokens, out});
    run(x.view(), &batch, together.view());
    Tensor alone(DType::kF32, {num_tokens, out});
    int token = 0;
    for (const Row& row : rows)
      for (int i = 0; i < row.num_tokens; ++i, ++token) {
        const TensorView one = {
            x.view().as<std::byte>() + static_cast<size_t>(token) * in * SizeOf(x.view().dtype),
            x.view().dtype,
            {1, in}};
        const TensorView y = {alone.view().as<float>() + token * out, DType::kF32, {1, out}};
        LoraBatch single = BatchOf(adapters, {{1, row.adapter}});
        run(one, row.adapter == kNone ? nullptr : &single, y);
      }
    EXPECT_TRUE(SameBits(together.ToFloats(), alone.ToFloats())) << table.name;
  }
}

TEST_P(LoraTest, FactorsOfOtherWidthsAreRefused) {
  const DType dtype = GetParam();
  std::vector<Adapter> adapters(1);
  adapters[0].Add(LoraSite::kDense, {dtype, 2, 16, 0, 33, 1});
  LoraBatch batch = BatchOf(adapters, {{1, 0}});
  const Tensor x = Tensor::Random(InputDType(dtype), {1, 16}, 7);
  const PackedWeight w(dtype, CpuWeightLayout(dtype), Tensor::Random(dtype, {32, 16}, 8));
  for (const OpTable& table : CpuOpTables({.weight_dtype = dtype})) {
    Tensor y(DType::kF32, {1, 32});
    const Status status = table.linear({.x = {.values = x.view()},
                                        .weight = w.weight(),
                                        .y = y.view(),
                                        .lora = {&batch, 0},
                                        .site = LoraSite::kDense},
                                       stream_);
    EXPECT_EQ(status.message(),
              "lora: got rank 2 of 16 features to [0, 33), needed a rank in [1, 256] or a bias, "
              "16 features and at most 32")
        << table.name;
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, LoraTest, testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

}  // namespace
}  // namespace inflight::ops
