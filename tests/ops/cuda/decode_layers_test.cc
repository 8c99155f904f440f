// SPDX-License-Identifier: Apache-2.0
// All layers in one kernel beside the operators of which each has tests of its own, over the same
// weights and cache.
#include "ops/cuda/decode_layers.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "cuda_test.h"
#include "rope_table.h"
#include "tensor/element.h"

namespace inflight::ops {
namespace {

constexpr int kLayers = 2;

struct LayersCase {
  DType dtype = DType::kBF16;
  DType weights = DType::kI4;
  bool has_fp8_cache = false;
  bool has_bias = false;
  int num_heads = 4, num_kv_heads = 2, head_dim = 128;
  int hidden = 512, inner = 1536;
  int block_size = 64;
  std::vector<int> lengths = {1};
  int num_padded_rows = 0;
  bool has_table_rows = false;

  int Rows() const { return static_cast<int>(lengths.size()) + num_padded_rows; }
  int QWidth() const { return num_heads * head_dim; }
  int QkvWidth() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
};

// |a - b| / |b| over all elements.
double Distance(const Tensor& a, const Tensor& b) {
  double difference = 0, size = 0;
  for (int64_t i = 0; i < b.view().num_elements(); ++i) {
    difference += std::pow(double{a.Get(i)} - b.Get(i), 2);
    size += std::pow(double{b.Get(i)}, 2);
  }
  return std::sqrt(difference / size);
}

// Weights, caches and a batch of a case; twice what a step changes.
class TwoWays {
 public:
  TwoWays(const LayersCase& c, Device& device) : c_(c), device_(device) {
    MakeWeights();
    MakeBatch();
    residual_ = DeviceTensor(device, Entering());
    expected_residual_ = DeviceTensor(device, Entering());
    const auto output = [&](int width) {
      return DeviceTensor(device, c.dtype, Shape{c.Rows(), width});
    };
    q_ = output(c.QkvWidth()), attention_ = output(c.QWidth()), inner_ = output(c.inner);
    y_ = output(c.hidden), x_ = output(c.hidden), delta_ = output(c.hidden);
    gate_up_ = output(2 * c.inner);
  }

  ShapeClass ShapeOfStream() const {
    return {.weight_dtype = c_.weights,
            .dtype = c_.dtype,
            .kv_dtype = KvDType(),
            .head_dim = c_.head_dim,
            .num_heads = c_.num_heads,
            .num_kv_heads = c_.num_kv_heads,
            .hidden_size = c_.hidden,
            .intermediate_size = c_.inner};
  }
  DecodeLayersParams Params() const {
    return {.residual = residual_.view(),
            .layers = layers_,
            .final_norm = final_norm_,
            .norm_eps = kEps,
            .num_heads = c_.num_heads,
            .attention_scale = Scale(),
            .rope = RopeOf(),
            .batch = batch_->view(),
            .kv = caches_[0].view(),
            .q = q_.view(),
            .attention = attention_.view(),
            .inner = inner_.view(),
            .y = y_.view()};
  }
  // What enters the first layer, in place of what a launch has left.
  void EnterAgain() { residual_.CopyFrom(Entering()); }
  void RunOneByOne(cuda::CudaStream& stream);
  void Compare() const;

 private:
  static constexpr float kEps = 1e-5F;

  Tensor Entering() const { return Tensor::Random(c_.dtype, {c_.Rows(), c_.hidden}, 6); }
  DType KvDType() const { return c_.has_fp8_cache ? DType::kF8E4M3 : c_.dtype; }
  float Scale() const { return 1 / std::sqrt(static_cast<float>(c_.head_dim)); }
  Rope RopeOf() const { return {RopeStyle::kNeox, c_.head_dim, cos_sin_.view()}; }
  TensorView Keep(const Tensor& tensor) {
    kept_.emplace_back(device_, tensor);
    return kept_.back().view();
  }
  TensorView Vector(int n, float lowest, uint64_t seed) {
    Tensor v(DType::kF32, {n});
    Random random(seed);
    for (int i = 0; i < n; ++i) v.Set(i, lowest + random.Uniform());
    return Keep(v);
  }
  Weight RandomWeight(int n, int k);
  void MakeWeights();
  void MakeBatch();
  void RunLayer(int i, cuda::CudaStream& stream);
  void Norm(const TensorView& by, const TensorView& added, cuda::CudaStream& stream) const {
    Must(cuda::AddNorm({.residual = expected_residual_.view(),
                        .delta = added,
                        .norm = {NormKind::kRmsNorm, by, {}, kEps},
                        .y = x_.view()},
                       stream));
  }

