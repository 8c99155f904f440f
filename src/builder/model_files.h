// SPDX-License-Identifier: Apache-2.0
// The files beside a model's weights that serving needs: tokenizer, chat template, generation
// defaults.
#pragma once

#include <filesystem>

#include "inflight/status.h"

namespace inflight::builder {

// Copies those of them that `from` has. Of a GGUF file they are one, tokenizer.gguf: its metadata.
Status CopyModelFiles(const std::filesystem::path& from, const std::filesystem::path& to);

// The same with the tokenizer and its chat templates from another directory, and of no other one:
// what an earlier build left of them in `to` goes.
Status CopyModelFiles(const std::filesystem::path& from, const std::filesystem::path& tokenizer,
                      const std::filesystem::path& to);

// What is in `dir` of a tokenizer and its chat template.
Status RemoveTokenizerFiles(const std::filesystem::path& dir);

// `dir` if a tokenizer's files are in it or it is a GGUF file with one, else empty.
std::filesystem::path TokenizerDir(const std::filesystem::path& dir);

// kInvalidArgument if both name one directory: its config.json would be overwritten.
Status CheckDistinct(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace inflight::builder
