// SPDX-License-Identifier: Apache-2.0
#include "chat_template/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "chat_template/expression_parser.h"
#include "chat_template/known_names.h"

namespace inflight::chat_template {
namespace {

using Kind = Token::Kind;

// Statements of Jinja and its usual extensions that chat templates have no use for.
constexpr std::string_view kUnsupported[] = {"block", "extends",    "include", "import", "from",
                                             "with",  "autoescape", "filter",  "do",     "trans"};

class TemplateParser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Result<Body> Run() {
    Body body = Statements({});
    if (!failed() && !Is(Kind::kEnd))
      Fail(fmt::format("'{{% {} %}}' closes nothing", current().text));
    RETURN_IF_ERROR(status());
    RETURN_IF_ERROR(CheckNames(body));
    return body;
  }

 private:
  using Names = std::vector<std::string_view>;

  // Up to a block that begins with one of `ends`; the name of that is current then.
  Body Statements(const Names& ends) {
    const Nested nested(*this);
    Body body;
    while (!failed() && !Is(Kind::kEnd)) {
      if (Is(Kind::kData)) {
        body.push_back(Make(StatementKind::kText));
        body.back().text = current().text;
        Advance();
      } else if (Is(Kind::kVariableBegin)) {
        Advance();
        body.push_back(Make(StatementKind::kOutput));
        body.back().expr = WithTuples();
        ExpectEnd(Kind::kVariableEnd, "}}");
      } else {
        Advance();  // {%
        if (Is(Kind::kName) && (std::find(ends.begin(), ends.end(), current().text) != ends.end() ||
                                current().text.starts_with("end") || current().text == "else" ||
                                current().text == "elif")) {
          if (std::find(ends.begin(), ends.end(), current().text) == ends.end() && !ends.empty())
            Fail(fmt::format("expected '{}', found '{}'", ends.back(), current().text));
          return body;
        }
        body.push_back(Block());
      }
    }
    if (!failed() && !ends.empty()) Fail(fmt::format("'{{% {} %}}' is missing", ends.back()));
    return body;
  }

  Statement Make(StatementKind kind) const {
    Statement statement{};
    statement.kind = kind;
    statement.line = current().line;
    return statement;
  }

  void ExpectEnd(Kind kind, std::string_view text) {
    if (!Is(kind)) return Fail(fmt::format("expected '{}'", text));
    Advance();
  }
  void ExpectBlockEnd() { ExpectEnd(Kind::kBlockEnd, "%}"); }

  Statement Block() {
    const std::string name = ExpectName("a statement");
    if (name == "if") return If();
    if (name == "for") return For();
    if (name == "set") return Set();
    if (name == "macro") return Macro();
    if (name == "call") return CallBlock();
    if (name == "generation") return Generation();
    if (name == "break" || name == "continue") {
      Statement statement =
          Make(name == "break" ? StatementKind::kBreak : StatementKind::kContinue);
      if (num_loops_ == 0) Fail(fmt::format("'{}' stands outside of a loop", name));
      ExpectBlockEnd();
      return statement;
    }
    if (std::find(std::begin(kUnsupported), std::end(kUnsupported), name) != std::end(kUnsupported))
      Refuse(fmt::format("the statement '{}'", name),
             "supported are if, for, break, continue, set, macro, call and generation");
    else
      Fail(fmt::format("unknown statement '{}'", name));
    return Make(StatementKind::kText);
  }

  Statement If() {
    Statement statement = Make(StatementKind::kIf);
    bool is_else = false;
    while (!failed()) {
      Branch& branch = statement.branches.emplace_back();
      if (!is_else) branch.condition = WithTuples();
      ExpectBlockEnd();
      branch.body = Statements(is_else ? Names{"endif"} : Names{"elif", "else", "endif"});
      if (failed() || SkipName("endif")) break;
      is_else = IsName("else");
      Advance();
    }
    ExpectBlockEnd();
    return statement;
  }

