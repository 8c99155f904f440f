// SPDX-License-Identifier: Apache-2.0
// The language of chat templates: a source and variables -> a text.
//
// The language is the part of Jinja that published templates of language models use, set up as
// transformers' apply_chat_template does: blocks trim the newline behind them and the spaces before
// them, `tojson` escapes nothing for HTML, `raise_exception`, `strftime_now`, `{% generation %}`,
// `{% break %}` and `{% continue %}` are known. Texts equal those of the Python packages
// (tests/chat_template). What is not supported is refused by name and line when a template is
// parsed.
//
// A template is somebody else's program. It sees nothing but its variables and the time, changes
// none of them, and its work, depth and output are bounded.
//
// Threads: immutable after Parse; Render may run on any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat_template/value.h"

namespace inflight::chat_template {

using Variables = std::vector<std::pair<std::string, Value>>;

class Template {
 public:
  // kInvalidArgument for faulty syntax, kUnimplemented for what is not supported: "line N: ...".
  static Result<Template> Parse(std::string_view source);

  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  // `now_s` is the time that strftime_now sees, in seconds since 1970; by default the system's.
  // kInvalidArgument: the template's own words where it raises, else "line N: ...".
  Result<std::string> Render(const Variables& variables,
                             std::optional<int64_t> now_s = std::nullopt) const;

 private:
  struct Tree;
  explicit Template(std::unique_ptr<const Tree> tree);
  std::unique_ptr<const Tree> tree_;
};

}  // namespace inflight::chat_template
