// SPDX-License-Identifier: Apache-2.0
#include "chat_template/template.h"

#include <ctime>

#include "base/status_macros.h"
#include "chat_template/interpreter.h"
#include "chat_template/parser.h"

namespace inflight::chat_template {

struct Template::Tree {
  Body body;
};

Template::Template(std::unique_ptr<const Tree> tree) : tree_(std::move(tree)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Result<Template> Template::Parse(std::string_view source) {
  ASSIGN_OR_RETURN(Body body, chat_template::Parse(source));
  return Template(std::make_unique<const Tree>(Tree{std::move(body)}));
}

Result<std::string> Template::Render(const Variables& variables,
                                     std::optional<int64_t> now_s) const {
  return Interpreter(variables, now_s.value_or(std::time(nullptr))).Run(tree_->body);
}

}  // namespace inflight::chat_template
