// SPDX-License-Identifier: Apache-2.0
// Linears of int8 and int4 weights with groups and offsets, and the kernels that read their codes,
// against sums in float64 of what the elements stand for.
#include "ops/cuda/skinny_integers.h"

#include <algorithm>
#include <cmath>

#include "cuda_test.h"
#include "linear_operands.h"
#include "ops/cuda/streamed_integers.h"
#include "ops/linear.h"
#include "ops/tensor_core_order.h"
#include "product_bounds.h"

namespace inflight::ops {
namespace {

using cuda::GemmParams;
using cuda::IntegersCut;

constexpr int64_t kMostTokens = 150;

std::vector<IntegersCut> IntegerCuts() {
  std::vector<IntegersCut> cuts;
  for (const int row_tiles : {1, 2, 3})
    for (const int split : {1, 4, 8})
      cuts.push_back({.row_tiles = row_tiles,
                      .split = split,
                      .stages = split == 1   ? 8
                                : split == 4 ? 2
                                             : 5});
  return cuts;
}

struct Form {
  DType dtype;
  int64_t group_size;  // 0: a scale per row
  bool has_offsets = false;
};
// Elements of 64 bytes of a row.
int64_t SlabOf(const Form& form) { return form.dtype == DType::kI4 ? 128 : 64; }
constexpr Form kForms[] = {
    {DType::kI4, 0},          {DType::kI4, 16, true},  {DType::kI4, 32, false},
    {DType::kI4, 32, true},   {DType::kI4, 64, true},  {DType::kI4, 128, false},
    {DType::kI4, 128, true},  {DType::kI4, 384, true}, {DType::kI8, 0},
    {DType::kI8, 16, false},  {DType::kI8, 16, true},  {DType::kI8, 32, false},
    {DType::kI8, 32, true},   {DType::kI8, 64, true},  {DType::kI8, 128, true},
    {DType::kI8, 192, false}, {DType::kF8E4M3, 64},    {DType::kF8E4M3, 128}};

std::string NameOf(const Form& form) {
  return std::string(DTypeName(form.dtype)) + " g" + std::to_string(form.group_size) +
         (form.has_offsets ? " with offsets" : "");
}
std::string NameOf(const IntegersCut& cut) {
  return std::to_string(cut.row_tiles) + " row tiles, split " + std::to_string(cut.split) + ", " +
         std::to_string(cut.stages) + " stages";
}

// Operands on both sides, and for `columns` of y the exact sums and the sums of magnitudes, of the
// elements as they are and as they are rounded to x's dtype.
struct Case {
  Case(Device& device, const Form& form, DType x_dtype, int64_t n, int64_t k, int64_t num_tokens)
      : n(n),
        k(k),
        num_tokens(num_tokens),
        x(Tensor::Random(x_dtype, {num_tokens, k}, 1)),
        w(device, form.dtype, n, k, form.group_size, form.has_offsets, 2),
        device_x(device, x) {
    const int64_t step = std::max<int64_t>(1, n * k / 200'000);
    for (int64_t i = 0; i < n; i += step) columns.push_back(i);
    if (columns.back() != n - 1) columns.push_back(n - 1);
    const auto count = static_cast<int64_t>(columns.size());
    sums.resize(static_cast<size_t>(num_tokens * count));
    widened = magnitudes = sums;
    const std::vector<float> tokens = x.ToFloats();
    device.cpu_pool().ParallelFor(count, [&](int64_t c) {
      Tensor rounded(x_dtype, {1});
      for (int64_t i = 0; i < k; ++i) {
        const double value = w.Value(columns[static_cast<size_t>(c)], i);
        const double magnitude = w.Magnitude(columns[static_cast<size_t>(c)], i);
        rounded.Set(0, static_cast<float>(value));
        for (int64_t t = 0; t < num_tokens; ++t) {
          const double token = tokens[static_cast<size_t>(t * k + i)];
          sums[static_cast<size_t>(t * count + c)] += value * token;
          widened[static_cast<size_t>(t * count + c)] += rounded.Get(0) * token;
          magnitudes[static_cast<size_t>(t * count + c)] += magnitude * std::abs(token);
        }
      }
    });
  }

  GemmParams Params(int64_t m, const TensorView& y) const {
    return {.x = device_x.view().data,
            .w = w.weight().data,
            .y = y.data,
            .dtype = x.view().dtype,
            .y_dtype = y.dtype,
            .m = m,
            .n = n,
            .k = k};
  }
  TensorView Tokens(int64_t m, int64_t first = 0) const {
    TensorView view = device_x.view();
    view.shape = {m, k};
    view.data = view.as<std::byte>() + BytesOf(view.dtype, first * k);
    return view;
  }

  int64_t n, k, num_tokens;
  Tensor x;
  IntegerOperand w;
  DeviceTensor device_x;
  std::vector<int64_t> columns;
  std::vector<double> sums, widened, magnitudes;  // [num_tokens, columns]
};

// Tensor cores cut off what they align at 2^-23 of the largest of the products that they add at a
// time; codes times x are exact there. Parts, scales, offsets and warps add one rounding each.
// Errors have random signs, so their root counts; times 4 to be safe.
double BoundOf(const Case& c, double magnitude) {
  return 4 * (std::sqrt(static_cast<double>(c.k)) + 16) * kUnit * magnitude + 1e-30;
}

class SkinnyIntegersTest : public CudaTest {
 protected:
  // A stream whose models have integer weights.
  cuda::CudaStream& integers(OpChoice choice = OpChoice::kFastest) {
    auto& made = choice == OpChoice::kFixed ? fixed_ : stream_;
    if (made == nullptr) {
      ShapeClass shape = kShape;
      shape.weight_dtype = DType::kI4;
      made = NewStream(shape, 1024, 256, choice);
    }
    return *made;
  }

