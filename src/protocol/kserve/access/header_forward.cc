// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/access/header_forward.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <utility>

namespace inflight::kserve {
namespace {

// Names come from strangers: a pattern that backtracks for long is no match.
constexpr uint32_t kMatchLimit = 100'000;

constexpr std::array<std::string_view, 7> kReserved = {
    "sequence_id", "sequence_start", "sequence_end",      "priority",
    "timeout",     "headers",        "binary_data_output"};

bool IsReserved(std::string_view name) {
  return name.starts_with("triton_") ||
         std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end();
}

}  // namespace

class HeaderForward::Pattern {
 public:
  Pattern(pcre2_code* code, pcre2_match_context* context) : code_(code), context_(context) {}
  ~Pattern() {
    pcre2_match_context_free(context_);
    pcre2_code_free(code_);
  }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  bool Matches(std::string_view name) const {
    pcre2_match_data* data = pcre2_match_data_create_from_pattern(code_, nullptr);
    const int found = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0,
                                  0, data, context_);
    pcre2_match_data_free(data);
    return found >= 0;
  }

 private:
  pcre2_code* code_;
  pcre2_match_context* context_;
};

Result<HeaderForward> HeaderForward::Make(const std::string& pattern) {
  HeaderForward forward;
  if (pattern.empty()) return forward;
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_CASELESS, &error, &offset, nullptr);
  if (code == nullptr) {
    std::array<char, 256> text{};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(text.data()), text.size());
    return InvalidArgument("header forward pattern '" + pattern + "': " + text.data() + " at " +
                           std::to_string(offset));
  }
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(context, kMatchLimit);
  forward.pattern_ = std::make_shared<const Pattern>(code, context);
  return forward;
}

Result<bool> HeaderForward::Matches(std::string_view name) const {
  if (pattern_ == nullptr || !pattern_->Matches(name)) return false;
  if (IsReserved(name)) {
    return InvalidArgument("Header '" + std::string(name) +
                           "' is reserved for Triton usage and cannot be forwarded.");
  }
  return true;
}

}  // namespace inflight::kserve
