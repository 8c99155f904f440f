// SPDX-License-Identifier: Apache-2.0
// Adapters beside linears, against float64 on the host from the operands as rounded.
#include "ops/lora.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "cuda_test.h"
#include "linear_operands.h"
#include "ops/cuda/float32/kernels.h"
#include "product_bounds.h"

namespace inflight::ops {
namespace {

constexpr int kNoAdapter = -1;
constexpr int kLayers = 2;
constexpr int kLayer = 1;

Tensor BytesOfVector(const void* data, size_t num_bytes) {
  Tensor bytes(DType::kU8, {static_cast<int64_t>(num_bytes)});
  std::memcpy(bytes.view().data, data, num_bytes);
  return bytes;
}

// Row-major [rank, width] on the host, and in rows of LoraStride(width) on the device.
struct GpuFactor {
  GpuFactor(Device& device, DType dtype, int rank, int64_t width, uint64_t seed)
      : values(Tensor::Random(dtype, {rank, width}, seed)) {
    Tensor padded(dtype, {rank * LoraStride(width) + kLoraPadding});
    for (int64_t i = 0; i < padded.view().num_elements(); ++i) padded.Set(i, 0);
    for (int r = 0; r < rank; ++r)
      for (int64_t i = 0; i < width; ++i)
        padded.Set(r * LoraStride(width) + i, values.Get(r * width + i));
    on_device = DeviceTensor(device, padded);
  }
  Tensor values;
  DeviceTensor on_device;
};

struct GpuPart {
  int adapter;
  LoraSite site;
  int rank;
  int64_t first, num;
  std::unique_ptr<GpuFactor> a, b;
  struct Sum {
    double exact = 0, absolute = 0;
  };
  std::vector<Sum> sums = {};  // [tokens, rank]
};

struct GpuBias {
  GpuBias(Device& device, int of, LoraSite at, int64_t num, uint64_t seed)
      : adapter(of),
        site(at),
        values(Tensor::Random(DType::kF32, {num}, seed)),
        on_device(device, values) {}
  int adapter;
  LoraSite site;
  Tensor values;
  DeviceTensor on_device;
};

// Adapters with factors of the second of two layers, and what a step's tokens have of them.
class GpuAdapters {
 public:
  GpuAdapters(Device& device, DType dtype, int64_t in_features)
      : device_(device), dtype_(dtype), in_features_(in_features) {}

  void Add(int adapter, LoraSite site, int rank, int64_t first, int64_t num) {
    const uint64_t seed = 1000 + 10 * parts_.size();
    parts_.push_back({adapter, site, rank, first, num,
                      std::make_unique<GpuFactor>(device_, dtype_, rank, in_features_, seed),
                      std::make_unique<GpuFactor>(device_, dtype_, rank, num, seed + 1)});
    num_adapters_ = std::max(num_adapters_, adapter + 1);
  }

  // Of all outputs; after the factors of the site.
  void AddBias(int adapter, LoraSite site, int64_t num) {
    biases_.push_back(
        std::make_unique<GpuBias>(device_, adapter, site, num, 5000 + biases_.size()));
    num_adapters_ = std::max(num_adapters_, adapter + 1);
  }