  Statement For() {
    Statement statement = Make(StatementKind::kFor);
    do {
      statement.targets.push_back(Target());
    } while (SkipOperator(","));
    if (!failed() && !SkipName("in")) Fail("expected 'in'");
    statement.expr = WithoutIf();
    if (SkipName("if")) statement.condition = Expression();
    if (IsName("recursive")) Refuse("a recursive loop", "nest loops");
    ExpectBlockEnd();
    ++num_loops_;
    statement.body = Statements({"else", "endfor"});
    --num_loops_;
    if (!failed() && SkipName("else")) {
      ExpectBlockEnd();
      statement.otherwise = Statements({"endfor"});
    }
    Advance();
    ExpectBlockEnd();
    return statement;
  }

  std::string Target() {
    std::string name = ExpectName("a variable's name");
    if (name == "loop") Fail("'loop' cannot be assigned");
    return name;
  }

  Statement Set() {
    Statement statement = Make(StatementKind::kSet);
    statement.targets.push_back(Target());
    if (SkipOperator(".")) statement.member = ExpectName("a member's name");
    while (statement.member.empty() && SkipOperator(",")) statement.targets.push_back(Target());
    if (SkipOperator("=")) {
      statement.expr = WithTuples();
      ExpectBlockEnd();
      return statement;
    }
    if (IsOperator("|")) Refuse("a filter of a `set` block", "apply it where the variable is used");
    if (statement.targets.size() > 1 || !statement.member.empty()) Fail("expected '='");
    ExpectBlockEnd();
    statement.kind = StatementKind::kSetBlock;
    statement.body = Statements({"endset"});
    Advance();
    ExpectBlockEnd();
    return statement;
  }

  Statement Macro() {
    Statement statement = Make(StatementKind::kMacro);
    statement.macro = std::make_unique<MacroNode>();
    statement.macro->name = Target();
    ReadParameters(*statement.macro);
    ReadBody(*statement.macro, "endmacro");
    if (Is(Kind::kName)) Advance();  // {% endmacro name %}
    ExpectBlockEnd();
    return statement;
  }

  // The body is a macro without a name, for the macro that is called.
  Statement CallBlock() {
    Statement statement = Make(StatementKind::kCall);
    statement.macro = std::make_unique<MacroNode>();
    statement.macro->name = "caller";
    if (IsOperator("(")) ReadParameters(*statement.macro);
    statement.expr = Expression();
    if (!failed() && statement.expr->kind != ExprKind::kCall) Fail("expected a call of a macro");
    ReadBody(*statement.macro, "endcall");
    ExpectBlockEnd();
    return statement;
  }

  void ReadParameters(MacroNode& macro) {
    Expect("(");
    while (!failed() && !IsOperator(")")) {
      macro.parameters.push_back(Target());
      if (SkipOperator("="))
        macro.defaults.push_back(Expression());
      else if (!macro.defaults.empty())
        Fail("a parameter without a default follows one with a default");
      if (!SkipOperator(",")) break;
    }
    Expect(")");
  }

  void ReadBody(MacroNode& macro, std::string_view end) {
    ExpectBlockEnd();
    const int num_loops = std::exchange(num_loops_, 0);  // are around it, none in it
    const SpecialNames before = std::exchange(reads_, {});
    macro.body = Statements({end});
    macro.reads = reads_;
    reads_ = {.caller = before.caller || reads_.caller,
              .varargs = before.varargs || reads_.varargs,
              .kwargs = before.kwargs || reads_.kwargs};
    num_loops_ = num_loops;
    const size_t num_required = macro.parameters.size() - macro.defaults.size();
    const auto required_end = macro.parameters.begin() + static_cast<std::ptrdiff_t>(num_required);
    if (macro.reads.caller &&
        std::find(macro.parameters.begin(), required_end, "caller") != required_end)
      Fail("the parameter 'caller' has no default");
    Advance();
  }

  // transformers' mark of what the assistant said; it changes no text.
  Statement Generation() {
    Statement statement = Make(StatementKind::kScope);
    ExpectBlockEnd();
    statement.body = Statements({"endgeneration"});
    Advance();
    ExpectBlockEnd();
    return statement;
  }

  int num_loops_ = 0;
};

}  // namespace

Result<Body> Parse(std::string_view source) {
  if (source.size() > kMaxTemplateBytes)
    return InvalidArgument(
        fmt::format("has {} bytes, at most {} are read", source.size(), kMaxTemplateBytes));
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return TemplateParser(std::move(tokens)).Run();
}

}  // namespace inflight::chat_template
