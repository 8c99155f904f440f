// SPDX-License-Identifier: Apache-2.0
// What `list`, `rm` and `pull` tell of models on the disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace inflight::tool {

// "270.2 MB": by thousands, as the hub's pages count.
std::string SizeText(uint64_t bytes);

// What a model's files say that it is, by the name that its form has for it: "LlamaForCausalLM", of
// GGUF files "llama"; with the form behind it. "unreadable" where they say nothing.
struct ModelForm {
  std::string family;
  std::string form;  // "Hugging Face", "GGUF", "checkpoint", "engine"
};
ModelForm FormOf(const std::filesystem::path& model);

}  // namespace inflight::tool
