// SPDX-License-Identifier: Apache-2.0
// A directory of weights in FP8 as DeepSeek and Qwen publish them, made of one of floats.
#pragma once

#include <filesystem>
#include <string_view>

namespace inflight::golden {

// Writes `from`, a directory of float32, to `to` with the linears of the layers whose names have
// `part` in them in blocks of 128 x 128: float8_e4m3fn, with a float32 scale each, max |w| / 448.
// What does not work fails the test.
void WriteFp8Blocks(const std::filesystem::path& from, const std::filesystem::path& to,
                    std::string_view part = ".layers.");

}  // namespace inflight::golden
