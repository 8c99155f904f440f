// SPDX-License-Identifier: Apache-2.0
#include "families_table.h"

#include <nlohmann/json.hpp>

#include "builder/weight_formats.h"
#include "model/families/families.h"
#include "model/supported.h"

namespace inflight::tool {
namespace {

using Json = nlohmann::ordered_json;

constexpr DeviceKind kBackends[] = {DeviceKind::kCpu, DeviceKind::kCuda};

Json RefusedBy(const model::Family& family, DeviceKind device) {
  Json refused = Json::object();
  for (const builder::WeightFormat& format : builder::WeightFormats())
    if (const Status status = builder::CheckFormat(family, format, device); !status.ok())
      refused[std::string(format.name)] = status.message();
  return refused;
}

Json Row(const model::Family& family) {
  Json composites = Json::array();
  for (const model::Composite& composite : family.composites)
    composites.push_back(composite.architecture);
  Json refused = Json::object();
  for (const DeviceKind device : kBackends)
    refused[std::string(model::FactsOf(device).name)] = RefusedBy(family, device);
  return {{"architecture", family.architecture},
          {"model_type", family.model_type},
          {"composites", composites},
          {"gguf", family.gguf.architecture},
          {"refused", refused}};
}

}  // namespace

std::string FamiliesTable() {
  Json formats = Json::array();
  for (const builder::WeightFormat& format : builder::WeightFormats())
    formats.push_back({{"name", format.name}, {"field", builder::FormatFieldName(format.field)}});
  Json backends = Json::array();
  for (const DeviceKind device : kBackends) backends.push_back(model::FactsOf(device).name);
  Json families = Json::array();
  for (const model::Family& family : model::Families()) families.push_back(Row(family));
  const Json table = {{"formats", formats}, {"backends", backends}, {"families", families}};
  return table.dump(1) + "\n";
}

}  // namespace inflight::tool
