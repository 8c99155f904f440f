// SPDX-License-Identifier: Apache-2.0
#include "chat_template/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "chat_template/builtins.h"

namespace inflight::chat_template {

namespace {

using Kind = Token::Kind;

constexpr int kMaxTreeDepth = 200;

}  // namespace

ExprPtr ExpressionParser::Make(ExprKind kind, std::string text) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = current().line;
  expr->text = std::move(text);
  return expr;
}

void ExpressionParser::Count(Expr& parent, const ExprPtr& child) {
  if (child == nullptr) return;
  parent.depth = std::max(parent.depth, child->depth + 1);
  if (parent.depth > kMaxTreeDepth)
    Fail(fmt::format("an expression has more than {} levels", kMaxTreeDepth));
}

void ExpressionParser::Add(Expr& parent, ExprPtr child) {
  Count(parent, child);
  parent.operands.push_back(std::move(child));
}

ExprPtr ExpressionParser::Binary(ExprKind kind, ExprPtr left, ExprPtr right, std::string text) {
  ExprPtr expr = Make(kind, std::move(text));
  expr->line = left->line;
  Add(*expr, std::move(left));
  Add(*expr, std::move(right));
  return expr;
}

ExprPtr ExpressionParser::Expression() {
  const Nested nested(*this);
  ExprPtr expr = Or();
  while (!failed() && SkipName("if")) {
    ExprPtr conditional = Make(ExprKind::kConditional);
    Add(*conditional, Or());
    Add(*conditional, std::move(expr));
    Add(*conditional, SkipName("else") ? Expression() : nullptr);
    expr = std::move(conditional);
  }
  return expr;
}

ExprPtr ExpressionParser::WithoutIf() {
  ExprPtr first = Or();
  if (IsOperator(",")) Refuse("a `for` over values without brackets", "put them in brackets");
  return first;
}

ExprPtr ExpressionParser::WithTuples() {
  ExprPtr first = Expression();
  if (!IsOperator(",")) return first;
  ExprPtr tuple = Make(ExprKind::kTuple);
  Add(*tuple, std::move(first));
  while (!failed() && SkipOperator(",")) {
    if (Is(Kind::kBlockEnd) || Is(Kind::kVariableEnd) || IsOperator(")")) break;
    Add(*tuple, Expression());
  }
  return tuple;
}

ExprPtr ExpressionParser::Or() {
  ExprPtr expr = And();
  while (!failed() && SkipName("or")) expr = Binary(ExprKind::kOr, std::move(expr), And());
  return expr;
}

ExprPtr ExpressionParser::And() {
  ExprPtr expr = Not();
  while (!failed() && SkipName("and")) expr = Binary(ExprKind::kAnd, std::move(expr), Not());
  return expr;
}

ExprPtr ExpressionParser::Not() {
  const Nested nested(*this);
  if (failed() || !IsName("not")) return Compare();
  ExprPtr expr = Make(ExprKind::kNot);
  Advance();
  Add(*expr, Not());
  return expr;
}

ExprPtr ExpressionParser::Compare() {
  ExprPtr first = Sum();
  ExprPtr compare;
  while (!failed()) {
    std::string op;
    static constexpr std::string_view kComparisons[] = {"==", "!=", "<", "<=", ">", ">="};
    const bool is_symbol =
        Is(Kind::kOperator) && std::find(std::begin(kComparisons), std::end(kComparisons),
                                         current().text) != std::end(kComparisons);
    if (is_symbol || IsName("in")) {
      op = current().text;
    } else if (IsName("not") && NextIs(Kind::kName, "in")) {
      op = "not in";
      Advance();
    } else {
      break;
    }
    Advance();
    if (compare == nullptr) {
      compare = Make(ExprKind::kCompare);
      Add(*compare, std::move(first));
    }
    compare->operators.push_back(std::move(op));
    Add(*compare, Sum());
  }
  return compare == nullptr ? std::move(first) : std::move(compare);
}

ExprPtr ExpressionParser::Sum() {
  ExprPtr expr = Concat();
  while (!failed() && (IsOperator("+") || IsOperator("-"))) {
    std::string op = current().text;
    Advance();
    expr = Binary(ExprKind::kBinary, std::move(expr), Concat(), std::move(op));
  }
  return expr;
}

