// SPDX-License-Identifier: Apache-2.0
// The kernels that AMX makes different: products by tiles. Compiled with the flags of isa_avx512.cc
// and -mamx-tile -mamx-bf16 -mamx-int8; includes nothing whose inline functions others use.
#include "ops/cpu/kernels.h"
#include "ops/cpu/vec_avx512.h"

// clang-format off
#include "ops/cpu/kernels_scale.h"
#include "ops/cpu/kernels_amx.h"
#include "ops/cpu/kernels_amx_panel.h"
#include "ops/cpu/kernels_fp8.h"
#include "ops/cpu/kernels_tile.h"
#include "ops/cpu/kernels_math.h"
#include "ops/cpu/kernels_attention.h"
#include "ops/cpu/kernels_amx_attention.h"
// clang-format on

namespace inflight::ops::cpu {

void PanelBf16Amx(const PanelArgs& args) { MultiplyPanel<Bf16Form>(args); }
void PanelInt8Amx(const PanelArgs& args) { IntegerPanel<I8Form>(args, PanelInt8Vnni); }
void PanelInt4Amx(const PanelArgs& args) { IntegerPanel<I4Form>(args, PanelInt4Vnni); }
// Its groups of 32 are too short for tiles.
void PanelFp4Amx(const PanelArgs& args) { MultiplyWhole(args, PanelFp4Vnni); }
void PanelFp8Amx(const PanelArgs& args) { PanelFp8<MultiplyPanel<Bf16Form>, kMaxPanelRows>(args); }

// Of a bf16 cache whose heads are of whole tiles.
void AttendAmx(const AttentionArgs& args) {
  if (args.kv_element != Element::kBf16 || args.head_dim % 64 != 0) return AttendAvx512Bf16(args);
  AttendByTiles(args);
}

}  // namespace inflight::ops::cpu