  void Compare(const Case& c, const DeviceTensor& y, int64_t m, const std::vector<double>& sums,
               const std::string& what) {
    EXPECT_TRUE(Intact(y)) << what;
    const std::vector<float> got = y.ToHost().ToFloats();
    const auto count = static_cast<int64_t>(c.columns.size());
    for (int64_t t = 0; t < m; ++t)
      for (int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<size_t>(t * count + i);
        const double bound = AfterRounding(BoundOf(c, c.magnitudes[at]), sums[at], y.view().dtype);
        const float value = got[static_cast<size_t>(t * c.n + c.columns[static_cast<size_t>(i)])];
        ASSERT_LE(std::abs(double{value} - sums[at]), bound)
            << what << ", m " << m << " n " << c.n << " k " << c.k << ": y[" << t << ", "
            << c.columns[static_cast<size_t>(i)] << "] = " << value << ", want " << sums[at];
      }
  }

  std::vector<float> Run(const Case& c, const IntegersCut& cut, int64_t m, DType y_dtype,
                         const std::string& what) {
    const DeviceTensor y = Output(y_dtype, {m, c.n});
    const Status status =
        cuda::SkinnyIntegers(c.Params(m, y.view()), c.w.weight(), cut, integers());
    // Not every GPU has the shared memory for every cut.
    if (status.code() == StatusCode::kUnimplemented &&
        integers().gpu().max_shared_bytes_per_block < 200'000)
      return {};
    Must(status);
    Compare(c, y, m, c.sums, what + ", " + NameOf(cut));
    return y.ToHost().ToFloats();
  }

  // In `splits` parts of k. Nothing where this program has no code for the GPU.
  std::vector<float> RunStreamed(const Case& c, int splits, int64_t m, DType y_dtype,
                                 const std::string& what) {
    const DeviceTensor y = Output(y_dtype, {m, c.n});
    Must(cuda::StreamedIntegers(c.Params(m, y.view()), c.w.weight(), splits, integers()));
    Compare(c, y, m, c.sums, what + ", " + std::to_string(splits) + " splits");
    return y.ToHost().ToFloats();
  }
  bool ReadsCodes(const Case& c, int64_t m, const DeviceTensor& y) {
    const GemmParams params = c.Params(m, y.view());
    return cuda::PreferStreamedIntegers(params, c.w.weight(), integers()) ||
           cuda::PreferSkinnyIntegers(params, c.w.weight(), integers());
  }
  bool CanStream(const Case& c) {
    return cuda::StreamedIntegersCanRun(c.Params(1, c.device_x.view()), c.w.weight());
  }

  // Every cut of products of n rows and about `slabs` slabs.
  void CheckCuts(const Form& form, int64_t n, int64_t slabs, const std::vector<int64_t>& tokens) {
    const int64_t slab = SlabOf(form);
    int64_t k = slabs * slab;
    if (form.group_size > slab) k = (k + form.group_size - 1) / form.group_size * form.group_size;
    const int64_t most = *std::ranges::max_element(tokens);
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      const Case c(device(), form, dtype, n, k, most);
      ASSERT_TRUE(c.w.is_ordered()) << NameOf(form);
      for (const int64_t m : tokens) {
        const DType y_dtype = m % 2 == 0 ? dtype : DType::kF32;
        for (const IntegersCut& cut : IntegerCuts()) {
          if (m > 16) break;
          ASSERT_NO_FATAL_FAILURE(Run(c, cut, m, y_dtype, NameOf(form)));
        }
        if (!CanStream(c)) continue;
        for (const int splits : {1, 3, 8})
          ASSERT_NO_FATAL_FAILURE(RunStreamed(c, splits, m, y_dtype, NameOf(form)));
      }
    }
  }

