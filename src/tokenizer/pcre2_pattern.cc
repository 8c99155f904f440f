// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/pcre2_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tokenizer/unicode.h"

namespace inflight::tokenizer {
namespace {

constexpr uint32_t kMatchLimit = 10'000'000;  // backtracks of one match
constexpr uint32_t kHeapLimitKib =
    64 * 1024;  // of the interpreter, when the JIT stack is too small

template <typename T, void (*Free)(T*)>
struct Freer {
  void operator()(T* p) const { Free(p); }
};
using Code = std::unique_ptr<pcre2_code, Freer<pcre2_code, pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freer<pcre2_match_data, pcre2_match_data_free>>;
using MatchContext =
    std::unique_ptr<pcre2_match_context, Freer<pcre2_match_context, pcre2_match_context_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context,
                                       Freer<pcre2_compile_context, pcre2_compile_context_free>>;

std::string ErrorText(int code) {
  char buffer[256];
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(buffer), sizeof buffer);
  return buffer;
}

class Pcre2Pattern final : public SplitPattern {
 public:
  Pcre2Pattern(Code code, MatchContext context)
      : code_(std::move(code)), context_(std::move(context)) {}

  Status FindAll(std::string_view text, std::vector<Span>& spans) const override {
    const MatchData data(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    size_t start = 0;    // where the search goes on
    size_t covered = 0;  // end of the last span
    bool matched = false;
    while (start <= text.size()) {
      int rc = Match(text, start, 0, data.get());
      if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = Match(text, start, PCRE2_NO_JIT, data.get());
      if (rc == PCRE2_ERROR_NOMATCH) break;
      if (rc < 0) {
        return ResourceExhausted("text: the tokenizer's split pattern fails on it: " +
                                 ErrorText(rc) + " (shorten the text)");
      }
      const size_t* const bounds = pcre2_get_ovector_pointer(data.get());
      const size_t begin = bounds[0], end = bounds[1];
      if (begin == end && matched && covered == end) {  // no empty match right behind another match
        if (start == text.size()) break;
        start += CharAt(text.data() + start).size;
        continue;
      }
      if (covered < begin) {  // NOLINTNEXTLINE(readability-suspicious-call-argument)
        spans.push_back(MakeSpan(covered, begin, false));
      }
      spans.push_back(MakeSpan(begin, end, true));
      start = covered = end;
      matched = true;
    }
    if (covered < text.size()) spans.push_back(MakeSpan(covered, text.size(), false));
    return Status::Ok();
  }

 private:
  static Span MakeSpan(size_t begin, size_t end, bool is_match) {
    return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end), is_match};
  }
  int Match(std::string_view text, size_t start, uint32_t options, pcre2_match_data* data) const {
    return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start,
                       options | PCRE2_NO_UTF_CHECK, data, context_.get());
  }

  Code code_;
  MatchContext context_;
};

}  // namespace

Result<std::shared_ptr<const SplitPattern>> CompilePcre2(const std::string& pattern) {
  const CompileContext compile(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(compile.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                          &offset, compile.get()));
  if (!code) {
    return InvalidArgument("pattern: " + ErrorText(error) + " at offset " + std::to_string(offset) +
                           " of " + pattern);
  }
  // Without a JIT (unsupported machine) the interpreter does the work.
  static_cast<void>(pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE));
  MatchContext context(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimitKib);
  return std::shared_ptr<const SplitPattern>(
      std::make_shared<Pcre2Pattern>(std::move(code), std::move(context)));
}

}  // namespace inflight::tokenizer
