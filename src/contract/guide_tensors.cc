// SPDX-License-Identifier: Apache-2.0
#include "contract/guide_tensors.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/status_macros.h"

namespace inflight::contract {
namespace {

struct GuideType {
  std::string_view name;
  GuideSpec::Kind kind;
};
constexpr auto kGuideTypes = std::to_array<GuideType>({
    {"json", GuideSpec::Kind::kJson},
    {"json_schema", GuideSpec::Kind::kJsonSchema},
    {"regex", GuideSpec::Kind::kRegex},
    {"ebnf_grammar", GuideSpec::Kind::kGrammar},
});

// Empty where it is absent or has no element.
Result<std::string_view> OneText(const Tensor* tensor) {
  if (tensor == nullptr || tensor->data.empty()) return std::string_view();
  ASSIGN_OR_RETURN(const auto texts, tensor->Strings());
  if (texts.size() == 1) return texts.front();
  return InvalidArgument(tensor->name,
                         "got " + std::to_string(texts.size()) + " texts, must be one");
}

}  // namespace

Result<std::optional<AskedGuide>> ReadGuide(const Tensor* type, const Tensor* guide) {
  ASSIGN_OR_RETURN(const std::string_view name, OneText(type));
  ASSIGN_OR_RETURN(const std::string_view text, OneText(guide));
  if (name.empty()) {
    if (text.empty()) return std::optional<AskedGuide>();
    return InvalidArgument(guide->name, "needs its type: send " + std::string(kGuideType) +
                                            " as well, which is "
                                            "json_schema, regex or ebnf_grammar");
  }
  const auto* const found = std::ranges::find(kGuideTypes, name, &GuideType::name);
  if (found == kGuideTypes.end())
    return Unimplemented(type->name, "got '" + std::string(name.substr(0, 64)) +
                                         "'; json, json_schema, regex and ebnf_grammar are "
                                         "supported");
  const bool takes_guide = found->kind != GuideSpec::Kind::kJson;
  if (takes_guide && text.empty())
    return InvalidArgument(
        type->name, "got " + std::string(name) + ", which needs a text in guided_decoding_guide");
  if (!takes_guide && !text.empty())
    return InvalidArgument(guide->name,
                           "got a text, json has none; leave it out, or send json_schema");
  return std::optional(AskedGuide{.spec = {.kind = found->kind, .text = std::string(text)},
                                  .field = takes_guide ? guide->name : type->name});
}

}  // namespace inflight::contract