 private:
  std::unique_ptr<cuda::CudaStream> stream_, fixed_;
};

TEST_F(SkinnyIntegersTest, MatchesFloat64OverRemainders) {
  for (const Form& form : kForms)
    for (const auto& [n, slabs] : {std::pair<int64_t, int64_t>{64, 1}, {128, 9}, {320, 21}})
      ASSERT_NO_FATAL_FAILURE(
          CheckCuts(form, n, slabs, {1, 2, 7, 8, 9, 16, 17, 32, 33, 64, 65, 128, 140}));
}
// The same in little, for compute-sanitizer.
TEST_F(SkinnyIntegersTest, AFewMatchFloat64) {
  for (const Form& form : {Form{DType::kI4, 32, true}, Form{DType::kI8, 0}})
    ASSERT_NO_FATAL_FAILURE(CheckCuts(form, 64, 3, {1, 9, 33, 70}));
}

// A CTA has several tiles: x stays in shared memory where there is room.
TEST_F(SkinnyIntegersTest, MatchesFloat64InTallProductsAndLongOnes) {
  for (const Form& form : {Form{DType::kI4, 128, true}, Form{DType::kI4, 0}, Form{DType::kI8, 0},
                           Form{DType::kI8, 32, false}, Form{DType::kF8E4M3, 128}})
    for (const auto& [n, k] :
         {std::pair<int64_t, int64_t>{20032, 768}, {9024, 2048}, {512, 14336}}) {
      const Case c(device(), form, DType::kBF16, n, k, 70);
      for (const IntegersCut& cut : IntegerCuts())
        for (const int64_t m : {1, 4, 8, 16})
          ASSERT_NO_FATAL_FAILURE(Run(c, cut, m, DType::kF32, NameOf(form)));
      if (!CanStream(c)) continue;
      for (const int splits : {1, 2, 7})
        for (const int64_t m : {12, 31, 64, 70})
          ASSERT_NO_FATAL_FAILURE(RunStreamed(c, splits, m, DType::kF32, NameOf(form)));
    }
}

// Every code times one, in each place of a word and a chunk.
TEST_F(SkinnyIntegersTest, EveryCodeIsReadExactly) {
  for (const DType weight : {DType::kI4, DType::kI8})
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      constexpr int64_t kN = 256, kK = 128;
      const int range = weight == DType::kI4 ? 16 : 256;
      Tensor codes(DType::kI8, {kN, kK}), ones(DType::kF32, {kN});
      for (int64_t i = 0; i < kN * kK; ++i)
        codes.view().as<int8_t>()[i] = static_cast<int8_t>((i + i / kK) % range - range / 2);
      for (int64_t i = 0; i < kN; ++i) ones.Set(i, 1);
      const DeviceTensor device_codes =
          weight == DType::kI4 ? ToDevice(PackedInt4(codes)) : ToDevice(codes);
      const DeviceTensor scales = ToDevice(ones);
      Weight w = {.data = device_codes.view().data,
                  .dtype = weight,
                  .out_features = kN,
                  .in_features = kK,
                  .scales = scales.view().as<const float>()};
      Must(OrderForTensorCores(device(), &w));
      for (int64_t place = 0; place < kK; place += 13)
        for (const int64_t m : {1, 20}) {  // by either kernel; the last token has the one
          Tensor x(dtype, {m, kK});
          for (int64_t i = 0; i < m * kK; ++i) x.Set(i, i == (m - 1) * kK + place ? 1.0F : 0.0F);
          const DeviceTensor device_x = ToDevice(x);
          const DeviceTensor y = Output(DType::kF32, {m, kN});
          Must(cuda::Linear({.x = {.values = device_x.view()}, .weight = w, .y = y.view()},
                            integers()));
          const Tensor got = y.ToHost();
          for (int64_t n = 0; n < kN; ++n)
            ASSERT_EQ(got.Get((m - 1) * kN + n), codes.view().as<int8_t>()[n * kK + place])
                << n << " " << place << " m " << m;
        }
    }
}

// The same of FP8, whose least and largest numbers are among them.
TEST_F(SkinnyIntegersTest, EveryFp8CodeIsReadExactly) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    constexpr int64_t kN = 256, kK = 128;
    Tensor codes(DType::kF8E4M3, {kN, kK});
    const Tensor ones = Tensor::Of(DType::kF32, {kN, 1}, std::vector<float>(kN, 1));
    for (int64_t i = 0; i < kN * kK; ++i) {
      const auto code = static_cast<uint8_t>(i + i / kK);
      codes.view().as<uint8_t>()[i] = (code & 0x7f) == 0x7f ? 0 : code;  // but for NaN
    }
    const DeviceTensor device_codes = ToDevice(codes), scales = ToDevice(ones);
    Weight w = {.data = device_codes.view().data,
                .dtype = DType::kF8E4M3,
                .out_features = kN,
                .in_features = kK,
                .scales = scales.view().as<const float>(),
                .group_size = kK};
    Must(OrderForTensorCores(device(), &w));
    for (int64_t place = 0; place < kK; place += 13)
      for (const int64_t m : {1, 20}) {
        Tensor x(dtype, {m, kK});
        for (int64_t i = 0; i < m * kK; ++i) x.Set(i, i == (m - 1) * kK + place ? 1.0F : 0.0F);
        const DeviceTensor device_x = ToDevice(x);
        const DeviceTensor y = Output(DType::kF32, {m, kN});
        Must(cuda::Linear({.x = {.values = device_x.view()}, .weight = w, .y = y.view()},
                          integers()));
        const Tensor got = y.ToHost();
        for (int64_t n = 0; n < kN; ++n)
          ASSERT_EQ(got.Get((m - 1) * kN + n), codes.Get(n * kK + place))
              << n << " " << place << " m " << m;
      }
  }
}

