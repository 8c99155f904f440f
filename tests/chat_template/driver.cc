// SPDX-License-Identifier: Apache-2.0
// Chat templates at the other end of a pipe: JSON lines in, JSON lines out.
//
//   {"template": T, "variables": {...}, "now_s": n}  -> {"text": ...} or {"error": message}
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status_macros.h"
#include "chat_template/template.h"

namespace inflight::chat_template {
namespace {

using Json = nlohmann::ordered_json;

Result<std::string> Answer(const Json& request) {
  ASSIGN_OR_RETURN(const Template parsed,
                   Template::Parse(request.at("template").get<std::string>()));
  Variables variables;
  for (const auto& [name, json] : request.at("variables").items()) {
    ASSIGN_OR_RETURN(Value value, Value::FromJson(json.dump()));
    variables.emplace_back(name, std::move(value));
  }
  return parsed.Render(variables, request.at("now_s").get<int64_t>());
}

}  // namespace
}  // namespace inflight::chat_template

int main() {
  using inflight::chat_template::Json;
  for (std::string line; std::getline(std::cin, line);) {
    const auto text = inflight::chat_template::Answer(Json::parse(line));
    std::cout << (text.ok() ? Json{{"text", *text}} : Json{{"error", text.status().message()}})
              << std::endl;
  }
  return 0;
}
