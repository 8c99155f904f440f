// SPDX-License-Identifier: Apache-2.0
// The one matcher of shapes and dtypes behind every launcher: what the headers of the operators
// promise, checked. Costs a few comparisons when all is well; otherwise kInvalidArgument names the
// field, what it holds and what is needed, and kUnimplemented what no CPU kernel does.
//
// The values of ids, rows and positions are read, so these are for kernels whose tensors are in
// host memory. Block tables and slots are the executor's own and are not checked here.
#pragma once

#include "ops/add_norm.h"
#include "ops/attention.h"
#include "ops/embed.h"
#include "ops/experts.h"
#include "ops/linear.h"

namespace inflight::ops {

Status Validate(const EmbedParams& params);
Status Validate(const AddNormParams& params);
Status Validate(const QkvRopeKvParams& params);
Status Validate(const AttentionParams& params);
Status Validate(const LinearParams& params);
Status Validate(const GatedLinearParams& params);
Status Validate(const LmHeadParams& params);
Status Validate(const RouteParams& params);
Status Validate(const ExpertGatedLinearParams& params);
Status Validate(const ExpertLinearParams& params);
Status Validate(const QuantizeParams& params);

}  // namespace inflight::ops
