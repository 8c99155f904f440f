// SPDX-License-Identifier: Apache-2.0
// CUDA's table of operators beside the reference's, over the list of cases that the CPU's tables
// run too (../cases.h).
#pragma once

#include "base/check.h"
#include "cases.h"
#include "cuda_test.h"

namespace inflight::ops {

class AgainstReference : public CudaTest {
 protected:
  // Of the host's cores, where ReferenceTable() runs.
  static Stream& host() {
    static auto* device = Device::Cpu().release();
    static auto* stream = new Stream(*device);
    return *stream;
  }
  static CpuPool& pool() { return host().cpu_pool(); }
  OpTable Table(const ShapeClass& shape) {
    const std::vector<OpTable> tables = CudaOpTables(shape, device());
    CHECK(!tables.empty());
    return tables[0];
  }
  OpTable TableOf(DType dtype) {
    return Table({.weight_dtype = dtype, .dtype = dtype, .kv_dtype = dtype, .head_dim = 128});
  }
};

inline Tensor InFloat32(const Tensor& tensor) {
  return Tensor::Of(DType::kF32, tensor.view().shape, tensor.ToFloats());
}

inline std::vector<double> InFloat64(const Tensor& tensor) {
  const std::vector<float> values = tensor.ToFloats();
  return {values.begin(), values.end()};
}

inline std::vector<int> SequencesOf(const std::vector<SequenceRow>& rows) {
  std::vector<int> sequences;
  for (size_t i = 0; i < rows.size(); ++i) sequences.push_back(static_cast<int>(i));
  return sequences;
}

inline std::vector<int> LengthsOf(const std::vector<SequenceRow>& rows) {
  std::vector<int> lengths;
  for (const SequenceRow& row : rows) lengths.push_back(row.seq_len);
  return lengths;
}

}  // namespace inflight::ops
