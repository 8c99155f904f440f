// SPDX-License-Identifier: Apache-2.0
// The projection that starts attention against ops/reference, over the shared list of cases, for
// every kind of weight and cache.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "product_reference.h"
#include "rope_table.h"

namespace inflight::ops {
namespace {

constexpr int kLayer = 1;

class CudaSharedQkvTest : public CudaSharedProductsTest {
 protected:
  void Check(const QkvCase& c, const LinearDTypes& dtypes, DType kv_dtype);
};

// Where dimension d's partner in the rotation is; itself where nothing rotates.
int PartnerOf(const QkvCase& c, int d) {
  if (c.style == RopeStyle::kNone || d >= c.rotary_dim) return d;
  const int half = c.rotary_dim / 2;
  if (c.style == RopeStyle::kNeox) return d >= half ? d - half : d + half;
  return d % 2 == 1 ? d - 1 : d + 1;
}

// Bounds of the errors of what is stored, before it is rounded.
class QkvBounds {
 public:
  QkvBounds(const QkvCase& c, const LinearDTypes& dtypes, const Reference& reference,
            const Operand& x, const Operand& w, const Tensor& bias)
      : c_(c),
        reference_(reference),
        bias_(bias),
        projected_(reference.Bounds(dtypes, x, w, dtypes.model)) {}

  // A rotated element is a cos +- b sin: both factors at most 1, two products and a sum a side.
  double Rotated(int64_t t, int64_t head, int d) const {
    double bound = 0;
    double size = 0;
    const int partner = PartnerOf(c_, d);
    for (const int dim : {d, partner}) {
      const int64_t column = head * c_.head_dim + dim;
      const auto at = static_cast<size_t>(t * Width() + column);
      const double b = c_.bias ? bias_.Get(column) : 0;
      bound += AfterBias(projected_[at], reference_.sums.exact[at], b);
      size += std::abs(reference_.sums.exact[at]) + std::abs(b);
      if (partner == d) break;
    }
    return bound + 8 * kUnit * size;
  }
  // One of V, which nothing rotates.
  double Plain(int64_t t, int64_t head, int d) const {
    const auto at = static_cast<size_t>(t * Width() + head * c_.head_dim + d);
    return projected_[at] + 8 * kUnit * (std::abs(reference_.sums.exact[at]) + 1);
  }

 private:
  int64_t Width() const { return int64_t{c_.num_heads + 2 * c_.num_kv_heads} * c_.head_dim; }

