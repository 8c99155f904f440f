// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>

#include "cuda_test.h"
#include "rope_table.h"
#include "tensor/element.h"

namespace inflight::ops {
namespace {

constexpr int kLayer = 1;
constexpr float kFactor = 0.5F;  // of pending scales of tokens
constexpr float kNormEps = 1e-3F;

struct RopeCase {
  DType dtype = DType::kBF16;
  bool has_fp8_cache = false;
  int num_heads = 8;
  int num_kv_heads = 2;
  int head_dim = 128;
  RopeStyle style = RopeStyle::kNeox;
  int rotary_dim = 128;
  int block_size = 64;
  bool has_bias = false;
  bool is_raw = false;  // scales are pending
  bool q_is_elsewhere = false;
  bool has_long_rows = false;  // as attention reads heads of a size that it has no kernel for
  bool has_norm = false;       // of heads of q and k
  bool is_wide = false;        // of all heads of q together, and of all of k
  int offset = 0;              // of the workspace and q
  int last_position = 8191;    // the rows of the table end behind it

  int Row() const { return has_long_rows ? CudaRowDim(head_dim) : head_dim; }
};

class CudaRopeKvTest : public CudaTest {
 protected:
  void Check(const RopeCase& c);
};

// A value before it is stored, and what float32 may have made of it.
struct Exact {
  double value = 0;
  double bound = 0;
};

// Feature `column` of token t with pending scales and bias.
class ProjectedRows {
 public:
  ProjectedRows(const RopeCase& c, const Tensor& rows, const Tensor& tokens, const Tensor& features,
                const Tensor& bias, const Tensor& q_norm, const Tensor& k_norm)
      : c_(c),
        rows_(rows),
        tokens_(tokens),
        features_(features),
        bias_(bias),
        q_norm_(q_norm),
        k_norm_(k_norm) {}

  Exact At(int64_t t, int64_t column) const {
    double x = rows_.Get(t * rows_.view().shape[1] + column);
    if (c_.is_raw) x *= kFactor * double{tokens_.Get(t)} * double{features_.Get(column)};
    const double b = c_.has_bias ? bias_.Get(column) : 0;
    return {x + b, 4 * kUnit * (std::abs(x) + std::abs(b))};
  }

  // Element d of a head of q or k whose features start at `first`, after its norm.
  Exact Normed(int64_t t, int64_t first, int d) const {
    const Exact x = At(t, first + d);
    if (!c_.has_norm) return x;
    const int64_t q_width = int64_t{c_.num_heads} * c_.head_dim;
    const bool is_q = first < q_width;
    int64_t begin = first;
    int64_t size = c_.head_dim;
    if (c_.is_wide) {
      begin = is_q ? 0 : q_width;
      size = is_q ? q_width : int64_t{c_.num_kv_heads} * c_.head_dim;
    }
    double squares = 0;
    double errors = 0;  // of the squares
    for (int64_t i = 0; i < size; ++i) {
      const Exact other = At(t, begin + i);
      squares += other.value * other.value;
      errors += 2 * std::abs(other.value) * other.bound + other.bound * other.bound;
    }
    const auto elements = static_cast<double>(size);
    const float weight = (is_q ? q_norm_ : k_norm_).Get(first - begin + d);
    const double scale = weight / std::sqrt(squares / elements + double{kNormEps});
    const double relative = errors / (squares + 1e-30) + (elements + 8) * kUnit;
    return {x.value * scale, std::abs(scale) * x.bound + std::abs(x.value * scale) * relative};
  }

  // Element d of a head whose features start at `first`, rotated by the table's row of `position`.
  Exact Rotated(int64_t t, int64_t first, int d, const Tensor& cos_sin, int64_t position) const {
    const Exact x = Normed(t, first, d);
    if (c_.style == RopeStyle::kNone || d >= c_.rotary_dim) return x;
    const int half = c_.rotary_dim / 2;
    const bool is_neox = c_.style == RopeStyle::kNeox;
    const int j = is_neox ? d % half : d / 2;
    const bool is_second = is_neox ? d >= half : d % 2 == 1;
    const int partner = is_neox ? (is_second ? d - half : d + half) : (is_second ? d - 1 : d + 1);
    const Exact other = Normed(t, first, partner);
    const double cos = cos_sin.Get(position * 2 * half + j);
    const double sin = cos_sin.Get((position * 2 + 1) * half + j);
    const double a = x.value * cos;
    const double b = (is_second ? other.value : -other.value) * sin;
    return {a + b, x.bound * std::abs(cos) + other.bound * std::abs(sin) +
                       3 * kUnit * (std::abs(a) + std::abs(b))};
  }