// The operator, by whichever way: codes where they are read, widened elements else.
TEST_F(SkinnyIntegersTest, LinearsOfEveryFormFollowTheFormula) {
  for (const Form& form : kForms)
    for (const int64_t k : {int64_t{768}, int64_t{240}}) {  // 240: no whole number of slabs
      if (form.group_size != 0 && k % form.group_size != 0) continue;
      for (const DType dtype : {DType::kF16, DType::kBF16}) {
        const Case c(device(), form, dtype, 192, k, kMostTokens);
        ASSERT_EQ(c.w.is_ordered(), k == 768);
        for (const int64_t m : {1, 2, 7, 8, 9, 16, 17, 33, 64, 65, 150})
          for (const DType y_dtype : {dtype, DType::kF32}) {
            const DeviceTensor y = Output(y_dtype, {m, c.n});
            ASSERT_EQ(
                cuda::Linear({.x = {.values = c.Tokens(m)}, .weight = c.w.weight(), .y = y.view()},
                             integers()),
                Status::Ok());
            ASSERT_NO_FATAL_FAILURE(
                Compare(c, y, m, ReadsCodes(c, m, y) ? c.sums : c.widened, NameOf(form)));
          }
      }
    }
}

TEST_F(SkinnyIntegersTest, GatedLinearsOfGroupsMultiplyTheirBranches) {
  constexpr int64_t kN = 64, kK = 512;
  for (const Form& form :
       {Form{DType::kI4, 128, true}, Form{DType::kI4, 32, false}, Form{DType::kI8, 32, true},
        Form{DType::kI4, 16, true}, Form{DType::kF8E4M3, 128}})
    for (const int64_t m : {1, 8, 16, 33})
      for (const bool is_adjacent : {true, false}) {
        const Case c(device(), form, DType::kBF16, 2 * kN, kK, m);
        const Case apart(device(), form, DType::kBF16, 2 * kN, kK, m);  // equal, elsewhere
        const DeviceTensor workspace = Output(DType::kBF16, {m, 2 * kN});
        const DeviceTensor y = Output(DType::kBF16, {m, kN});
        ASSERT_EQ(cuda::GatedLinear({.x = {.values = c.Tokens(m)},
                                     .gate = c.w.weight(0, kN),
                                     .up = (is_adjacent ? c : apart).w.weight(kN, kN),
                                     .y = y.view(),
                                     .workspace = workspace.view()},
                                    integers()),
                  Status::Ok());
        ASSERT_NO_FATAL_FAILURE(Compare(
            c, workspace, m, ReadsCodes(c, m, workspace) ? c.sums : c.widened, NameOf(form)));
        // y of the products as they were stored.
        const Tensor products = workspace.ToHost(), got = y.ToHost();
        for (int64_t t = 0; t < m; ++t)
          for (int64_t i = 0; i < kN; ++i) {
            const double gate = products.Get(t * 2 * kN + i);
            const double want = gate / (1 + std::exp(-gate)) * products.Get(t * 2 * kN + kN + i);
            ASSERT_NEAR(got.Get(t * kN + i), want,
                        AfterRounding(1e-4 * std::abs(want) + 1e-6, want, DType::kBF16))
                << NameOf(form) << " " << t << ", " << i;
          }
      }
}