  const LayersCase& c_;
  Device& device_;
  std::vector<DeviceTensor> kept_;
  std::vector<DecodeLayer> layers_;
  TensorView final_norm_;
  std::vector<DeviceCache> caches_;
  std::optional<DeviceBatch> batch_;
  DeviceTensor cos_sin_, residual_, expected_residual_, q_, attention_, inner_, y_, x_, delta_,
      gate_up_;
};

// Random bits are random codes in any order.
Weight TwoWays::RandomWeight(int n, int k) {
  const int bits = c_.weights == DType::kI4 ? 4 : 8;
  Random random(100 + kept_.size());
  Tensor codes(DType::kI8, {n, k * bits / 8});
  for (int64_t i = 0; i < codes.view().num_elements(); ++i)
    codes.view().as<int8_t>()[i] = static_cast<int8_t>(random.Below(256));
  Tensor scales(DType::kF32, {n});
  const float size = (bits == 4 ? 0.4F : 0.02F) / std::sqrt(static_cast<float>(k));
  for (int i = 0; i < n; ++i) scales.Set(i, size * (0.5F + random.Uniform()));
  return {.data = Keep(codes).data,
          .dtype = c_.weights,
          .layout = WeightLayout::kTensorCore,
          .out_features = n,
          .in_features = k,
          .scales = Keep(scales).as<const float>()};
}

void TwoWays::MakeWeights() {
  for (int i = 0; i < kLayers; ++i)
    layers_.push_back({.input_norm = Vector(c_.hidden, 0.5F, 1),
                       .post_norm = Vector(c_.hidden, 0.5F, 2),
                       .qkv = RandomWeight(c_.QkvWidth(), c_.hidden),
                       .qkv_bias = c_.has_bias ? Vector(c_.QkvWidth(), -0.5F, 3) : TensorView{},
                       .dense = RandomWeight(c_.hidden, c_.QWidth()),
                       .fc = RandomWeight(c_.inner, c_.hidden),
                       .gate = RandomWeight(c_.inner, c_.hidden),
                       .proj = RandomWeight(c_.hidden, c_.inner)});
  final_norm_ = Vector(c_.hidden, 0.5F, 4);
}

void TwoWays::MakeBatch() {
  const std::vector<float> scales =
      c_.has_fp8_cache ? std::vector<float>{0.02F, 0.01F, 0.03F, 0.02F} : std::vector<float>{};
  const KvShape shape = {.dtype = KvDType(),
                         .num_kv_heads = c_.num_kv_heads,
                         .head_dim = c_.head_dim,
                         .block_size = c_.block_size};
  const auto sequences = static_cast<int>(c_.lengths.size());
  for (int way = 0; way < 2; ++way) {
    DeviceCache& cache = caches_.emplace_back(device_, shape, c_.lengths, 5, scales);
    for (int layer = 0; layer < kLayers; ++layer)
      for (int s = 0; s < sequences; ++s)
        cache.Fill(layer, s, c_.lengths[static_cast<size_t>(s)] - 1,
                   static_cast<uint64_t>(10 * layer + s));
    cache.Upload();
  }
  std::vector<SequenceRow> rows;
  std::vector<int> of_rows, positions = {0};
  for (int s = 0; s < sequences; ++s) {
    rows.push_back({1, c_.lengths[static_cast<size_t>(s)]});
    of_rows.push_back(s);
    positions.push_back(rows.back().seq_len - 1);
  }
  batch_.emplace(device_, caches_[0], rows, of_rows,
                 DeviceBatchOptions{.num_padded_rows = c_.num_padded_rows,
                                    .use_table_rows = c_.has_table_rows});
  const int last = *std::max_element(positions.begin(), positions.end());
  cos_sin_ = DeviceTensor(device_, CosSinTable(c_.head_dim, last + 1, positions));
}

void TwoWays::RunLayer(int i, cuda::CudaStream& stream) {
  const DecodeLayer& layer = layers_[static_cast<size_t>(i)];
  const TensorView q = {q_.view().data, c_.dtype, {c_.Rows(), c_.num_heads, c_.head_dim}};
  const KvCacheView& kv = caches_[1].view();
  const auto linear = [&](const TensorView& from, const Weight& w) {
    Must(cuda::Linear({.x = {.values = from}, .weight = w, .y = delta_.view()}, stream));
  };
  Must(cuda::QkvRopeKv({.x = {.values = x_.view()},
                        .weight = layer.qkv,
                        .bias = layer.qkv_bias,
                        .num_heads = c_.num_heads,
                        .rope = RopeOf(),
                        .batch = batch_->view(),
                        .kv = kv,
                        .layer = i,
                        .workspace = q_.view(),
                        .q = q,
                        .q_stride = c_.QkvWidth()},
                       stream));
  Must(cuda::Attention({.q = q,
                        .q_stride = c_.QkvWidth(),
                        .batch = batch_->view(),
                        .kv = kv,
                        .layer = i,
                        .scale = Scale(),
                        .y = attention_.view()},
                       stream));
  linear(attention_.view(), layer.dense);
  Norm(layer.post_norm, delta_.view(), stream);
  Must(cuda::GatedLinear({.x = {.values = x_.view()},
                          .gate = layer.fc,
                          .up = layer.gate,
                          .y = inner_.view(),
                          .workspace = gate_up_.view()},
                         stream));
  linear(inner_.view(), layer.proj);
}

void TwoWays::RunOneByOne(cuda::CudaStream& stream) {
  Must(cuda::PlanAttention(
      {.batch = batch_->view(), .kv = caches_[1].view(), .num_heads = c_.num_heads}, stream));
  Norm(layers_[0].input_norm, {}, stream);
  for (int i = 0; i < kLayers; ++i) {
    RunLayer(i, stream);
    Norm(i + 1 < kLayers ? layers_[static_cast<size_t>(i) + 1].input_norm : final_norm_,
         delta_.view(), stream);
  }
  Must(stream.Synchronize());
}

void TwoWays::Compare() const {
  // Between operators values are rounded once more: some roundings of the dtype, of values that
  // flip to the next code of an FP8 cache some more.
  const double bound = (c_.dtype == DType::kF16 ? 0.004 : 0.02) + (c_.has_fp8_cache ? 0.03 : 0);
  EXPECT_LT(Distance(residual_.ToHost(), expected_residual_.ToHost()), bound);
  EXPECT_LT(Distance(y_.ToHost(), x_.ToHost()), bound);
  EXPECT_TRUE(Intact(residual_));
  EXPECT_TRUE(Intact(y_));
  EXPECT_TRUE(Intact(inner_));
  // The same keys and values were written, and no others.
  const std::vector<std::byte> got = caches_[0].Download(), expected = caches_[1].Download();
  double difference = 0, size = 0;
  for (size_t i = 0; i < got.size() / SizeOf(KvDType()); ++i) {
    const double a = LoadFloat(got.data(), KvDType(), static_cast<int64_t>(i));
    const double b = LoadFloat(expected.data(), KvDType(), static_cast<int64_t>(i));
    ASSERT_EQ(std::isnan(a), std::isnan(b)) << "element " << i;
    if (std::isnan(a) || a == b) continue;
    difference += std::pow(a - b, 2);
    size += std::pow(b, 2);
  }
  EXPECT_LE(std::sqrt(difference), 0.1 * std::sqrt(size) + 1e-9);
}

class DecodeLayersTest : public CudaTest {
 protected:
  void Check(const LayersCase& c, int launches = 1) {
    TwoWays ways(c, device());
    const auto stream = NewStream(ways.ShapeOfStream(), 16, 16);
    const DecodeLayersParams params = ways.Params();
    if (cuda::MostDecodeLayersRows(params, *stream) == 0)
      GTEST_SKIP() << "the kernel is for compute capability 9.0 alone";
    ASSERT_GE(cuda::MostDecodeLayersRows(params, *stream), c.Rows());
    for (int i = 0; i < launches; ++i) {
      ways.EnterAgain();
      Must(cuda::DecodeLayers(params, *stream));
      Must(stream->Synchronize());
    }
    ways.RunOneByOne(*stream);
    ways.Compare();
  }
};

TEST_F(DecodeLayersTest, EveryFormRowsAndLengths) {
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const DType weights : {DType::kI4, DType::kI8})
      for (const std::vector<int>& lengths :
           {std::vector<int>{1}, {17}, {300, 256}, {257, 1, 1000}, {5000, 64, 2, 513}}) {
        SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " " << DTypeName(weights) << " "
                                        << lengths.size() << " rows from " << lengths[0]);
        Check({.dtype = dtype, .weights = weights, .lengths = lengths});
        if (IsSkipped() || HasFailure()) return;
      }
}