ExprPtr ExpressionParser::Concat() {
  ExprPtr first = Product();
  if (!IsOperator("~")) return first;
  ExprPtr concat = Make(ExprKind::kConcat);
  Add(*concat, std::move(first));
  while (!failed() && SkipOperator("~")) Add(*concat, Product());
  return concat;
}

ExprPtr ExpressionParser::Product() {
  ExprPtr expr = Power();
  while (!failed() && (IsOperator("*") || IsOperator("/") || IsOperator("//") || IsOperator("%"))) {
    std::string op = current().text;
    Advance();
    expr = Binary(ExprKind::kBinary, std::move(expr), Power(), std::move(op));
  }
  return expr;
}

ExprPtr ExpressionParser::Power() {
  ExprPtr expr = Unary(/*with_filter=*/true);
  if (IsOperator("**")) Refuse("the operator '**'", "multiply with '*'");
  return expr;
}

ExprPtr ExpressionParser::Unary(bool with_filter) {
  const Nested nested(*this);
  ExprPtr expr;
  if (!failed() && (IsOperator("-") || IsOperator("+"))) {
    expr = Make(IsOperator("-") ? ExprKind::kNegate : ExprKind::kPlus);
    Advance();
    Add(*expr, Unary(/*with_filter=*/false));
  } else {
    expr = Primary();
  }
  expr = Postfix(std::move(expr));
  while (with_filter && !failed()) {
    if (SkipOperator("|"))
      expr = Filter(std::move(expr));
    else if (SkipName("is"))
      expr = Test(std::move(expr));
    else if (IsOperator("("))
      expr = Call(std::move(expr));
    else
      break;
  }
  return expr;
}

ExprPtr ExpressionParser::Primary() {
  if (Is(Kind::kName)) return NameOrLiteral();
  if (Is(Kind::kInteger) || Is(Kind::kFloat)) return Number();
  if (IsOperator("(")) return Parenthesized();
  if (IsOperator("[")) return ListLiteral();
  if (IsOperator("{")) return DictLiteral();
  ExprPtr literal = Make(ExprKind::kLiteral);
  if (!Is(Kind::kString)) {
    Fail(fmt::format("expected an expression, found {}", Found()));
    return literal;
  }
  std::string text;  // neighbours join
  for (; Is(Kind::kString); Advance()) text += current().text;
  literal->value = Value(std::move(text));
  return literal;
}

ExprPtr ExpressionParser::NameOrLiteral() {
  ExprPtr expr = Make(ExprKind::kLiteral);
  const std::string name = current().text;
  if (name == "true" || name == "True")
    expr->value = Value(true);
  else if (name == "false" || name == "False")
    expr->value = Value(false);
  else if (name == "none" || name == "None")
    expr->value = Value(None{});
  else
    expr = Make(ExprKind::kName, name);
  reads_.caller |= name == "caller";
  reads_.varargs |= name == "varargs";
  reads_.kwargs |= name == "kwargs";
  Advance();
  return expr;
}

ExprPtr ExpressionParser::Number() {
  ExprPtr literal = Make(ExprKind::kLiteral);
  const std::string& text = current().text;
  const char* end = text.data() + text.size();
  int64_t whole = 0;
  double number = 0;
  if (Is(Kind::kInteger) && std::from_chars(text.data(), end, whole).ec == std::errc())
    literal->value = Value(whole);
  else if (Is(Kind::kFloat) && std::from_chars(text.data(), end, number).ec == std::errc())
    literal->value = Value(number);
  else
    Fail(fmt::format("{} is too large", text));
  Advance();
  return literal;
}

ExprPtr ExpressionParser::Parenthesized() {
  Advance();
  if (SkipOperator(")")) return Make(ExprKind::kTuple);
  ExprPtr expr = WithTuples();
  Expect(")");
  return expr;
}

ExprPtr ExpressionParser::ListLiteral() {
  ExprPtr list = Make(ExprKind::kList);
  Advance();
  while (!failed() && !IsOperator("]")) {
    Add(*list, Expression());
    if (!SkipOperator(",")) break;
  }
  Expect("]");
  return list;
}

ExprPtr ExpressionParser::DictLiteral() {
  ExprPtr dict = Make(ExprKind::kDict);
  Advance();
  while (!failed() && !IsOperator("}")) {
    Add(*dict, Expression());
    Expect(":");
    Add(*dict, Expression());
    if (!SkipOperator(",")) break;
  }
  Expect("}");
  return dict;
}

