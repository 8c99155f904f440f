// SPDX-License-Identifier: Apache-2.0
// The operators on vector kernels: one launcher each, which checks shapes, cuts the work into items
// for the pool and calls the kernels of one instruction set. Formulas, shapes and errors are in the
// operators' headers.
//
// Weights must be packed (CpuWeightLayout), head_dim at most kMaxHeadDim. An output element is
// summed in one order whatever else is in the batch, so a table's results do not depend on it.
#pragma once

#include <vector>

#include "ops/backend.h"
#include "ops/cpu/kernels.h"

namespace inflight::ops::cpu {

Status Embed(const EmbedParams& params, Stream& stream);  // the same for all instruction sets
Status AddNorm(const KernelSet& kernels, const AddNormParams& params, Stream& stream);
Status QkvRopeKv(const KernelSet& kernels, const QkvRopeKvParams& params, Stream& stream);
Status Attention(const KernelSet& kernels, const AttentionParams& params, Stream& stream);
Status Linear(const KernelSet& kernels, const LinearParams& params, Stream& stream);
Status GatedLinear(const KernelSet& kernels, const GatedLinearParams& params, Stream& stream);
Status LmHead(const KernelSet& kernels, const LmHeadParams& params, Stream& stream);
Status Route(const RouteParams& params, Stream& stream);  // the same for all instruction sets
Status ExpertGatedLinear(const KernelSet& kernels, const ExpertGatedLinearParams& params,
                         Stream& stream);
Status ExpertLinear(const KernelSet& kernels, const ExpertLinearParams& params, Stream& stream);

// The tables that this processor can run for `shape`, the widest first.
std::vector<OpTable> OpTables(const ShapeClass& shape);

// The index in OpTables(shape) of the table to use: the first, unless a short trial of the bf16
// product finds another at least 1.3 times as fast. For other dtypes always
// the first.
size_t FastestTable(const ShapeClass& shape);

}  // namespace inflight::ops::cpu
