// SPDX-License-Identifier: Apache-2.0
#include "window_cases.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "golden_reference.h"

namespace inflight::golden {

std::string WindowCase::Name() const {
  return model + " window " + std::to_string(options.attention_windows[0]) + " sinks " +
         std::to_string(options.sink_tokens);
}

std::vector<WindowCase> ReadWindowCases() {
  std::ifstream file(DataDir().parent_path() / "windows.json");
  const auto json = nlohmann::json::parse(file);
  std::vector<WindowCase> cases;
  for (const auto& entry : json.at("cases")) {
    WindowCase& c = cases.emplace_back();
    ReadCase(entry, &c);
    c.options.attention_windows = entry.at("windows").get<std::vector<int>>();
    c.options.sink_tokens = entry.at("sinks");
  }
  return cases;
}

}  // namespace inflight::golden