TEST_F(DecodeLayersTest, ShapesOfModels) {
  // Heads of 64, eight for each of K and V, as in TinyLlama; of MHA; rows that end within a stage.
  Check({.num_heads = 16,
         .num_kv_heads = 2,
         .head_dim = 64,
         .hidden = 1024,
         .inner = 2816,
         .lengths = {70, 900}});
  Check({.num_heads = 4,
         .num_kv_heads = 4,
         .head_dim = 64,
         .hidden = 256,
         .inner = 640,
         .lengths = {33}});
  Check({.weights = DType::kI8,
         .num_heads = 40,
         .num_kv_heads = 40,
         .hidden = 5120,
         .inner = 13824,
         .lengths = {300, 20}});
  Check({.num_heads = 32,
         .num_kv_heads = 8,
         .hidden = 4096,
         .inner = 14336,
         .lengths = {300, 20, 2049}});
}

TEST_F(DecodeLayersTest, FP8CacheBiasPaddingAndLinesOfTheTable) {
  Check({.has_fp8_cache = true, .lengths = {40, 700}});
  Check({.dtype = DType::kF16, .has_fp8_cache = true, .head_dim = 64, .lengths = {40, 700}});
  Check({.has_bias = true, .lengths = {9, 90}, .num_padded_rows = 1, .has_table_rows = true});
  Check({.block_size = 16, .lengths = {100, 400}, .has_table_rows = true});
}

// The counters of barriers and of split rows are zeros again behind a launch.
TEST_F(DecodeLayersTest, ManyLaunchesOnOneStream) {
  Check({.lengths = {1}}, 20);
  Check({.lengths = {2000, 3}}, 20);
}

}  // namespace
}  // namespace inflight::ops
