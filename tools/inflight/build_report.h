// SPDX-License-Identifier: Apache-2.0
// `inflight build --report`: the accuracy of a model in every dtype that can be built of it.
#pragma once

#include <filesystem>

#include "builder/builder.h"

namespace inflight::tool {

// Prints the table for the model of `build` over the texts of `text_file`; empty:
// heldout_text.jsonl of the model's directory. A .jsonl file has a document a line, in "text", or
// in "text_input", which is read, with "expected" after it, which is scored; any other file is one
// document.
Status PrintAccuracy(const builder::BuildOptions& build, const std::filesystem::path& text_file);

}  // namespace inflight::tool
