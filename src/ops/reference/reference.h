// SPDX-License-Identifier: Apache-2.0
// Every operator in plain C++: one file each, written to be read. The oracle of tests/ops, and what
// runs on a CPU without AVX2. Formulas, shapes and errors are in the operators' headers; any weight
// layout is read (weight_element.h), sums are float32 in ascending order. Of the code of others it
// calls what checks shapes and what converts single elements: scripts/check_layers.py lists it.
#pragma once

#include "ops/backend.h"

namespace inflight::ops::reference {

Status Embed(const EmbedParams& params, Stream& stream);
Status AddNorm(const AddNormParams& params, Stream& stream);
Status QkvRopeKv(const QkvRopeKvParams& params, Stream& stream);
Status Attention(const AttentionParams& params, Stream& stream);
Status Linear(const LinearParams& params, Stream& stream);
Status GatedLinear(const GatedLinearParams& params, Stream& stream);
Status LmHead(const LmHeadParams& params, Stream& stream);
Status Route(const RouteParams& params, Stream& stream);
Status ExpertGatedLinear(const ExpertGatedLinearParams& params, Stream& stream);
Status ExpertLinear(const ExpertLinearParams& params, Stream& stream);
Status Quantize(const QuantizeParams& params, Stream& stream);

// y = act(x), the functions of linear.h.
float Activate(ActivationKind kind, float x);

}  // namespace inflight::ops::reference
