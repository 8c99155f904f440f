// SPDX-License-Identifier: Apache-2.0
// The files of a model on a hub of Hugging Face, and those of them that are worth a download.
// Source: https://huggingface.co/docs/hub/api, "Repo information API".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/status.h"

namespace inflight::hub {

constexpr size_t kMaxFiles = 10'000;  // of a model

struct HubFile {
  std::string path;    // relative: "model-00001-of-00002.safetensors"
  uint64_t size = 0;   // bytes
  std::string digest;  // in hexadecimal: 64 digits are the SHA-256 of the bytes, 40 that of the git
                       // blob; also the name of the file in the cache. Empty: not told yet
};

struct HubListing {
  std::string commit;
  std::vector<HubFile> files;  // ordered by path
};

// Of the answer to GET /api/models/{repo}/revision/{revision}?blobs=true. kInvalidArgument names
// what is wrong: no commit, a path that leaves its folder, more than kMaxFiles.
Result<HubListing> ParseListing(std::string_view body);

// Weights in the first of the forms that the model has (safetensors, PyTorch's, GGUF), with what
// they need: configuration, tokenizer, templates, licence. With `quant`, or where there is nothing
// but GGUF files, the one of that quantisation (IsGgufOf; Q4_K_M where none is said and there are
// several). kNotFound lists those that there are; kUnimplemented: a file that is split.
Result<std::vector<HubFile>> ChooseFiles(const HubListing& listing, std::string_view quant);

bool IsDigest(std::string_view text);  // of 40 or 64 hexadecimal digits in small letters

}  // namespace inflight::hub
