// SPDX-License-Identifier: Apache-2.0
// A template and special tokens from the files of a model directory, and what it is rendered with.
#include "inflight/chat_template.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/file.h"
#include "base/status_macros.h"
#include "chat_template/named_templates.h"
#include "chat_template/parser.h"
#include "chat_template/template.h"
#include "gguf/file.h"

namespace inflight::chat_template {
namespace {

constexpr const char* kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

// The file's object; an undefined value where there is no file.
Result<Value> ReadJsonObject(const std::filesystem::path& path) {
  if (!FileExists(path)) return Value();
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  Result<Value> value = Value::FromJson(text);
  if (!value.ok()) return value.status().WithPrefix(path.string());
  if (value->dict() == nullptr)
    return InvalidArgument(fmt::format("{}: holds no JSON object", path.string()));
  return value;
}

const Value* Find(const Value& object, std::string_view key) {
  return object.dict() == nullptr ? nullptr : object.dict()->Find(key);
}

// A token is written as its text, or as an object with "content".
const std::string* TokenText(const Value* token) {
  if (token == nullptr) return nullptr;
  if (const Value* content = Find(*token, "content")) return content->string();
  return token->string();
}

Variables SpecialTokens(const Value& config, const Value& map) {
  Variables tokens;
  for (const char* name : kSpecialTokens) {
    const std::string* text = TokenText(Find(config, name));
    if (text == nullptr) text = TokenText(Find(map, name));
    if (text != nullptr) tokens.emplace_back(name, Value(*text));
  }
  return tokens;
}

// "chat_template" of tokenizer_config.json; null where it has none.
Result<const std::string*> TemplateOf(const Value& config) {
  const Value* entry = Find(config, "chat_template");
  if (entry == nullptr || entry->is_none()) return nullptr;
  if (entry->string() != nullptr) return entry->string();
  if (entry->list() != nullptr) {
    for (const Value& named : entry->list()->items) {
      const Value* name = Find(named, "name");
      const Value* source = Find(named, "template");
      if (name != nullptr && name->string() != nullptr && *name->string() == "default" &&
          source != nullptr && source->string() != nullptr)
        return source->string();
    }
  }
  return InvalidArgument(
      "chat_template: needs a text, or a list with one that is named \"default\"");
}

struct Source {
  std::optional<std::string> text;
  Variables special_tokens;
};

// Of a GGUF file's metadata.
Result<Source> ReadGguf(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::Open(path));
  ASSIGN_OR_RETURN(const gguf::File file, gguf::Parse(mapped.bytes(), path.string()));
  Source source;
  ASSIGN_OR_RETURN(const auto text, file.metadata.Text("tokenizer.chat_template"));
  if (text && text->size() > kMaxTemplateBytes)
    return InvalidArgument(fmt::format("{}: tokenizer.chat_template: got {} bytes, {} are allowed",
                                       path.string(), text->size(), kMaxTemplateBytes));
  if (text) source.text = std::string(*text);
  ASSIGN_OR_RETURN(const auto tokens, file.metadata.Texts("tokenizer.ggml.tokens"));
  if (!tokens) return source;
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"bos_token", "bos"},       {"eos_token", "eos"},     {"unk_token", "unknown"},
      {"sep_token", "seperator"}, {"pad_token", "padding"}, {"mask_token", "mask"}};
  for (const auto& [name, key] : kNames) {
    ASSIGN_OR_RETURN(const auto id,
                     file.metadata.SpecialId(key, static_cast<int64_t>(tokens->size())));
    if (id)
      source.special_tokens.emplace_back(name,
                                         Value(std::string((*tokens)[static_cast<size_t>(*id)])));
  }
  return source;
}

// What a template finds under a name: the first entry of that name.
void Set(std::string name, Value value, Variables& variables) {
  std::erase_if(variables, [&](const auto& variable) { return variable.first == name; });
  variables.emplace_back(std::move(name), std::move(value));
}

}  // namespace
}  // namespace inflight::chat_template

