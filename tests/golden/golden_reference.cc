// SPDX-License-Identifier: Apache-2.0
#include "golden_reference.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "builder/hf_config.h"
#include "constants.h"
#include "model/rope.h"

namespace inflight::golden {

std::filesystem::path DataDir() { return INFLIGHT_GOLDEN_DATA; }

std::vector<Expected> ReadReference(const std::filesystem::path& dir) {
  const auto set = artifact::TensorSet::OpenFile(dir / "reference.safetensors");
  CHECK(set.ok());
  std::vector<Expected> all;
  for (int p = 0; set->Find("prompt_" + std::to_string(p)) != nullptr; ++p) {
    const std::string suffix = "_" + std::to_string(p);
    const auto ids = [&](const std::string& name) {
      const auto wide = ValuesOf<int64_t>(*set, name + suffix);
      return std::vector<TokenId>(wide.begin(), wide.end());
    };
    all.push_back({ids("prompt"), ids("greedy"), ValuesOf<int64_t>(*set, "positions" + suffix),
                   ValuesOf<float>(*set, "logits" + suffix),
                   ValuesOf<float>(*set, "noise_gain" + suffix).at(0)});
  }
  return all;
}

int MaxSeqLenOf(const std::filesystem::path& dir) {
  const auto hf = builder::ReadHfConfig(dir);
  CHECK(hf.ok());
  for (const Expected& expected : ReadReference(dir)) {
    const auto length = static_cast<int>(expected.prompt.size() + expected.greedy.size());
    if (model::HasLongFactors(hf->config, length)) return hf->config.max_position_embeddings;
  }
  return 0;
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  if (const char* wanted = std::getenv("INFLIGHT_GOLDEN_MODELS")) {
    std::istringstream words(wanted);
    for (std::string name; words >> name;) names.push_back(name);
    return names;
  }
  for (const auto& entry : std::filesystem::directory_iterator(DataDir()))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<TokenId> PromptAndGreedy(const artifact::TensorSet& set) {
  std::vector<TokenId> ids;
  for (const char* name : {"prompt", "greedy"})
    for (const int64_t id : ValuesOf<int64_t>(set, name)) ids.push_back(static_cast<TokenId>(id));
  return ids;
}

float RoundingBound(DType dtype, const Expected& expected) {
  if (dtype == DType::kF32) return kTolerance;
  const float unit_roundoff = dtype == DType::kBF16 ? 0x1p-8F : 0x1p-11F;
  return 1.5F * unit_roundoff * expected.noise_gain;
}

}  // namespace inflight::golden