  // Tokens in groups of their adapters, the last adapter first. `num_sums` rows of sums.
  LoraBatch* BatchOf(const std::vector<int>& tokens, int tile_tokens, int64_t num_sums) {
    std::vector<int32_t> order;
    std::vector<LoraTile> tiles;
    for (int adapter = num_adapters_; adapter-- > 0;) {
      const auto first = static_cast<int32_t>(order.size());
      for (size_t t = 0; t < tokens.size(); ++t)
        if (tokens[t] == adapter) order.push_back(static_cast<int32_t>(t));
      for (auto at = first; at < static_cast<int32_t>(order.size()); at += tile_tokens)
        tiles.push_back({.adapter = adapter,
                         .first = at,
                         .num = std::min(tile_tokens, static_cast<int>(order.size()) - at)});
    }
    std::vector<LoraDevicePart> table(static_cast<size_t>(num_adapters_ * kLayers) * kNumLoraSites *
                                      kMaxLoraParts);
    const auto free_place = [&](int adapter, LoraSite site) -> LoraDevicePart& {
      const int layer = adapter * kLayers + kLayer;
      auto at = static_cast<size_t>(layer * kNumLoraSites + static_cast<int>(site)) * kMaxLoraParts;
      while (table[at].num_features > 0) ++at;
      return table[at];
    };
    for (const GpuPart& part : parts_)
      free_place(part.adapter, part.site) = {.a = part.a->on_device.view().data,
                                             .b = part.b->on_device.view().data,
                                             .rank = part.rank,
                                             .first_feature = static_cast<int32_t>(part.first),
                                             .num_features = static_cast<int32_t>(part.num)};
    for (const auto& bias : biases_)
      free_place(bias->adapter, bias->site) = {
          .b = bias->on_device.view().data,
          .num_features = static_cast<int32_t>(bias->values.view().num_elements())};
    const auto num_tiles = static_cast<int32_t>(tiles.size());
    order.resize(tokens.size() + 1);
    tiles.resize(tokens.size() + 1);
    arrays_.clear();
    const auto upload = [&](const auto& values) {
      arrays_.emplace_back(device_,
                           BytesOfVector(values.data(), values.size() * sizeof(values[0])));
      return arrays_.back().view().data;
    };
    constexpr int64_t kStride = 2 * kMaxLoraRank * kMaxLoraParts;
    sums_ = DeviceTensor(device_, DType::kF32, {num_sums, kStride});
    batch_.device = {.parts = static_cast<const LoraDevicePart*>(upload(table)),
                     .num_layers = kLayers,
                     .order = static_cast<const int32_t*>(upload(order)),
                     .tiles = static_cast<const LoraTile*>(upload(tiles)),
                     .num_tiles = static_cast<const int32_t*>(upload(std::vector{num_tiles})),
                     .tile_tokens = tile_tokens,
                     .sums = sums_.view().as<float>(),
                     .num_sums = num_sums,
                     .sums_stride = kStride};
    return &batch_;
  }
  const DeviceTensor& sums() const { return sums_; }

  // Computes what the adapters of `tokens` make of x by A.
  void Shrink(const std::vector<int>& tokens, const Tensor& x) {
    for (GpuPart& part : parts_) {
      part.sums.assign(tokens.size() * static_cast<size_t>(part.rank), {});
      for (size_t t = 0; t < tokens.size(); ++t)
        for (int r = 0; tokens[t] == part.adapter && r < part.rank; ++r) {
          GpuPart::Sum& sum =
              part.sums[t * static_cast<size_t>(part.rank) + static_cast<size_t>(r)];
          for (int64_t k = 0; k < in_features_; ++k) {
            const double product =
                static_cast<double>(x.Get(static_cast<int64_t>(t) * in_features_ + k)) *
                part.a->values.Get(r * in_features_ + k);
            sum.exact += product;
            sum.absolute += std::abs(product);
          }
        }
    }
  }

  // After Shrink: what an adapter adds to output n of a site, exactly; *bound += what kernels may
  // be off.
  double Added(int adapter, LoraSite site, int64_t token, int64_t n, double* bound) const {
    double added = 0;
    double absolute = 0;
    int64_t rank = 0;
    for (const GpuPart& part : parts_) {
      const int64_t column = n - part.first;
      if (part.adapter != adapter || part.site != site || column < 0 || column >= part.num)
        continue;
      rank += part.rank;
      for (int r = 0; r < part.rank; ++r) {
        const GpuPart::Sum& sum = part.sums[static_cast<size_t>(token * part.rank + r)];
        const double b = part.b->values.Get(r * part.num + column);
        added += sum.exact * b;
        absolute += std::abs(sum.exact * b);
        // A sum is multiplied as two numbers of 11 bits.
        *bound += std::abs(b) * (ProductBound(dtype_, in_features_, sum.absolute) +
                                 0x1p-20 * std::abs(sum.exact));
      }
    }
    if (rank > 0) *bound += ProductBound(dtype_, 2 * rank, absolute);
    for (const auto& bias : biases_) {
      if (bias->adapter != adapter || bias->site != site) continue;
      const double value = bias->values.Get(n);
      *bound += kUnit * (std::abs(added) + std::abs(value));
      added += value;
    }
    return added;
  }

