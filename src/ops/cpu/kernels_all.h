// SPDX-License-Identifier: Apache-2.0
// The kernels of one instruction set, in the order in which they use each other. Included once by
// each instruction set's translation unit, after its Vec, MulAddPairs and MulAddQuads.
#pragma once

// clang-format off
#include "ops/cpu/kernels_tile.h"
#include "ops/cpu/kernels_operands.h"
#include "ops/cpu/kernels_panel.h"
#include "ops/cpu/kernels_quantize.h"
#include "ops/cpu/kernels_math.h"
#include "ops/cpu/kernels_linear.h"
#include "ops/cpu/kernels_norm.h"
#include "ops/cpu/kernels_attention.h"
// clang-format on
