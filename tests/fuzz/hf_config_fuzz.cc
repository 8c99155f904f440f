// SPDX-License-Identifier: Apache-2.0
// Any text as config.json of a Hugging Face model and of a checkpoint: an error, or a description
// that is valid and survives being written and read again.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "artifact/json_file.h"
#include "base/check.h"
#include "base/log.h"
#include "builder/hf_config.h"
#include "builder/sharding.h"
#include "model/config_json.h"
#include "model/limits.h"

namespace {

using inflight::model::ModelConfig;

void CheckStable(const ModelConfig& config) {
  CHECK(inflight::model::Validate(config).ok());
  const nlohmann::json written = inflight::model::ConfigToCheckpoint(config);
  const auto read = inflight::model::ConfigFromCheckpoint(written, "fuzz");
  CHECK_EQ(read.status().ToString(), "OK");
  CHECK_EQ(inflight::model::ConfigToCheckpoint(*read).dump(), written.dump());
  (void)inflight::model::ResolveLimits(config, {});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  inflight::logging::SetLevel(inflight::logging::Level::kError);
  const auto json =
      inflight::artifact::ParseJsonObject({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!json.ok()) return 0;
  if (const auto hf = inflight::builder::ParseHfConfig(*json, "fuzz"); hf.ok())
    CheckStable(hf->config);
  if (const auto config = inflight::model::ConfigFromCheckpoint(*json, "fuzz"); config.ok()) {
    CheckStable(*config);
    const auto sharding = inflight::builder::ReadSharding(*json, *config, "fuzz");
    if (sharding.ok()) {
      nlohmann::json written;
      inflight::builder::WriteSharding(*sharding, written);
      CHECK(inflight::builder::ReadSharding(written, *config, "fuzz").ok());
    }
  }
  (void)inflight::model::LimitsFromJson(*json, "fuzz").ok();
  return 0;
}