 private:
  Device& device_;
  const DType dtype_;
  const int64_t in_features_;
  int num_adapters_ = 0;
  std::vector<GpuPart> parts_;
  std::vector<std::unique_ptr<GpuBias>> biases_;
  std::vector<DeviceTensor> arrays_;
  DeviceTensor sums_;
  LoraBatch batch_;
};

// Of 45 tokens: eight adapters of one to twelve tokens, and tokens without.
std::vector<int> MixedTokens() {
  std::vector<int> tokens;
  for (int i = 0; i < 45; ++i) tokens.push_back(i % 5 == 3 ? kNoAdapter : i * i % 11 % 9 - 1);
  return tokens;
}

class CudaLoraOpTest : public CudaTest {
 protected:
  static constexpr int64_t kIn = 2088;  // two chunks and part of a third
  static constexpr int64_t kOut = 328;
  static constexpr int64_t kManySums = 4096;
  static constexpr DType kFloats[] = {DType::kBF16, DType::kF16, DType::kF32};

  // Ranks below, at and beyond a tile of them, in one range or two; adapter 5 has none here. Two
  // have biases too, and adapter 4 has one alone.
  static void AddParts(GpuAdapters* adapters, LoraSite site) {
    constexpr int kRanks[] = {1, 16, 64, 256, 0, 0, 33, 3};
    for (int i = 0; i < 8; ++i) {
      if (kRanks[i] == 0) continue;
      adapters->Add(i, site, kRanks[i], 0, i % 2 == 0 ? kOut : 96);
      if (i % 2 != 0) adapters->Add(i, site, kRanks[7 - i] + 1, 168, 160);
    }
    for (const int i : {4, 6, 7}) adapters->AddBias(i, site, kOut);
  }

  // MixedTokens through a linear of kOut x kIn whose adapters are those of AddParts.
  struct Mixed {
    Mixed(Device& device, DType dtype)
        : x(device, dtype, m, kIn, 1),
          w(device, dtype, kOut, kIn, 2),
          adapters(device, dtype, kIn),
          sums(device.cpu_pool(), x.values, w.values) {
      AddParts(&adapters, LoraSite::kProj);
      adapters.Shrink(tokens, x.values);
    }
    std::vector<int> tokens = MixedTokens();
    int64_t m = std::ssize(tokens);
    Operand x, w;
    GpuAdapters adapters;
    Sums sums;
  };

