// SPDX-License-Identifier: Apache-2.0
#include "serving/configuration/model_config.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cctype>

#include "contract/parameter_values.h"

namespace inflight::serving {
namespace {

using ::inference::ModelConfig;

class ErrorCollector : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!text_.empty()) return;  // the first says most
    text_ = std::to_string(line + 1) + ":" + std::to_string(column + 1) + ": " + message;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

bool IsIdentifier(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

size_t SkipBlanksBack(const std::string& text, size_t end) {
  while (end > 0 && std::isspace(static_cast<unsigned char>(text[end - 1]))) --end;
  return end;
}

// Takes `name:` off the end of `text`, or the comma before a list element. True if a separator that
// follows belongs to nothing any more.
bool DropField(std::string& text, std::vector<std::string>& unfilled) {
  size_t end = SkipBlanksBack(text, text.size());
  if (end > 0 && text[end - 1] == ',') {
    text.resize(end - 1);
    return false;
  }
  if (end == 0 || text[end - 1] != ':') {  // a list's first element, or not a field at all
    return end > 0 && text[end - 1] == '[';
  }
  end = SkipBlanksBack(text, end - 1);
  size_t begin = end;
  while (begin > 0 && IsIdentifier(text[begin - 1])) --begin;
  unfilled.push_back(text.substr(begin, end - begin));
  text.resize(begin);
  return true;
}

// Skips a string or a comment that starts at `pos`, else one character. Lines stay where they are.
size_t SkipToken(std::string_view text, size_t pos) {
  const char first = text[pos];
  if (first == '#') return std::min(text.find('\n', pos), text.size());
  if (first != '"' && first != '\'') return pos + 1;
  for (size_t i = pos + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == first || text[i] == '\n') {
      return i + 1;
    }
  }
  return text.size();
}

// The text without placeholders outside strings and comments.
std::string DropUnfilled(std::string_view text, std::vector<std::string>& unfilled) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    if (text.substr(pos).starts_with("${")) {
      const size_t close = text.find('}', pos);
      if (close == std::string_view::npos) {
        out.append(text.substr(pos));  // not a placeholder; the parser will say so
        break;
      }
      const bool skip_separator = DropField(out, unfilled);
      pos = close + 1;
      if (!skip_separator) continue;  // in `[8, ${a}, 9]` the second comma is still needed
      size_t next = pos;
      while (next < text.size() && std::isspace(static_cast<unsigned char>(text[next]))) ++next;
      if (next < text.size() && (text[next] == ',' || text[next] == ';')) pos = next + 1;
      continue;
    }
    const size_t end = SkipToken(text, pos);
    out.append(text.substr(pos, end - pos));
    pos = end;
  }
  return out;
}

using ParseInfoTree = google::protobuf::TextFormat::ParseInfoTree;

void CollectWritten(const google::protobuf::Descriptor& message, const ParseInfoTree& tree,
                    const std::string& prefix, ParsedModelConfig& parsed) {
  for (int i = 0; i < message.field_count(); ++i) {
    const auto* field = message.field(i);
    const std::string path = prefix + field->name();
    int at = field->is_repeated() ? 0 : -1;
    if (tree.GetLocation(field, at).line < 0) continue;
    parsed.written.insert(path);
    // A list in brackets has one place in the text, and a tree for each element.
    while (const ParseInfoTree* nested = tree.GetTreeForNested(field, at)) {
      if (field->is_map()) break;
      CollectWritten(*field->message_type(), *nested, path + ".", parsed);
      if (!field->is_repeated()) break;
      ++at;
    }
  }
}

// A datatype left open: what the templates that leave it open ship with.
template <typename Io>
void FillDataType(Io& io) {
  if (io.data_type() != ::inference::TYPE_INVALID) return;
  io.set_data_type(io.name() == "encoder_input_features" ? ::inference::TYPE_FP16
                                                         : ::inference::TYPE_FP32);
}

void NormalizeSequences(ModelConfig& config) {
  constexpr uint64_t kIdleUs = 1'000'000;
  auto& batching = *config.mutable_sequence_batching();
  if (batching.max_sequence_idle_microseconds() == 0) {
    batching.set_max_sequence_idle_microseconds(kIdleUs);
  }
  if (batching.has_oldest() && batching.oldest().preferred_batch_size_size() == 0 &&
      config.max_batch_size() > 0) {
    batching.mutable_oldest()->add_preferred_batch_size(config.max_batch_size());
  }
}

}  // namespace