  const QkvCase& c_;
  const Reference& reference_;
  const Tensor& bias_;                   // [width]
  const std::vector<double> projected_;  // [num_tokens, width]
};

void ExpectCache(const QkvCase& c, DType kv_dtype, int64_t num_tokens, const QkvBounds& bounds,
                 const DeviceCache& cache, const PagedCache& host_cache) {
  const std::vector<std::byte> pool_bytes = cache.Download();
  const size_t element = SizeOf(kv_dtype);
  for (const bool is_value : {false, true}) {
    Tensor got(kv_dtype, {num_tokens, c.num_kv_heads, c.head_dim});
    std::vector<double> wanted;
    std::vector<double> bound;
    int64_t t = 0;
    for (const int s : SequencesOf(c.rows)) {
      const SequenceRow& row = c.rows[static_cast<size_t>(s)];
      for (int p = row.seq_len - row.num_queries; p < row.seq_len; ++p, ++t)
        for (int h = 0; h < c.num_kv_heads; ++h)
          for (int d = 0; d < c.head_dim; ++d) {
            const int64_t from = cache.ElementIndex(kLayer, cache.Slot(s, p), is_value, h, d);
            std::memcpy(got.view().as<std::byte>() + wanted.size() * element,
                        pool_bytes.data() + static_cast<size_t>(from) * element, element);
            const int64_t head = c.num_heads + (is_value ? c.num_kv_heads : 0) + h;
            if (is_value) {
              wanted.push_back(host_cache.Value(kLayer, s, p, h, d));
              bound.push_back(bounds.Plain(t, head, d));
            } else {
              wanted.push_back(host_cache.Key(kLayer, s, p, h, d));
              bound.push_back(bounds.Rotated(t, head, d));
            }
          }
    }
    EXPECT_TRUE(kv_dtype == DType::kF8E4M3 ? NearestCodes(got, wanted, bound)
                                           : Near(got, wanted, bound))
        << (is_value ? "values" : "keys");
  }
}

void CudaSharedQkvTest::Check(const QkvCase& c, const LinearDTypes& dtypes, DType kv_dtype) {
  SCOPED_TRACE(std::string(c.name) + " " + Name(dtypes, 0) + " kv " +
               std::string(DTypeName(kv_dtype)));
  const std::vector<int> lengths = LengthsOf(c.rows);
  const std::vector<int> sequences = SequencesOf(c.rows);
  const int max_len = lengths.empty() ? 1 : *std::ranges::max_element(lengths);
  const int64_t width = int64_t{c.num_heads + 2 * c.num_kv_heads} * c.head_dim;
  const KvShape shape = {kv_dtype, c.num_kv_heads, c.head_dim, c.block_size};
  const DeviceCache cache(device(), shape, lengths, 5);
  const DeviceBatch batch(device(), cache, c.rows, sequences);
  const PagedCache host_cache({DType::kF32, c.num_kv_heads, c.head_dim, c.block_size}, lengths, 6);
  const BatchArrays host_batch(host_cache, c.rows, sequences);
  const int64_t num_tokens = batch.view().num_tokens;
  const Operand x(device(), dtypes.x, num_tokens, c.hidden_size, 1);
  const Operand w(device(), dtypes.w, width, c.hidden_size, 2);
  const Tensor bias = Tensor::Random(DType::kF32, {width}, 3);
  const DeviceTensor device_bias = ToDevice(bias);
  std::vector<int> positions(static_cast<size_t>(max_len));
  std::iota(positions.begin(), positions.end(), 0);
  const Tensor cos_sin =
      c.rotary_dim > 0 ? CosSinTable(c.rotary_dim, max_len, positions) : Tensor();
  const DeviceTensor device_cos_sin = c.rotary_dim > 0 ? ToDevice(cos_sin) : DeviceTensor();

  const DeviceTensor workspace = Output(dtypes.model, {num_tokens, width}, c.offset_elements);
  const DeviceTensor q =
      Output(dtypes.model, {num_tokens, c.num_heads, c.head_dim}, c.offset_elements);
  ASSERT_EQ(
      Ops(dtypes).qkv_rope_kv(
          {.x = x.activation(),
           .weight = w.weight(),
           .bias = c.bias ? device_bias.view() : TensorView{},
           .num_heads = c.num_heads,
           .rope = {.style = c.style, .rotary_dim = c.rotary_dim, .cos_sin = device_cos_sin.view()},
           .batch = batch.view(),
           .kv = cache.view(),
           .layer = kLayer,
           .workspace = workspace.view(),
           .q = q.view()},
          StreamOf(dtypes)),
      Status::Ok());
  const Reference reference(pool(), x, w, dtypes);
  const Tensor host_workspace(DType::kF32, {num_tokens, width});
  const Tensor host_q(DType::kF32, {num_tokens, c.num_heads, c.head_dim});
  ASSERT_EQ(ReferenceTable().qkv_rope_kv(
                {.x = {.values = reference.x.view()},
                 .weight = Float32Weight(reference.w),
                 .bias = c.bias ? bias.view() : TensorView{},
                 .num_heads = c.num_heads,
                 .rope = {.style = c.style, .rotary_dim = c.rotary_dim, .cos_sin = cos_sin.view()},
                 .batch = host_batch.view(),
                 .kv = host_cache.view(),
                 .layer = kLayer,
                 .workspace = host_workspace.view(),
                 .q = host_q.view()},
                host()),
            Status::Ok());

  const QkvBounds bounds(c, dtypes, reference, x, w, bias);
  std::vector<double> wanted = InFloat64(host_q);
  std::vector<double> bound;
  for (int64_t t = 0; t < num_tokens; ++t)
    for (int h = 0; h < c.num_heads; ++h)
      for (int d = 0; d < c.head_dim; ++d) bound.push_back(bounds.Rotated(t, h, d));
  EXPECT_TRUE(Near(q.ToHost(), wanted, bound)) << "q";
  EXPECT_TRUE(Intact(q));
  ExpectCache(c, kv_dtype, num_tokens, bounds, cache, host_cache);
}

TEST_F(CudaSharedQkvTest, QkvRopeKv) {
  for (const QkvCase& c : QkvCases())
    for (const LinearDTypes& dtypes : kModelDTypes) {
      if (!IsRun(c.gpu_only, dtypes) || !IsWhole(c.hidden_size, dtypes)) continue;
      Check(c, dtypes, dtypes.model);
      if (!IsFloat32(dtypes)) Check(c, dtypes, DType::kF8E4M3);
    }
}

}  // namespace
}  // namespace inflight::ops
