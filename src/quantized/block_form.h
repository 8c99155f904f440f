// SPDX-License-Identifier: Apache-2.0
// Tensors of packed blocks, as GGUF files have them, in the form that the engine executes.
#pragma once

#include <optional>

#include "quantized/module.h"

namespace inflight::quantized {

// Codes, scales and offsets, also in blocks, as artifact/block_integers.h says them, rows of all
// experts one behind the other; none where the blocks, or rows that are no whole ones, have none.
// `blocks` is a matrix, or of experts a matrix each; the form's data lies where its own does.
std::optional<NativeForm> FormOfBlocks(const artifact::StoredTensor& blocks);

}  // namespace inflight::quantized