 private:
  const RopeCase& c_;
  const Tensor& rows_;
  const Tensor& tokens_;
  const Tensor& features_;
  const Tensor& bias_;
  const Tensor& q_norm_;
  const Tensor& k_norm_;
};

// Rows of q: rotated, with poison behind them where they are elsewhere.
void ExpectQueries(const RopeCase& c, const ProjectedRows& projected, const Tensor& got_rows,
                   const Tensor& cos_sin, const std::vector<int>& positions) {
  const auto num_tokens = static_cast<int64_t>(positions.size());
  const int64_t q_width = int64_t{c.num_heads} * c.Row();
  const int64_t q_stride = got_rows.view().shape[1];
  for (int64_t t = 0; t < num_tokens; ++t) {
    const int64_t position = positions[static_cast<size_t>(t)];
    for (int64_t h = 0; h < c.num_heads; ++h)
      for (int d = 0; d < c.Row(); ++d) {
        const Exact want =
            d < c.head_dim ? projected.Rotated(t, h * c.head_dim, d, cos_sin, position) : Exact{};
        ASSERT_NEAR(got_rows.Get(t * q_stride + h * c.Row() + d), want.value,
                    AfterRounding(want.bound, want.value, c.dtype))
            << "q of token " << t << " head " << h << " dim " << d;
      }
    if (!c.q_is_elsewhere) continue;
    for (int64_t i = q_width; i < q_stride; ++i)
      ASSERT_TRUE(std::isnan(got_rows.Get(t * q_stride + i))) << "behind q of token " << t;
  }
}

// The whole pool: what was to be written, and the poison of everything else.
void ExpectCache(const RopeCase& c, const ProjectedRows& projected, const DeviceCache& cache,
                 const std::vector<float>& scales, const std::vector<int64_t>& slots,
                 const Tensor& cos_sin, const std::vector<int>& positions) {
  const auto num_tokens = static_cast<int64_t>(positions.size());
  const int64_t q_width = int64_t{c.num_heads} * c.head_dim;
  const int64_t k_width = int64_t{c.num_kv_heads} * c.head_dim;
  const std::vector<std::byte> pool = cache.Download();
  const DType kv_dtype = cache.view().dtype;
  const size_t element_bytes = SizeOf(kv_dtype);
  std::vector<bool> is_written(pool.size() / element_bytes, false);
  for (int64_t t = 0; t < num_tokens; ++t)
    for (const bool is_value : {false, true})
      for (int h = 0; h < c.num_kv_heads; ++h)
        for (int d = 0; d < c.Row(); ++d) {
          const int64_t first = q_width + (is_value ? k_width : 0) + int64_t{h} * c.head_dim;
          Exact want;
          if (d < c.head_dim)
            want = is_value
                       ? projected.At(t, first + d)
                       : projected.Rotated(t, first, d, cos_sin, positions[static_cast<size_t>(t)]);
          const int64_t i =
              cache.ElementIndex(kLayer, slots[static_cast<size_t>(t)], is_value, h, d);
          is_written[static_cast<size_t>(i)] = true;
          const float got = LoadFloat(pool.data(), kv_dtype, i);
          if (c.has_fp8_cache) {
            const double scale = scales[is_value ? 3 : 2];
            const Tensor code = Tensor::Of(DType::kF8E4M3, {1}, {got});
            ASSERT_TRUE(
                NearestCodes(code, {want.value / scale},
                             {want.bound / scale + 4 * kUnit * std::abs(want.value / scale)}))
                << (is_value ? "value" : "key") << " of token " << t << " head " << h << " dim "
                << d;
          } else {
            ASSERT_NEAR(got, want.value, AfterRounding(want.bound, want.value, c.dtype))
                << (is_value ? "value" : "key") << " of token " << t << " head " << h << " dim "
                << d;
          }
        }
  for (size_t i = 0; i < pool.size(); ++i) {
    const bool is_as_expected = is_written[i / element_bytes] || pool[i] == std::byte{0xff};
    ASSERT_TRUE(is_as_expected) << "byte " << i << " of the pool was written";
  }
}

void CudaRopeKvTest::Check(const RopeCase& c) {
  SCOPED_TRACE(testing::Message() << DTypeName(c.dtype) << " fp8 cache " << c.has_fp8_cache
                                  << " heads " << c.num_heads << "/" << c.num_kv_heads << " of "
                                  << c.head_dim << " style " << static_cast<int>(c.style)
                                  << " rotary_dim " << c.rotary_dim << " block_size "
                                  << c.block_size << " bias " << c.has_bias << " raw " << c.is_raw
                                  << " norm " << c.has_norm << " wide " << c.is_wide
                                  << " q elsewhere " << c.q_is_elsewhere << " offset " << c.offset);
  // First positions, the last, and a padded row whose slot is in the scratch block.
  const std::vector<int> positions = {0, 1, 8191, c.last_position, 77, 2, 4096, 0};
  const int num_tokens = static_cast<int>(positions.size());
  const int64_t q_width = int64_t{c.num_heads} * c.head_dim;
  const int64_t k_width = int64_t{c.num_kv_heads} * c.head_dim;
  const int64_t width = q_width + 2 * k_width;
  const Tensor rows = Tensor::Random(c.dtype, {num_tokens, width}, 1);
  const Tensor token_scales = Tensor::Random(DType::kF32, {num_tokens}, 2);
  const Tensor feature_scales = Tensor::Random(DType::kF32, {width}, 3);
  const Tensor bias = Tensor::Random(DType::kF32, {width}, 4);
  const Tensor q_norm = Tensor::Random(DType::kF32, {c.is_wide ? q_width : c.head_dim}, 6);
  const Tensor k_norm = Tensor::Random(DType::kF32, {c.is_wide ? k_width : c.head_dim}, 7);
  const bool has_rope = c.style != RopeStyle::kNone;
  const Tensor cos_sin =
      has_rope ? CosSinTable(c.rotary_dim, c.last_position + 1, positions) : Tensor();
  const std::vector<float> scales = {1, 1, 0.003F, 0.01F};  // keys beyond 448 * 0.003 saturate
  const DeviceCache cache(device(),
                          {c.has_fp8_cache ? DType::kF8E4M3 : c.dtype, c.num_kv_heads, c.head_dim,
                           c.block_size, c.Row()},
                          {3 * c.block_size, 2 * c.block_size}, 5,
                          c.has_fp8_cache ? scales : std::vector<float>{});
  std::vector<int64_t> slots;
  for (int t = 0; t + 1 < num_tokens; ++t)
    slots.push_back(t % 2 == 0 ? cache.Slot(0, t * c.block_size / 3 + t % 5)
                               : cache.Slot(1, t * c.block_size / 4 + t));
  slots.push_back(0);

  const DeviceTensor workspace = ToDevice(rows, c.offset);
  const DeviceTensor tokens = ToDevice(token_scales);
  const DeviceTensor features = ToDevice(feature_scales);
  const DeviceTensor device_bias = ToDevice(bias);
  const DeviceTensor device_q_norm = ToDevice(q_norm);
  const DeviceTensor device_k_norm = ToDevice(k_norm);
  const DeviceTensor table = has_rope ? ToDevice(cos_sin) : DeviceTensor();
  const DeviceTensor device_positions = ToDevice(Tensor::Int32(positions));
  const DeviceTensor device_slots = ToDevice(Tensor::Int64(slots));
  const int64_t q_stride = c.q_is_elsewhere ? int64_t{c.num_heads} * c.Row() + 24 : width;
  const DeviceTensor other_q = Output(c.dtype, {num_tokens, q_stride}, c.offset);
  QkvRopeKvParams params = {
      .bias = c.has_bias ? device_bias.view() : TensorView{},
      .num_heads = c.num_heads,
      .q_norm = c.has_norm ? device_q_norm.view() : TensorView{},
      .k_norm = c.has_norm ? device_k_norm.view() : TensorView{},
      .norm_eps = kNormEps,
      .rope = {.style = c.style, .rotary_dim = c.rotary_dim, .cos_sin = table.view()},
      .batch = {.num_rows = num_tokens,
                .num_tokens = num_tokens,
                .positions = device_positions.view(),
                .slot_mapping = device_slots.view()},
      .kv = cache.view(),
      .layer = kLayer,
      .workspace = workspace.view(),
      .q = c.q_is_elsewhere ? other_q.view() : workspace.view(),
      .q_stride = q_stride};
  params.q.shape = {num_tokens, c.num_heads, c.Row()};
  PendingScales pending;
  if (c.is_raw) pending = {tokens.view(), features.view().as<const float>(), kFactor};
  ASSERT_EQ(cuda::RopeKv(params, pending, stream()), Status::Ok());

  const ProjectedRows projected(c, rows, token_scales, feature_scales, bias, q_norm, k_norm);
  const Tensor got_rows = c.q_is_elsewhere ? other_q.ToHost() : workspace.ToHost();
  ExpectQueries(c, projected, got_rows, cos_sin, positions);
  ExpectCache(c, projected, cache, scales, slots, cos_sin, positions);
  EXPECT_TRUE(Intact(workspace));
  EXPECT_TRUE(Intact(other_q));
}

TEST_F(CudaRopeKvTest, HeadsAndStyles) {
  const std::vector<RopeCase> cases = {
      {.last_position = 131071},
      {.num_heads = 4, .num_kv_heads = 4, .head_dim = 64, .rotary_dim = 64, .block_size = 16},
      {.num_heads = 5, .num_kv_heads = 1, .head_dim = 80, .rotary_dim = 80},
      {.num_heads = 5, .num_kv_heads = 1, .head_dim = 80, .rotary_dim = 32},
      {.num_heads = 3, .num_kv_heads = 3, .head_dim = 96, .rotary_dim = 96, .block_size = 48},
      {.num_heads = 4, .num_kv_heads = 2, .head_dim = 256, .rotary_dim = 256},
      {.num_heads = 2,
       .num_kv_heads = 1,
       .style = RopeStyle::kGptj,
       .rotary_dim = 64,
       .last_position = 131071},
      {.num_heads = 3,
       .num_kv_heads = 1,
       .head_dim = 256,
       .style = RopeStyle::kGptj,
       .rotary_dim = 256},
      {.num_heads = 12,
       .num_kv_heads = 12,
       .head_dim = 64,
       .style = RopeStyle::kNone,
       .rotary_dim = 0},
      // Not whole vectors:
      {.num_heads = 2, .num_kv_heads = 1, .head_dim = 24, .rotary_dim = 24},
      {.num_heads = 3,
       .num_kv_heads = 1,
       .head_dim = 40,
       .style = RopeStyle::kGptj,
       .rotary_dim = 10},
      {.num_heads = 4, .num_kv_heads = 1, .rotary_dim = 20, .last_position = 131071},
      {.num_heads = 3, .num_kv_heads = 2, .head_dim = 64, .rotary_dim = 64, .offset = 1},
  };
  for (const RopeCase& base : cases)
    for (const DType dtype : {DType::kF16, DType::kBF16})
      for (const bool has_fp8_cache : {false, true}) {
        RopeCase c = base;
        c.dtype = dtype;
        c.has_fp8_cache = has_fp8_cache;
        Check(c);
      }
}

TEST_F(CudaRopeKvTest, BiasPendingScalesAndThePlaceOfQ) {
  for (int flags = 0; flags < 8; ++flags)
    for (const RopeStyle style : {RopeStyle::kNone, RopeStyle::kNeox, RopeStyle::kGptj})
      for (const int head_dim : {24, 64})
        Check({.num_heads = 4,
               .num_kv_heads = 2,
               .head_dim = head_dim,
               .style = style,
               .rotary_dim = style == RopeStyle::kNone ? 0 : head_dim,
               .has_bias = (flags & 1) != 0,
               .is_raw = (flags & 2) != 0,
               .q_is_elsewhere = (flags & 4) != 0});
}

// Zeros stand behind heads of sizes that attention has no kernel for.
TEST_F(CudaRopeKvTest, HeadsOfOtherSizes) {
  for (const int head_dim : {8, 24, 48, 72, 112, 160})
    for (const RopeStyle style : {RopeStyle::kNone, RopeStyle::kNeox, RopeStyle::kGptj})
      for (int flags = 0; flags < 16; ++flags)
        Check({.has_fp8_cache = (flags & 8) != 0,
               .num_heads = 3,
               .num_kv_heads = 3 - flags % 3,
               .head_dim = head_dim,
               .style = style,
               .rotary_dim = style == RopeStyle::kNone ? 0 : head_dim - flags % 2 * 4,
               .has_bias = (flags & 1) != 0,
               .is_raw = (flags & 2) != 0,
               .q_is_elsewhere = true,
               .has_long_rows = true,
               .has_norm = (flags & 4) != 0,
               .is_wide = flags % 3 == 0});
}

// The head sizes that attention has, so that a head's threads lie in one warp, in two, and in CTAs
// that end with idle ones.
TEST_F(CudaRopeKvTest, HeadsAreNormalisedBeforeTheyRotate) {
  for (const int head_dim : {64, 80, 96, 128, 256})
    for (const RopeStyle style : {RopeStyle::kNone, RopeStyle::kNeox, RopeStyle::kGptj})
      for (int flags = 0; flags < 16; ++flags)
        Check({.has_fp8_cache = (flags & 8) != 0,
               .num_heads = 5,
               .num_kv_heads = 2,
               .head_dim = head_dim,
               .style = style,
               .rotary_dim = style == RopeStyle::kNone ? 0 : head_dim,
               .has_bias = (flags & 1) != 0,
               .is_raw = (flags & 2) != 0,
               .q_is_elsewhere = (flags & 4) != 0,
               .has_norm = true});
  Check({.num_heads = 32, .num_kv_heads = 8, .has_norm = true, .last_position = 131071});
  Check({.dtype = DType::kF16, .rotary_dim = 64, .has_norm = true});
}

TEST_F(CudaRopeKvTest, AllHeadsAreNormalisedTogether) {
  for (const int head_dim : {64, 80, 128, 256})
    for (const RopeStyle style : {RopeStyle::kNone, RopeStyle::kNeox, RopeStyle::kGptj})
      for (int flags = 0; flags < 16; ++flags)
        Check({.has_fp8_cache = (flags & 8) != 0,
               .num_heads = 5,
               .num_kv_heads = flags == 5 ? 1 : 2,
               .head_dim = head_dim,
               .style = style,
               .rotary_dim = style == RopeStyle::kNone ? 0 : head_dim,
               .has_bias = (flags & 1) != 0,
               .is_raw = (flags & 2) != 0,
               .q_is_elsewhere = (flags & 4) != 0,
               .has_norm = true,
               .is_wide = true});
  Check({.num_heads = 32, .num_kv_heads = 32, .has_norm = true, .is_wide = true});
  Check({.dtype = DType::kF16, .rotary_dim = 64, .has_norm = true, .is_wide = true});
}

TEST_F(CudaRopeKvTest, WhatDoesNotFitIsRefused) {
  const DeviceCache cache(device(), {DType::kBF16, 1, 64, 16}, {16}, 1);
  QkvRopeKvParams params = {.num_heads = 1,
                            .kv = cache.view(),
                            .workspace = {.dtype = DType::kF16, .shape = {0, 192}},
                            .q = {.dtype = DType::kF16, .shape = {0, 1, 64}}};
  params.batch.slot_mapping = {.dtype = DType::kI64, .shape = {0}};
  EXPECT_EQ(cuda::RopeKv(params, {}, stream()).code(), StatusCode::kInvalidArgument);
  params.kv.dtype = DType::kF16;
  EXPECT_EQ(cuda::RopeKv(params, {}, stream()), Status::Ok());  // no tokens, no work
  params.layer = 2;
  EXPECT_EQ(cuda::RopeKv(params, {}, stream()), InvalidArgument("layer: got 2, needed [0, 2)"));
}

}  // namespace
}  // namespace inflight::ops
