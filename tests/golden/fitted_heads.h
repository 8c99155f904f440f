// SPDX-License-Identifier: Apache-2.0
// Medusa's heads that know how some texts go on: blocks of zeros, and an lm_head for each by least
// squares over the model's own states at those texts. So that a test has drafts that are accepted.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "inflight/request.h"
#include "model/engine.h"
#include "tensor/device.h"

namespace inflight::golden {

// A checkpoint of the model of `model_dir`, a Llama, in `dtype`, with `num_heads` heads that are
// fitted to `texts`: a folder in `work_dir`, which is emptied first.
Result<std::filesystem::path> WriteFittedHeads(const std::filesystem::path& model_dir,
                                               const std::vector<std::vector<TokenId>>& texts,
                                               int num_heads, DType dtype,
                                               const std::filesystem::path& work_dir);

// The same on `device`; nothing stays in `work_dir`.
Result<std::shared_ptr<const model::Engine>> OpenWithFittedHeads(
    const std::filesystem::path& model_dir, const std::vector<std::vector<TokenId>>& texts,
    int num_heads, DType dtype, Device& device, const std::filesystem::path& work_dir);

}  // namespace inflight::golden
