// SPDX-License-Identifier: Apache-2.0
#include "chat_template/known_names.h"

#include <fmt/format.h>

#include "chat_template/builtins.h"

namespace inflight::chat_template {
namespace {

class NameCheck {
 public:
  // `is_in_if`: its statements are a branch, and stand in no loop or macro within that.
  void CheckBody(const Body& body, bool is_in_if) {
    for (const Statement& statement : body) CheckStatement(statement, is_in_if);
  }

  const Status& status() const { return status_; }

 private:
  void CheckStatement(const Statement& statement, bool is_in_if) {
    Check(statement.expr, is_in_if);
    Check(statement.condition, false);  // of a loop
    for (const Branch& branch : statement.branches) {
      Check(branch.condition, true);
      CheckBody(branch.body, true);
    }
    CheckBody(statement.body, false);
    CheckBody(statement.otherwise, false);
    if (statement.macro == nullptr) return;
    for (const ExprPtr& value : statement.macro->defaults) Check(value, false);
    CheckBody(statement.macro->body, false);
  }

  void Check(const ExprPtr& expr, bool is_in_if) {
    if (expr == nullptr || !status_.ok()) return;
    is_in_if |= expr->kind == ExprKind::kConditional;
    if (!is_in_if && expr->kind == ExprKind::kFilter && !HasFilter(expr->text))
      Refuse(*expr, "filter", FilterNames());
    if (!is_in_if && expr->kind == ExprKind::kTest && !HasTest(expr->text))
      Refuse(*expr, "test", TestNames());
    for (const ExprPtr& operand : expr->operands) Check(operand, is_in_if);
    for (const ExprPtr& argument : expr->arguments.positional) Check(argument, is_in_if);
    for (const auto& [name, argument] : expr->arguments.named) Check(argument, is_in_if);
    Check(expr->arguments.list, is_in_if);
    Check(expr->arguments.dict, is_in_if);
  }

  void Refuse(const Expr& expr, std::string_view what, const std::string& supported) {
    status_ = Unimplemented(fmt::format("line {}: the {} '{}' is not supported; supported are {}",
                                        expr.line, what, expr.text, supported));
  }

  Status status_;
};

}  // namespace

Status CheckNames(const Body& body) {
  NameCheck check;
  check.CheckBody(body, false);
  return check.status();
}

}  // namespace inflight::chat_template