bool ParsedModelConfig::IsUnfilled(std::string_view field) const {
  return std::find(unfilled.begin(), unfilled.end(), field) != unfilled.end();
}

Result<ParsedModelConfig> ParseModelConfig(std::string_view text) {
  ParsedModelConfig parsed;
  const std::string filled = DropUnfilled(text, parsed.unfilled);
  google::protobuf::TextFormat::Parser parser;
  ErrorCollector errors;
  parser.RecordErrorsTo(&errors);
  parser.SetRecursionLimit(64);
  ParseInfoTree written;
  parser.WriteLocationsTo(&written);
  if (!parser.ParseFromString(filled, &parsed.config)) {
    return InvalidArgument("failed to read text proto: " + errors.text());
  }
  CollectWritten(*ModelConfig::descriptor(), written, "", parsed);
  if (parsed.IsUnfilled("data_type")) {
    for (auto& input : *parsed.config.mutable_input()) FillDataType(input);
    for (auto& output : *parsed.config.mutable_output()) FillDataType(output);
  }
  return parsed;
}

// By way of the text, which tells what is written as a file does.
Result<ParsedModelConfig> ParseModelConfigJson(const std::string& json, UnknownMembers unknown) {
  ModelConfig config;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = unknown == UnknownMembers::kIgnored;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &config, options);
  if (!status.ok()) {
    return InvalidArgument("Invalid config override: " + std::string(status.message()));
  }
  std::string text;
  google::protobuf::TextFormat::PrintToString(config, &text);
  return ParseModelConfig(text);
}

void NormalizeModelConfig(ModelConfig& config) {
  if (!config.has_version_policy()) {
    config.mutable_version_policy()->mutable_latest()->set_num_versions(1);
  }
  if (config.has_dynamic_batching() && config.max_batch_size() > 0 &&
      config.dynamic_batching().preferred_batch_size_size() == 0) {
    config.mutable_dynamic_batching()->add_preferred_batch_size(config.max_batch_size());
  }
  if (config.has_sequence_batching()) NormalizeSequences(config);
  if (config.has_ensemble_scheduling()) return;  // the rest belongs to models that execute

  auto& optimization = *config.mutable_optimization();
  if (!optimization.has_input_pinned_memory()) {
    optimization.mutable_input_pinned_memory()->set_enable(true);
  }
  if (!optimization.has_output_pinned_memory()) {
    optimization.mutable_output_pinned_memory()->set_enable(true);
  }
  if (config.instance_group_size() == 0) {
    auto& group = *config.add_instance_group();
    group.set_name(config.name());
    group.set_count(1);
    group.set_kind(::inference::ModelInstanceGroup::KIND_CPU);
  }
  for (int i = 0; i < config.instance_group_size(); ++i) {
    auto& group = *config.mutable_instance_group(i);
    if (group.name().empty()) group.set_name(config.name() + "_" + std::to_string(i));
    if (group.count() == 0) group.set_count(1);
    if (group.kind() == ::inference::ModelInstanceGroup::KIND_AUTO) {
      group.set_kind(::inference::ModelInstanceGroup::KIND_CPU);
    }
  }
}

std::optional<std::string> FindParameter(const ModelConfig& config, const std::string& key) {
  const auto found = config.parameters().find(key);
  if (found == config.parameters().end()) return std::nullopt;
  const std::string& value = found->second.string_value();
  if (contract::IsUnfilled(value)) return std::nullopt;
  return value;
}

std::map<std::string, std::string> AllParameters(const ModelConfig& config) {
  std::map<std::string, std::string> all;
  for (const auto& [key, value] : config.parameters()) all[key] = value.string_value();
  return all;
}

bool HasInput(const ModelConfig& config, std::string_view name) {
  return std::any_of(config.input().begin(), config.input().end(),
                     [&](const auto& input) { return input.name() == name; });
}

bool HasOutput(const ModelConfig& config, std::string_view name) {
  return std::any_of(config.output().begin(), config.output().end(),
                     [&](const auto& output) { return output.name() == name; });
}

}  // namespace inflight::serving
