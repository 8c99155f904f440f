// SPDX-License-Identifier: Apache-2.0
// files/openapi.json against the tables that it describes: the routers' rows, and the members of
// bodies that OpenAI's API reads.
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "protocol/anthropic/messages.h"
#include "protocol/kserve/http/endpoint_table.h"
#include "protocol/openai/body_fields.h"
#include "protocol/openai/openai_handler.h"
#include "protocol/page/embedded_files.h"
#include "protocol/page/page_handler.h"

namespace inflight::page {
namespace {

using Json = nlohmann::json;

const Json& Description() {
  static const Json description = [] {
    for (const EmbeddedFile& file : EmbeddedFiles())
      if (file.name == "openapi.json") return Json::parse(file.bytes);
    return Json();
  }();
  return description;
}

// "get /v1/models" for each method that a row lists, and for each way to write its path.
std::set<std::string> OperationsOf(std::string_view path, http_listener::Methods methods) {
  std::set<std::string> paths;
  const size_t open = std::min(path.find('['), path.size());
  const size_t close = path.find(']');
  paths.emplace(path.substr(0, open));
  if (open < path.size()) {
    const std::string begin(path.substr(0, open));
    const std::string end(path.substr(close + 1));
    paths = {begin + end, begin + std::string(path.substr(open + 1, close - open - 1)) + end};
  }
  std::set<std::string> operations;
  const std::pair<const char*, http_listener::Methods> kNames[] = {
      {"get ", http_listener::kGet},
      {"post ", http_listener::kPost},
      {"put ", http_listener::kPut},
      {"delete ", http_listener::kDelete}};
  for (const std::string& written : paths)
    for (const auto& [name, bit] : kNames)
      if ((methods & bit) != 0) operations.insert(name + written);
  return operations;
}

template <typename Rows>
void AddOperations(const Rows& rows, std::set<std::string>& operations) {
  for (const auto& row : rows) operations.merge(OperationsOf(row.path, row.methods));
}

TEST(OpenApiTest, ItHasTheRoutesOfTheRoutersAndNoOthers) {
  std::set<std::string> served = {"get /metrics"};  // with --http-metrics
  AddOperations(kserve_http::Endpoints(), served);
  AddOperations(openai::Routes(), served);
  AddOperations(anthropic::Routes(), served);
  AddOperations(Routes(), served);
  std::set<std::string> described;
  for (const auto& [path, operations] : Description().at("paths").items())
    for (const auto& [method, operation] : operations.items()) {
      described.insert(method + " " + path);
      EXPECT_FALSE(operation.at("summary").get<std::string>().empty()) << method << " " << path;
    }
  EXPECT_EQ(described, served);
}

std::string BodyOf(const std::string& path) {
  const std::string reference = Description()
                                    .at("paths")
                                    .at(path)
                                    .at("post")
                                    .at("requestBody")
                                    .at("content")
                                    .at("application/json")
                                    .at("schema")
                                    .at("$ref");
  return reference.substr(reference.rfind('/') + 1);
}

TEST(OpenApiTest, BodiesHaveTheMembersThatAreReadAndNoOthers) {
  const std::pair<const char*, openai::BodyKinds> kBodies[] = {
      {"/v1/chat/completions", openai::kChat},
      {"/v1/completions", openai::kCompletion},
      {"/v1/responses", openai::kResponse},
      {"/v1/messages", openai::kMessages},
      {"/v1/messages/count_tokens", openai::kCountTokens},
      {"/tokenize", openai::kTokenize},
      {"/detokenize", openai::kDetokenize}};
  for (const auto& [path, kind] : kBodies) {
    std::set<std::string> read;
    for (const openai::BodyField& field : openai::BodyFields())
      if (field.read != nullptr && (field.kinds & kind) != 0) read.emplace(field.name);
    std::set<std::string> described;
    const Json& schema = Description().at("components").at("schemas").at(BodyOf(path));
    for (const auto& [name, member] : schema.at("properties").items()) {
      described.insert(name);
      EXPECT_FALSE(member.at("description").get<std::string>().empty()) << path << " " << name;
    }
    EXPECT_EQ(described, read) << path
                               << ": src/protocol/page/files/openapi.json has a line for "
                                  "each member of "
                               << BodyOf(path);
  }
}

// Bounds are told as the reader has them.
TEST(OpenApiTest, BoundsOfNumbersAreThoseOfTheReader) {
  const Json& chat = Description().at("components").at("schemas").at("ChatBody").at("properties");
  for (const openai::BodyField& field : openai::BodyFields()) {
    if ((field.kinds & openai::kChat) == 0 || field.read == nullptr || field.low == field.high)
      continue;
    const Json& member = chat.at(std::string(field.name));
    ASSERT_TRUE(member.contains("minimum")) << field.name;
    EXPECT_EQ(member.at("minimum").get<double>(), field.low) << field.name;
    if (member.contains("maximum")) {
      EXPECT_EQ(member.at("maximum").get<double>(), field.high) << field.name;
    }
  }
}

TEST(OpenApiTest, NamesInPathsAreParameters) {
  for (const auto& [path, operations] : Description().at("paths").items())
    for (const auto& [method, operation] : operations.items()) {
      std::string left = path;
      for (const Json& parameter : operation.value("parameters", Json::array())) {
        const std::string name = "{" + parameter.at("name").get<std::string>() + "}";
        const size_t at = left.find(name);
        ASSERT_NE(at, std::string::npos) << method << " " << path << " " << name;
        left.erase(at, name.size());
      }
      EXPECT_EQ(left.find('{'), std::string::npos) << method << " " << path;
    }
}

}  // namespace
}  // namespace inflight::page