  Tensor Run(const Operand& x, const Operand& w, LoraBatch* batch,
             ActivationKind activation = ActivationKind::kNone, const TensorView& bias = {}) {
    const Shape shape = {x.values.view().shape[0], w.values.view().shape[0]};
    const DType dtype = x.values.view().dtype;
    const DeviceTensor y = Output(dtype, shape);
    const DeviceTensor workspace = Output(dtype, shape);
    const auto linear = dtype == DType::kF32 ? cuda::float32::Linear : cuda::Linear;
    EXPECT_EQ(linear({.x = x.activation(),
                      .weight = w.weight(),
                      .bias = bias,
                      .activation = activation,
                      .y = y.view(),
                      .lora = {batch, kLayer},
                      .site = LoraSite::kProj,
                      .workspace = workspace.view()},
                     stream()),
              Status::Ok());
    EXPECT_TRUE(Intact(y));
    return y.ToHost();
  }
};

TEST_F(CudaLoraOpTest, AMixedBatchAgreesWithMergedWeights) {
  for (const DType dtype : kFloats) {
    Mixed mixed(device(), dtype);
    auto& [tokens, m, x, w, adapters, sums] = mixed;
    const Tensor without = Run(x, w, nullptr);
    Tensor first;
    for (const int tile : {kSmallLoraTile, kLargeLoraTile})
      for (const int64_t num_sums : {kManySums, m}) {  // the latter: no chunks of their own
        const Tensor got = Run(x, w, adapters.BatchOf(tokens, tile, num_sums));
        EXPECT_TRUE(Intact(adapters.sums()));
        if (first.view().empty()) {
          std::vector<double> want, bound;
          for (int64_t t = 0; t < m; ++t)
            for (int64_t n = 0; n < kOut; ++n) {
              const auto at = static_cast<size_t>(t * kOut + n);
              double error =
                  AfterRounding(ProductBound(dtype, kIn, sums.absolute[at]), sums.exact[at], dtype);
              const double added =
                  adapters.Added(tokens[static_cast<size_t>(t)], LoraSite::kProj, t, n, &error);
              want.push_back(sums.exact[at] + added);
              bound.push_back(error + 4 * kUnit * (std::abs(sums.exact[at]) + std::abs(added)));
              const int adapter = tokens[static_cast<size_t>(t)];
              if (adapter == kNoAdapter || adapter == 5) {
                ASSERT_EQ(got.Get(t * kOut + n), without.Get(t * kOut + n)) << t << " " << n;
              }
            }
          EXPECT_TRUE(Near(got, want, bound)) << DTypeName(dtype);
          first = Run(x, w, adapters.BatchOf(tokens, tile, num_sums));
        }
        // However the work is cut.
        EXPECT_TRUE(SameBits(got.ToFloats(), first.ToFloats())) << tile << " " << num_sums;
      }
  }
}

TEST_F(CudaLoraOpTest, ATokenIsTheSameAloneAndAmongOthers) {
  const std::vector<int> tokens = MixedTokens();
  const auto m = static_cast<int64_t>(tokens.size());
  const DType dtype = DType::kBF16;
  GpuAdapters adapters(device(), dtype, kIn);
  AddParts(&adapters, LoraSite::kProj);
  const Tensor x = Tensor::Random(dtype, {m, kIn}, 1);
  const DeviceTensor device_x = ToDevice(x);
  const auto run = [&](const std::vector<int>& of, int64_t first, int tile) {
    Tensor zeros(dtype, {static_cast<int64_t>(of.size()), kOut});
    for (int64_t i = 0; i < zeros.view().num_elements(); ++i) zeros.Set(i, 0.25F);
    const DeviceTensor y = ToDevice(zeros);
    const cuda::LoraAddParams params = {.lora = adapters.BatchOf(of, tile, kManySums)->device,
                                        .layer = kLayer,
                                        .first_site = LoraSite::kProj,
                                        .dtype = dtype,
                                        .x = device_x.view().as<std::byte>() + first * kIn * 2,
                                        .in_features = kIn,
                                        .z = y.view().data,
                                        .y = y.view().data,
                                        .y_stride = kOut,
                                        .out_features = kOut,
                                        .num_tokens = static_cast<int>(of.size())};
    EXPECT_EQ(cuda::LoraShrink(params, stream()), Status::Ok());
    EXPECT_EQ(cuda::LoraExpand(params, stream()), Status::Ok());
    return y.ToHost().ToFloats();
  };
  const std::vector<float> together = run(tokens, 0, kLargeLoraTile);
  for (int64_t t = 0; t < m; ++t) {
    const std::vector<float> alone = run({tokens[static_cast<size_t>(t)]}, t, kSmallLoraTile);
    const auto at = together.begin() + static_cast<std::ptrdiff_t>(t * kOut);
    EXPECT_TRUE(SameBits(alone, {at, at + kOut})) << t;
  }
}

// So many that each CTA has items of its own of several kinds and tiles: steps follow each other
// within a tile and from one to the next.
TEST_F(CudaLoraOpTest, ManyAdaptersAddWhatEachAddsAlone) {
  constexpr int kAdapters = 70;
  constexpr int64_t kFirst = 4096;
  constexpr int64_t kWide = kFirst + 2056;
  const DType dtype = DType::kBF16;
  GpuAdapters adapters(device(), dtype, kIn);
  for (int a = 0; a < kAdapters; ++a) {
    if (a % 9 == 4) continue;  // it has none here
    adapters.Add(a, LoraSite::kQkv, 3 + a * 7 % 40, 0, kFirst);
    if (a % 3 != 0) adapters.Add(a, LoraSite::kQkv, 16, kFirst, kWide - kFirst);
    if (a % 4 == 0) adapters.AddBias(a, LoraSite::kQkv, kWide);
  }
  std::vector<int> tokens;
  for (int t = 0; t < 230; ++t)
    tokens.push_back(t % 23 == 7 ? kNoAdapter : t * t % 113 % kAdapters);
  const auto m = static_cast<int64_t>(tokens.size());
  const Tensor x = Tensor::Random(dtype, {m, kIn}, 1);
  const Tensor z = Tensor::Random(dtype, {m, kWide}, 2);
  const DeviceTensor device_x = ToDevice(x);
  const DeviceTensor device_z = ToDevice(z);
  adapters.Shrink(tokens, x);
  const auto run = [&](const std::vector<int>& of, int64_t first, int tile, int64_t num_sums) {
    const DeviceTensor y = ToDevice(z);
    const cuda::LoraAddParams params = {.lora = adapters.BatchOf(of, tile, num_sums)->device,
                                        .layer = kLayer,
                                        .first_site = LoraSite::kQkv,
                                        .dtype = dtype,
                                        .x = device_x.view().as<std::byte>() + first * kIn * 2,
                                        .in_features = kIn,
                                        .z = device_z.view().as<std::byte>() + first * kWide * 2,
                                        .y = y.view().data,
                                        .y_stride = kWide,
                                        .out_features = kWide,
                                        .num_tokens = static_cast<int>(of.size())};
    EXPECT_EQ(cuda::LoraShrink(params, stream()), Status::Ok());
    EXPECT_EQ(cuda::LoraExpand(params, stream()), Status::Ok());
    EXPECT_TRUE(Intact(adapters.sums()));
    return y.ToHost();
  };
  const Tensor together = run(tokens, 0, kSmallLoraTile, kManySums);
  std::vector<double> want, bound;
  for (int64_t t = 0; t < m; ++t)
    for (int64_t n = 0; n < kWide; ++n) {
      double error = 0;
      const double added =
          adapters.Added(tokens[static_cast<size_t>(t)], LoraSite::kQkv, t, n, &error);
      want.push_back(z.Get(t * kWide + n) + added);
      bound.push_back(error == 0 ? 0 : error + 4 * kUnit * std::abs(want.back()));
    }
  EXPECT_TRUE(Near(together, want, bound));
  const std::vector<float> floats = together.ToFloats();
  EXPECT_TRUE(SameBits(run(tokens, 0, kLargeLoraTile, kManySums).ToFloats(), floats));
  EXPECT_TRUE(SameBits(run(tokens, 0, kSmallLoraTile, m).ToFloats(), floats));
  for (const int64_t t : {0, 1, 111, 229}) {
    const std::vector<float> alone =
        run({tokens[static_cast<size_t>(t)]}, t, kSmallLoraTile, kManySums).ToFloats();
    const auto at = floats.begin() + t * kWide;
    // Columns without a part keep what y had.
    std::vector<float> got(alone.begin(), alone.begin() + kWide);
    std::vector<float> expected(at, at + kWide);
    for (size_t n = 0; n < got.size(); ++n) {
      double error = 0;
      adapters.Added(tokens[static_cast<size_t>(t)], LoraSite::kQkv, t, static_cast<int64_t>(n),
                     &error);
      if (error == 0) got[n] = expected[n] = 0;
    }
    EXPECT_TRUE(SameBits(got, expected)) << t;
  }
}

// Gate and up in one launch, of adapters that have both, one of them, or neither.
TEST_F(CudaLoraOpTest, TwoLinearsSideBySideHaveTheirOwnFactors) {
  constexpr int64_t kWidth = 136;
  const DType dtype = DType::kF16;
  GpuAdapters adapters(device(), dtype, kIn);
  adapters.Add(0, LoraSite::kFc, 16, 0, kWidth);
  adapters.Add(0, LoraSite::kGate, 24, 0, kWidth);
  adapters.Add(1, LoraSite::kGate, 5, 0, kWidth);
  adapters.Add(2, LoraSite::kFc, 9, 0, kWidth);
  adapters.Add(3, LoraSite::kProj, 9, 0, kWidth);
  adapters.AddBias(3, LoraSite::kGate, kWidth);
  adapters.AddBias(0, LoraSite::kFc, kWidth);
  const std::vector<int> tokens = {3, 2, 1, 0, kNoAdapter, 0, 1, 2, 3, 0};
  const auto m = static_cast<int64_t>(tokens.size());
  const Tensor x = Tensor::Random(dtype, {m, kIn}, 1);
  const Tensor z = Tensor::Random(dtype, {m, 2 * kWidth}, 2);
  adapters.Shrink(tokens, x);
  const DeviceTensor device_x = ToDevice(x);
  for (const int tile : {kSmallLoraTile, kLargeLoraTile}) {
    const DeviceTensor y = ToDevice(z);
    const cuda::LoraAddParams params = {.lora = adapters.BatchOf(tokens, tile, kManySums)->device,
                                        .layer = kLayer,
                                        .first_site = LoraSite::kFc,
                                        .num_sites = 2,
                                        .dtype = dtype,
                                        .x = device_x.view().data,
                                        .in_features = kIn,
                                        .z = y.view().data,
                                        .y = y.view().data,
                                        .y_stride = 2 * kWidth,
                                        .out_features = kWidth,
                                        .num_tokens = static_cast<int>(m)};
    ASSERT_EQ(cuda::LoraShrink(params, stream()), Status::Ok());
    ASSERT_EQ(cuda::LoraExpand(params, stream()), Status::Ok());
    std::vector<double> want, bound;
    for (int64_t t = 0; t < m; ++t)
      for (int64_t n = 0; n < 2 * kWidth; ++n) {
        double error = 0;
        const LoraSite site = n < kWidth ? LoraSite::kFc : LoraSite::kGate;
        const double added =
            adapters.Added(tokens[static_cast<size_t>(t)], site, t, n % kWidth, &error);
        want.push_back(z.Get(t * 2 * kWidth + n) + added);
        bound.push_back(error + 4 * kUnit * std::abs(want.back()));
      }
    EXPECT_TRUE(Near(y.ToHost(), want, bound)) << tile;
  }
}

// Tokens with adapters are activated after these are added; the others have the bits of a linear
// that knows no adapters.
TEST_F(CudaLoraOpTest, AnActivationComesAfterWhatAdaptersAdd) {
  constexpr double kSlope = 1.2, kFunctionError = 1e-4;  // as of linear_test.cc
  const Tensor bias = Tensor::Random(DType::kF32, {kOut}, 9);
  const DeviceTensor device_bias = ToDevice(bias);
  for (const DType dtype : kFloats) {
    Mixed mixed(device(), dtype);
    auto& [tokens, m, x, w, adapters, sums] = mixed;
    const Tensor without = Run(x, w, nullptr, ActivationKind::kGelu, device_bias.view());
    const Tensor got = Run(x, w, adapters.BatchOf(tokens, kSmallLoraTile, kManySums),
                           ActivationKind::kGelu, device_bias.view());
    std::vector<float> got_with;
    std::vector<double> want, bound;
    for (int64_t t = 0; t < m; ++t)
      for (int64_t n = 0; n < kOut; ++n) {
        const auto at = static_cast<size_t>(t * kOut + n);
        const int adapter = tokens[static_cast<size_t>(t)];
        if (adapter == kNoAdapter || adapter == 5) {
          ASSERT_EQ(got.Get(t * kOut + n), without.Get(t * kOut + n)) << t << " " << n;
          continue;
        }
        double error = 0;
        const double added = adapters.Added(adapter, LoraSite::kProj, t, n, &error);
        const bool is_changed = error > 0;
        error += AfterRounding(ProductBound(dtype, kIn, sums.absolute[at]), sums.exact[at], dtype);
        double sum = sums.exact[at] + added + bias.Get(n);
        error += 4 * kUnit * (std::abs(sums.exact[at]) + std::abs(added) + std::abs(sum));
        if (!is_changed) continue;  // rounded as the linear does
        const double y = 0.5 * sum * std::erfc(-sum / M_SQRT2);
        got_with.push_back(got.Get(t * kOut + n));
        want.push_back(y);
        bound.push_back(kSlope * error + kFunctionError * (std::abs(y) + 1e-3));
      }
    const Tensor compared = Tensor::Of(dtype, {static_cast<int64_t>(got_with.size())}, got_with);
    EXPECT_TRUE(Near(compared, want, bound)) << DTypeName(dtype);
  }
}

TEST_F(CudaLoraOpTest, WhatKernelsCannotReadIsRefused) {
  const Operand operand(device(), DType::kBF16, 16, 64, 1);
  const DeviceTensor floats = Output(DType::kF32, {16, 16});
  LoraBatch batch;
  EXPECT_EQ(cuda::Linear({.x = operand.activation(),
                          .weight = operand.weight(),
                          .y = floats.view(),
                          .lora = {&batch, 0}},
                         stream())
                .message(),
            "y: got float32, beside adapters it has the dtype of x, bfloat16");
  const DeviceTensor x = Output(DType::kBF16, {4, 64});
  cuda::LoraAddParams params = {.dtype = DType::kBF16,
                                .x = x.view().data,
                                .in_features = 60,
                                .z = x.view().data,
                                .y = x.view().data,
                                .y_stride = 64,
                                .out_features = 64,
                                .num_tokens = 4};
  EXPECT_THAT(std::string(cuda::LoraShrink(params, stream()).message()),
              testing::HasSubstr("lora: got 4 tokens of 60 features"));
  params.in_features = 64;
  params.dtype = DType::kF32;
  EXPECT_FALSE(cuda::LoraExpand(params, stream()).ok());
}

}  // namespace
}  // namespace inflight::ops
