// SPDX-License-Identifier: Apache-2.0
// config.pbtxt: any bytes parse or give an error; what parses can be normalised, validated and
// printed, and reads back the same.
#include <google/protobuf/text_format.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "serving/configuration/model_config.h"
#include "serving/repository/validate_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inflight::serving;  // NOLINT(google-build-using-namespace)
  const auto parsed = ParseModelConfig(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!parsed.ok()) return 0;
  auto config = parsed->config;
  NormalizeModelConfig(config);
  (void)ValidateModelConfig(config);
  (void)AllParameters(config);
  std::string text;
  CHECK(google::protobuf::TextFormat::PrintToString(config, &text));
  auto again = ParseModelConfig(text);
  CHECK(again.ok());
  NormalizeModelConfig(again->config);
  std::string text_again;
  CHECK(google::protobuf::TextFormat::PrintToString(again->config, &text_again));
  CHECK_EQ(text, text_again);
  return 0;
}
