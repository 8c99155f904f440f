// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/llm_api_file.h"

#include <yaml.h>

#include <charconv>
#include <cstdio>
#include <map>
#include <memory>
#include <set>

#include "base/status_macros.h"

namespace inflight::serving {
namespace {

using Scalars = std::map<std::string, std::string>;

std::string TextOf(const yaml_node_t& node) {
  return {reinterpret_cast<const char*>(node.data.scalar.value), node.data.scalar.length};
}

// The members of a mapping; of one whose value is no scalar, its name with an empty value.
Scalars ScalarsOf(yaml_document_t& document, const yaml_node_t& mapping) {
  Scalars members;
  const auto& pairs = mapping.data.mapping.pairs;
  for (const yaml_node_pair_t* pair = pairs.start; pair < pairs.top; ++pair) {
    const yaml_node_t* key = yaml_document_get_node(&document, pair->key);
    const yaml_node_t* value = yaml_document_get_node(&document, pair->value);
    if (key == nullptr || value == nullptr || key->type != YAML_SCALAR_NODE) continue;
    members[TextOf(*key)] = value->type == YAML_SCALAR_NODE ? TextOf(*value) : std::string();
  }
  return members;
}

const yaml_node_t* FindMapping(yaml_document_t& document, const yaml_node_t& parent,
                               const std::string& name) {
  const auto& pairs = parent.data.mapping.pairs;
  for (const yaml_node_pair_t* pair = pairs.start; pair < pairs.top; ++pair) {
    const yaml_node_t* key = yaml_document_get_node(&document, pair->key);
    const yaml_node_t* value = yaml_document_get_node(&document, pair->value);
    if (key != nullptr && value != nullptr && key->type == YAML_SCALAR_NODE &&
        TextOf(*key) == name && value->type == YAML_MAPPING_NODE)
      return value;
  }
  return nullptr;
}

Status Wrong(const std::string& key, const std::string& value, const std::string& needed) {
  return InvalidArgument(key, "got '" + value + "', must be " + needed);
}

Status ReadCount(const Scalars& members, const std::string& key, int& out) {
  const auto found = members.find(key);
  if (found == members.end()) return Status::Ok();
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || out < 0)
    return Wrong(key, text, "a whole number of at least 0");
  return Status::Ok();
}

Status ReadFlag(const Scalars& members, const std::string& key, bool& out) {
  const auto found = members.find(key);
  if (found == members.end()) return Status::Ok();
  const std::string& text = found->second;
  out = text == "true" || text == "True" || text == "TRUE";
  if (out || text == "false" || text == "False" || text == "FALSE") return Status::Ok();
  return Wrong(key, text, "true or false");
}

Result<LlmApiFile> Read(yaml_document_t& document) {
  const yaml_node_t* root = yaml_document_get_root_node(&document);
  if (root == nullptr || root->type != YAML_MAPPING_NODE)
    return InvalidArgument("a mapping is needed");
  LlmApiFile file;
  Scalars members = ScalarsOf(document, *root);
  file.model = members["model"];
  if (file.model.empty()) return InvalidArgument("model", "is missing: a directory, or org/name");
  std::set<std::string> read = {"model", "triton_config"};
  for (const char* ranks : {"tensor_parallel_size", "pipeline_parallel_size"}) {
    read.insert(ranks);
    int size = 1;
    RETURN_IF_ERROR(ReadCount(members, ranks, size));
    if (size > 1)
      return Unimplemented(ranks, "got " + std::to_string(size) +
                                      ", a model of the LLM API runs on one rank; say 1");
  }
  if (const yaml_node_t* triton = FindMapping(document, *root, "triton_config")) {
    const Scalars own = ScalarsOf(document, *triton);
    RETURN_IF_ERROR(ReadCount(own, "max_batch_size", file.max_batch_size));
    RETURN_IF_ERROR(ReadFlag(own, "decoupled", file.decoupled));
    for (const auto& [key, value] : own) {
      if (key != "max_batch_size" && key != "decoupled")
        file.without_effect.push_back("triton_config." + key);
    }
  }
  for (const auto& [key, value] : members) {
    if (!read.contains(key)) file.without_effect.push_back(key);
  }
  return file;
}

}  // namespace

Result<LlmApiFile> ReadLlmApiFile(const std::filesystem::path& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> input(std::fopen(path.c_str(), "rb"),
                                                              std::fclose);
  if (input == nullptr) return NotFound(path.string() + ": cannot be read");
  yaml_parser_t parser;
  yaml_document_t document;
  yaml_parser_initialize(&parser);
  yaml_parser_set_input_file(&parser, input.get());
  const bool is_read = yaml_parser_load(&parser, &document) != 0;
  const std::string problem =
      is_read ? ""
              : path.string() + ": line " + std::to_string(parser.problem_mark.line + 1) + ": " +
                    (parser.problem == nullptr ? "is no YAML" : parser.problem);
  yaml_parser_delete(&parser);
  if (!is_read) return InvalidArgument(problem);
  auto file = Read(document);
  yaml_document_delete(&document);
  if (!file.ok()) return file.status().WithPrefix(path.string());
  return file;
}

}  // namespace inflight::serving
