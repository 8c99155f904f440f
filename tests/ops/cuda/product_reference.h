// SPDX-License-Identifier: Apache-2.0
// Products of a GPU beside those of ops/reference, which computes in float32 from what the operands
// stand for: codes times their scales, and integers as the product reads them (AsMultiplied).
#pragma once

#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "against_reference.h"
#include "linear_operands.h"
#include "product_bounds.h"

namespace inflight::ops {

inline bool IsFp8(const LinearDTypes& dtypes) { return dtypes.w == DType::kF8E4M3; }

// The largest cases run on two kinds of weights: making the operands takes longer than their use.
inline bool IsRun(bool gpu_only, const LinearDTypes& dtypes) {
  return !gpu_only || (dtypes.model == DType::kBF16 && !IsInteger(dtypes.w));
}

inline bool IsFloat32(const LinearDTypes& dtypes) { return dtypes.model == DType::kF32; }

// Rows of operands are read as whole vectors of 16 bytes, but for those in float32.
inline bool IsWhole(int64_t k, const LinearDTypes& dtypes) {
  return IsFloat32(dtypes) || k * static_cast<int64_t>(SizeOf(dtypes.x)) % 16 == 0;
}

// The library's products of FP8 have rows of y in multiples of 8; models' linears are (config.cc).
inline bool HasColumns(int64_t n, const LinearDTypes& dtypes) {
  return !IsFp8(dtypes) || n % 8 == 0;
}

class CudaSharedProductsTest : public AgainstReference {
 protected:
  static ShapeClass ShapeOf(const LinearDTypes& dtypes, int head_dim = 128) {
    return {.weight_dtype = dtypes.w,
            .dtype = dtypes.model,
            .kv_dtype = dtypes.model,
            .head_dim = head_dim,
            .num_heads = 32,
            .num_kv_heads = 8,
            .hidden_size = 4096,
            .intermediate_size = 14336};
  }
  OpTable Ops(const LinearDTypes& dtypes) { return Table(ShapeOf(dtypes)); }
  Stream& StreamOf(const LinearDTypes& dtypes) {
    auto& made = streams_[{dtypes.w, dtypes.model}];
    if (made == nullptr) made = NewStream(ShapeOf(dtypes), 1024, 256);
    return *made;
  }

 private:
  std::map<std::pair<DType, DType>, std::unique_ptr<cuda::CudaStream>> streams_;
};

inline Weight Float32Weight(const Tensor& rows) {
  return {.data = rows.view().data,
          .dtype = DType::kF32,
          .out_features = rows.view().shape[0],
          .in_features = rows.view().shape[1]};
}

// x and w in float32, and their exact products.
struct Reference {
  Reference(CpuPool& pool, const Operand& x, const Operand& w, const LinearDTypes& dtypes)
      : x(StandsFor(pool, x.values, IsFp8(dtypes) ? &x : nullptr)),
        w(IsInteger(dtypes.w) ? InFloat32(AsMultiplied(w, dtypes))
                              : StandsFor(pool, w.values, IsFp8(dtypes) ? &w : nullptr)),
        sums(pool, this->x, this->w) {}

  static Tensor StandsFor(CpuPool& pool, const Tensor& values, const Operand* scaled) {
    const Shape& shape = values.view().shape;
    Tensor out(DType::kF32, shape);
    pool.ParallelFor(shape[0], [&](int64_t row) {
      const double scale = scaled == nullptr ? 1 : scaled->Scale(row);
      for (int64_t i = row * shape[1]; i < (row + 1) * shape[1]; ++i)
        out.Set(i, static_cast<float>(values.Get(i) * scale));
    });
    return out;
  }

  // How far a GPU's product that is stored in `dtype` may be from the reference's: what its sum and
  // storing it take, and the reference's own sum of operands that were rounded once each.
  std::vector<double> Bounds(const LinearDTypes& dtypes, const Operand& gpu_x, const Operand& gpu_w,
                             DType dtype) const {
    const int64_t k = x.view().shape[1];
    std::vector<double> bounds;
    for (size_t i = 0; i < sums.exact.size(); ++i) {
      double stored = 1;  // what is rounded is the product of the codes
      if (IsFp8(dtypes)) {
        const auto row = static_cast<int64_t>(i) / sums.n;
        const auto column = static_cast<int64_t>(i) % sums.n;
        stored = Fp8ProductScale(dtype, k) / (gpu_x.Scale(row) * gpu_w.Scale(column));
      }
      const double sum = ProductBound(dtypes.x, k, sums.absolute[i]);
      bounds.push_back(AfterRounding(sum * stored, sums.exact[i] * stored, dtype) / stored +
                       static_cast<double>(k + 4) * kUnit * sums.absolute[i]);
    }
    return bounds;
  }

  Tensor x, w;
  Sums sums;
};

// The bound of a product becomes that of act(product + bias).
inline double AfterBias(double bound, double product, double bias) {
  return bound + 8 * kUnit * (std::abs(product) + std::abs(bias));
}

}  // namespace inflight::ops