TEST_F(SkinnyIntegersTest, BiasAndActivationFollowTheSum) {
  constexpr int64_t kN = 320, kK = 256;
  const Tensor bias = Tensor::Random(DType::kF32, {kN}, 3);
  const DeviceTensor device_bias = ToDevice(bias);
  for (const Form& form : {Form{DType::kI4, 0}, Form{DType::kI8, 64, true}}) {
    const Case c(device(), form, DType::kF16, kN, kK, 13);
    for (const int64_t m : {1, 13}) {
      const DeviceTensor plain = Output(DType::kF32, {m, kN}), y = Output(DType::kF32, {m, kN});
      Must(cuda::Linear({.x = {.values = c.Tokens(m)}, .weight = c.w.weight(), .y = plain.view()},
                        integers()));
      Must(cuda::Linear({.x = {.values = c.Tokens(m)},
                         .weight = c.w.weight(),
                         .bias = device_bias.view(),
                         .activation = ActivationKind::kSilu,
                         .y = y.view()},
                        integers()));
      const Tensor sums = plain.ToHost(), got = y.ToHost();
      for (int64_t i = 0; i < m * kN; ++i) {
        const double v = double{sums.Get(i)} + bias.Get(i % kN);
        ASSERT_NEAR(got.Get(i), v / (1 + std::exp(-v)), 0x1p-19 * (std::abs(v) + 1)) << i;
      }
    }
  }
}

TEST_F(SkinnyIntegersTest, ATokenHasTheSameBitsAloneAndAmongOthers) {
  for (const Form& form :
       {Form{DType::kI4, 0}, Form{DType::kI4, 128, true}, Form{DType::kI4, 32, false},
        Form{DType::kI8, 0}, Form{DType::kI8, 32, true}})
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{4096, 2048}, {9024, 1024}}) {
      const Case c(device(), form, DType::kBF16, n, k, 16);
      const auto rows = [&](int64_t first, int64_t m) {
        const DeviceTensor y = Output(DType::kF32, {m, n});
        GemmParams params = c.Params(m, y.view());
        params.x = c.Tokens(m, first).data;
        Must(cuda::SkinnyIntegers(params, c.w.weight(), integers()));
        return y.ToHost().ToFloats();
      };
      const auto part = [n = n](const std::vector<float>& all, int64_t first, int64_t m) {
        return std::vector<float>(all.begin() + first * n, all.begin() + (first + m) * n);
      };
      const std::vector<float> eight = rows(0, 8), sixteen = rows(0, 16);
      EXPECT_TRUE(SameBits(rows(0, 8), eight)) << NameOf(form) << ", once more";
      for (const int64_t m : {1, 2, 5})
        EXPECT_TRUE(SameBits(rows(8 - m, m), part(eight, 8 - m, m))) << NameOf(form) << " " << m;
      for (const int64_t m : {9, 13})
        EXPECT_TRUE(SameBits(rows(16 - m, m), part(sixteen, 16 - m, m)))
            << NameOf(form) << " " << m;
    }
}

// Deterministic streams: also among many.
TEST_F(SkinnyIntegersTest, FixedStreamsGiveTheSameBitsAmongFewTokensAndMany) {
  const Case c(device(), {DType::kI4, 64, true}, DType::kBF16, 256, 512, kMostTokens);
  const auto rows = [&](int64_t first, int64_t m) {
    const DeviceTensor y = Output(DType::kBF16, {m, c.n});
    Must(cuda::Linear({.x = {.values = c.Tokens(m, first)}, .weight = c.w.weight(), .y = y.view()},
                      integers(OpChoice::kFixed)));
    return y.ToHost().ToFloats();
  };
  const std::vector<float> all = rows(0, kMostTokens);
  for (const int64_t m : {1, 8, 16, 17})
    EXPECT_TRUE(SameBits(rows(3, m), {all.begin() + 3 * c.n, all.begin() + (3 + m) * c.n})) << m;
}