namespace inflight {

using chat_template::None;
using chat_template::Template;
using chat_template::Value;
using chat_template::Variables;

struct ChatTemplate::Parts {
  std::string text;
  std::string origin;
  Template source;
  Variables special_tokens;
};

ChatTemplate::ChatTemplate(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

Result<ChatTemplate> ChatTemplate::Load(const std::filesystem::path& model_dir,
                                        const std::filesystem::path& file) {
  const std::filesystem::path config_path = model_dir / "tokenizer_config.json";
  ASSIGN_OR_RETURN(const Value config, chat_template::ReadJsonObject(config_path));
  ASSIGN_OR_RETURN(const Value map,
                   chat_template::ReadJsonObject(model_dir / "special_tokens_map.json"));
  chat_template::Source source{.text = {},
                               .special_tokens = chat_template::SpecialTokens(config, map)};
  std::filesystem::path path = file.empty() ? model_dir / "chat_template.jinja" : file;
  const std::filesystem::path gguf = gguf::TokenizerFileOf(model_dir);
  if (!gguf.empty()) {
    ASSIGN_OR_RETURN(source, chat_template::ReadGguf(gguf));
    if (file.empty() && !FileExists(path)) path = gguf;
  }
  const auto named = chat_template::NamedTemplate(file.string());
  if (named && !FileExists(file)) {
    source.text = std::string(*named);
  } else if (!file.empty() || (path != gguf && FileExists(path))) {
    if (!file.empty() && !FileExists(path))
      return InvalidArgument(
          fmt::format("{}: there is no such file, and the templates that have "
                      "names are {}",
                      path.string(), chat_template::TemplateNames()));
    ASSIGN_OR_RETURN(source.text, ReadFile(path, chat_template::kMaxTemplateBytes));
  } else if (gguf.empty()) {
    path = config_path;
    const Result<const std::string*> found = chat_template::TemplateOf(config);
    if (!found.ok()) return found.status().WithPrefix(path.string());
    if (*found != nullptr) source.text = **found;
  }
  if (!source.text)
    return NotFound(
        fmt::format("{}: no chat template: neither chat_template.jinja nor \"chat_template\" in "
                    "tokenizer_config.json, nor tokenizer.chat_template in a GGUF file",
                    model_dir.string()));
  Result<Template> parsed = Template::Parse(*source.text);
  if (!parsed.ok()) return parsed.status().WithPrefix(path.string() + ": chat template");
  return ChatTemplate(std::make_shared<const Parts>(*std::move(source.text),
                                                    path.filename().string(), *std::move(parsed),
                                                    std::move(source.special_tokens)));
}

std::string ChatTemplate::Names() { return chat_template::TemplateNames(); }

std::string_view ChatTemplate::source() const { return parts_->text; }
std::string_view ChatTemplate::origin() const { return parts_->origin; }

Result<std::string> ChatTemplate::Render(std::span<const ChatMessage> messages) const {
  std::vector<Value> turns;
  for (const ChatMessage& message : messages) {
    ASSIGN_OR_RETURN(turns.emplace_back(), Value::MakeDict({{"role", Value(message.role)},
                                                            {"content", Value(message.content)}}));
  }
  Variables variables = parts_->special_tokens;
  ASSIGN_OR_RETURN(Value list, Value::MakeList(std::move(turns)));
  variables.emplace_back("messages", std::move(list));
  variables.emplace_back("tools", Value(None{}));
  variables.emplace_back("documents", Value(None{}));
  variables.emplace_back("add_generation_prompt", Value(true));
  return parts_->source.Render(variables);
}

Result<std::string> ChatTemplate::RenderJson(std::string_view variables) const {
  ASSIGN_OR_RETURN(const Value object, Value::FromJson(variables));
  if (object.dict() == nullptr) return InvalidArgument("variables: needs a JSON object");
  Variables all = parts_->special_tokens;
  for (const auto& [name, value] : object.dict()->items)
    chat_template::Set(*name.text(), value, all);  // names of JSON are texts
  return parts_->source.Render(all);
}

}  // namespace inflight
