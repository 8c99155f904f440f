// SPDX-License-Identifier: Apache-2.0
// Any text as adapter_config.json of peft, and any bytes as the weights beside it: an error, or an
// adapter whose rows and weights fit each other.
//
// The input is the text up to the first zero byte; what follows are the weights, else those of a
// layer of rank 2.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/log.h"
#include "builder/peft_adapter.h"
#include "inflight/adapter.h"

namespace {

namespace fs = std::filesystem;

void Require(bool condition) {
  if (!condition) abort();
}

const fs::path& Folder() {
  static const fs::path& folder = [] {
    std::string name = fs::temp_directory_path() / "peft_adapter_XXXXXX";
    return std::ref(*new fs::path(mkdtemp(name.data())));
  }();
  return folder;
}

// q_proj of layer 0 of a model of four: A [2, 4], B [4, 2].
std::string SomeWeights() {
  const std::string head = R"({"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight":)"
                           R"({"dtype":"F32","shape":[2,4],"data_offsets":[0,32]},)"
                           R"("base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight":)"
                           R"({"dtype":"F32","shape":[4,2],"data_offsets":[32,64]}})";
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(head.size() >> (8 * i));
  return file + head + std::string(64, '\0');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  inflight::logging::SetLevel(inflight::logging::Level::kError);
  static const std::string some_weights = SomeWeights();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), size);
  const std::string_view weights = end == size ? some_weights : input.substr(end + 1);
  Require(inflight::WriteFile(Folder() / "adapter_config.json", input.substr(0, end)).ok());
  Require(inflight::WriteFile(Folder() / "adapter_model.safetensors", weights).ok());
  const auto adapter = inflight::builder::ReadPeftAdapter(Folder());
  if (!adapter.ok()) return 0;
  Require(adapter->dtype == inflight::LoraDType::kFloat32 && adapter->width > 0);
  Require(adapter->weights.size() ==
          adapter->rows.size() * static_cast<size_t>(adapter->width) * sizeof(float));
  return 0;
}