// A product reads what the one before wrote, while both run.
TEST_F(SkinnyIntegersTest, OverlappingKernelsSeeWhatTheOneBeforeWrote) {
  constexpr int64_t kSize = 2048;
  constexpr int kChain = 20;
  const Form form = {DType::kI4, 128, false};
  const Case c(device(), form, DType::kBF16, kSize, kSize, 40);
  Tensor small(DType::kF32, {kSize, kSize / 128});
  for (int64_t i = 0; i < kSize * kSize / 128; ++i) small.Set(i, 0.005F);
  const DeviceTensor scales = ToDevice(small);
  Weight weight = c.w.weight();
  weight.scales = scales.view().as<const float>();
  for (const int64_t m : {1, 8, 16})
    for (const IntegersCut& base : IntegerCuts()) {
      std::vector<std::vector<float>> ends;
      for (const bool overlap : {false, true, true}) {
        IntegersCut cut = base;
        cut.overlap = overlap;
        const DeviceTensor a = ToDevice(c.x);
        const DeviceTensor b = Output(DType::kBF16, {40, kSize});
        for (int i = 0; i < kChain; ++i) {
          GemmParams params = c.Params(m, (i % 2 == 0 ? b : a).view());
          params.x = (i % 2 == 0 ? a : b).view().data;
          Must(cuda::SkinnyIntegers(params, weight, cut, integers()));
        }
        ends.push_back(a.ToHost().ToFloats());
        ends.back().resize(static_cast<size_t>(m * kSize));
      }
      EXPECT_TRUE(SameBits(ends[1], ends[0])) << NameOf(base) << " m " << m;
      EXPECT_TRUE(SameBits(ends[2], ends[0])) << NameOf(base) << " m " << m;
      EXPECT_TRUE(std::isfinite(ends[0][5]) && ends[0][5] != 0) << NameOf(base);
    }
  if (!CanStream(c)) return;
  for (const int64_t m : {16, 40})
    for (const int splits : {1, 4}) {
      std::vector<std::vector<float>> ends;
      for (const bool waits : {true, false, false}) {
        const DeviceTensor a = ToDevice(c.x);
        const DeviceTensor b = Output(DType::kBF16, {40, kSize});
        for (int i = 0; i < kChain; ++i) {
          GemmParams params = c.Params(m, (i % 2 == 0 ? b : a).view());
          params.x = (i % 2 == 0 ? a : b).view().data;
          Must(cuda::StreamedIntegers(params, weight, splits, integers()));
          if (waits) Must(integers().Synchronize());
        }
        ends.push_back(a.ToHost().ToFloats());
        ends.back().resize(static_cast<size_t>(m * kSize));
      }
      EXPECT_TRUE(SameBits(ends[1], ends[0])) << splits << " splits, m " << m;
      EXPECT_TRUE(SameBits(ends[2], ends[0])) << splits << " splits, m " << m;
    }
}

TEST_F(SkinnyIntegersTest, WhatGroupsAreNotIsNamed) {
  const Case c(device(), {DType::kI8, 32, true}, DType::kBF16, 32, 64, 1);
  const DeviceTensor y = Output(DType::kBF16, {1, 32});
  const auto message = [&](const Weight& weight) {
    const Status status =
        cuda::Linear({.x = {.values = c.Tokens(1)}, .weight = weight, .y = y.view()}, integers());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  Weight weight = c.w.weight();
  for (const int64_t group : {24, 48, -16}) {
    weight.group_size = group;
    EXPECT_EQ(message(weight), "weight.group_size: got " + std::to_string(group) +
                                   " of int8 weights with 64 in_features, needed 0, or of int8, "
                                   "int4 and FP8 a multiple of 16 that divides in_features");
  }
  weight.group_size = 0;
  EXPECT_EQ(message(weight), "weight.offsets: got some, needed none without groups");
  weight = c.w.weight();
  weight.scales = nullptr;
  EXPECT_EQ(message(weight), "weight.scales: got none, needed [32, 2] float32 of int8 weights");
  EXPECT_EQ(
      cuda::SkinnyIntegers(c.Params(17, y.view()), c.w.weight(), IntegersCut(), integers()).code(),
      StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace inflight::ops
