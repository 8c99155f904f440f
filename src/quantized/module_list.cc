// SPDX-License-Identifier: Apache-2.0
#include "quantized/module_list.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "artifact/printable.h"

namespace inflight::quantized {
namespace {

constexpr uint32_t kMatchLimit = 100'000;  // backtracks of one match
constexpr uint32_t kHeapLimitKib = 4096;
constexpr size_t kMaxEntryBytes = 4096;

// Of file names, as a regular expression.
std::string OfWildcards(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (c == '*')
      pattern += ".*";
    else if (c == '?')
      pattern += '.';
    else if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_')
      pattern += c;
    else
      pattern += fmt::format("\\x{{{:x}}}", static_cast<unsigned char>(c));
  }
  return fmt::format("(?:{})(?=\\.|$)", pattern);
}

}  // namespace

class ModuleList::Pattern {
 public:
  // Matches at the beginning of a text, as Python's re.match.
  static Result<std::shared_ptr<const Pattern>> Compile(const std::string& text) {
    int error = 0;
    size_t offset = 0;
    pcre2_code* const code = pcre2_compile(
        reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
        PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C | PCRE2_NEVER_UTF, &error, &offset, nullptr);
    if (code == nullptr)
      return InvalidArgument(fmt::format("no regular expression at character {}", offset));
    return std::make_shared<const Pattern>(code);
  }

  explicit Pattern(pcre2_code* code) : code_(code), context_(pcre2_match_context_create(nullptr)) {
    pcre2_set_match_limit(context_, kMatchLimit);
    pcre2_set_heap_limit(context_, kHeapLimitKib);
  }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
  ~Pattern() {
    pcre2_match_context_free(context_);
    pcre2_code_free(code_);
  }

  // False too where the limits end the search.
  bool Matches(std::string_view text) const {
    pcre2_match_data* const data = pcre2_match_data_create_from_pattern(code_, nullptr);
    const int found = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                                  0, data, context_);
    pcre2_match_data_free(data);
    return found >= 0;
  }

 private:
  pcre2_code* code_;
  pcre2_match_context* context_;
};

Status ModuleList::Add(std::string text, ListSyntax syntax) {
  Entry entry;
  std::string pattern;
  switch (syntax) {
    case ListSyntax::kTransformers:
      pattern = fmt::format("(?:{})(?:(?<=\\.)|(?=\\.|$))", text);
      entry.end = text;
      break;
    case ListSyntax::kCompressedTensors:
      if (text.starts_with("re:")) pattern = text.substr(3);
      entry.is_all = text == "Linear";
      break;
    case ListSyntax::kWildcards:
      pattern = OfWildcards(text);
      break;
  }
  if (!pattern.empty()) {
    ASSIGN_OR_RETURN(entry.pattern, Pattern::Compile(pattern));
  }
  entry.text = std::move(text);
  entries_.push_back(std::move(entry));
  return Status::Ok();
}

ModuleList ModuleList::Read(artifact::JsonFields& fields, std::string_view field,
                            ListSyntax syntax) {
  ModuleList list;
  list.field_ = field;
  const nlohmann::json* const found = fields.Find(field);
  if (found == nullptr) return list;
  if (!found->is_array()) {
    fields.Fail(field,
                fmt::format("got {}, a list of names is needed", artifact::Abbreviate(*found)));
    return list;
  }
  for (const nlohmann::json& entry : *found) {
    const bool is_name = entry.is_string() && !entry.get_ref<const std::string&>().empty() &&
                         entry.get_ref<const std::string&>().size() <= kMaxEntryBytes;
    const Status added = is_name ? list.Add(entry.get<std::string>(), syntax)
                                 : InvalidArgument("no name of a module");
    if (!added.ok())
      fields.Fail(field, fmt::format("got {}, {}", artifact::Abbreviate(entry), added.message()));
  }
  return list;
}

const std::string* ModuleList::Find(std::string_view module) const {
  for (const Entry& entry : entries_) {
    const bool is_it = entry.is_all || module == entry.text ||
                       (!entry.end.empty() && module.ends_with(entry.end)) ||
                       (entry.pattern != nullptr && entry.pattern->Matches(module));
    if (is_it) return &entry.text;
  }
  return nullptr;
}

}  // namespace inflight::quantized