ExprPtr ExpressionParser::Postfix(ExprPtr expr) {
  while (!failed()) {
    if (SkipOperator(".")) {
      ExprPtr member = Make(ExprKind::kMember);
      if (Is(Kind::kInteger)) {
        member->kind = ExprKind::kItem;
        Add(*member, std::move(expr));
        Add(*member, Number());
      } else {
        member->text = ExpectName("a member's name");
        Add(*member, std::move(expr));
      }
      expr = std::move(member);
    } else if (IsOperator("[")) {
      expr = Subscript(std::move(expr));
    } else if (IsOperator("(")) {
      expr = Call(std::move(expr));
    } else {
      break;
    }
  }
  return expr;
}

ExprPtr ExpressionParser::Subscript(ExprPtr object) {
  ExprPtr item = Make(ExprKind::kItem);
  Add(*item, std::move(object));
  Advance();
  const auto at_bound_end = [this] { return IsOperator(":") || IsOperator("]"); };
  ExprPtr begin = at_bound_end() ? nullptr : Expression();
  if (IsOperator(",")) Refuse("a subscript of several values", "give one value or a slice");
  if (!IsOperator(":")) {
    if (begin == nullptr) Fail("expected a subscript, found ']'");
    Add(*item, std::move(begin));
    Expect("]");
    return item;
  }
  item->kind = ExprKind::kSlice;
  Add(*item, std::move(begin));
  for (int i = 0; i < 2; ++i) {
    const bool has = SkipOperator(":") && !at_bound_end();
    Add(*item, has ? Expression() : nullptr);
  }
  Expect("]");
  return item;
}

void ExpressionParser::ReadArguments(Expr& call) {
  Expect("(");
  while (!failed() && !IsOperator(")")) {
    if (call.arguments.dict != nullptr) return Fail("an argument follows one with **");
    if (IsOperator("*") || IsOperator("**"))
      ReadUnpacked(call);
    else
      ReadArgument(call);
    if (!SkipOperator(",")) break;
  }
  Expect(")");
}

void ExpressionParser::ReadArgument(Expr& call) {
  const bool is_named = Is(Kind::kName) && NextIs(Kind::kOperator, "=");
  std::string name;
  if (is_named) {
    name = ExpectName("a name");
    Advance();
  } else if (!call.arguments.named.empty() || call.arguments.list != nullptr) {
    return Fail(fmt::format("an argument without a name follows one with {}",
                            call.arguments.list != nullptr ? "*" : "a name"));
  }
  ExprPtr value = Expression();
  Count(call, value);
  if (is_named)
    call.arguments.named.emplace_back(std::move(name), std::move(value));
  else
    call.arguments.positional.push_back(std::move(value));
}

void ExpressionParser::ReadUnpacked(Expr& call) {
  ExprPtr& unpacked = IsOperator("*") ? call.arguments.list : call.arguments.dict;
  if (unpacked != nullptr) return Fail("a call has a second argument with *");
  Advance();
  unpacked = Expression();
  Count(call, unpacked);
}

ExprPtr ExpressionParser::Call(ExprPtr callee) {
  ExprPtr call = Make(ExprKind::kCall);
  Add(*call, std::move(callee));
  ReadArguments(*call);
  return call;
}

ExprPtr ExpressionParser::Filter(ExprPtr operand) {
  ExprPtr filter = Make(ExprKind::kFilter);
  filter->text = ExpectName("a filter's name");
  Add(*filter, std::move(operand));
  if (IsOperator("(")) ReadArguments(*filter);
  return filter;
}

ExprPtr ExpressionParser::Test(ExprPtr operand) {
  const bool negated = SkipName("not");
  ExprPtr test = Make(ExprKind::kTest);
  test->text = ExpectName("a test's name");
  Add(*test, std::move(operand));
  if (!failed() && IsOperator("(")) {
    ReadArguments(*test);
  } else if (!failed() && TestTakesArgument(test->text)) {
    ExprPtr argument = Postfix(Primary());
    Count(*test, argument);
    test->arguments.positional.push_back(std::move(argument));
  }
  if (!negated) return test;
  ExprPtr inverse = Make(ExprKind::kNot);
  Add(*inverse, std::move(test));
  return inverse;
}

}  // namespace inflight::chat_template
