// SPDX-License-Identifier: Apache-2.0
// One element of a weight, where the drawing of its layout in ops/weight.h puts it: index by index,
// by nothing that packs or unpacks weights for kernels.
#pragma once

#include "ops/weight.h"

namespace inflight::ops::reference {

// Element [n, k] of int8 and int4 weights, or of float4 twice it, without its scale.
int8_t IntegerAt(const Weight& weight, int64_t n, int64_t k);

// Element [n, k] of any weight that the CPU reads; of integers with its scale.
float ElementAt(const Weight& weight, int64_t n, int64_t k);

}  // namespace inflight::ops::reference
