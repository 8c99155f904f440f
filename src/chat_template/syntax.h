// SPDX-License-Identifier: Apache-2.0
// The tree of a parsed template. Made by parser.h, walked by interpreter.h; constant in between.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chat_template/value.h"

namespace inflight::chat_template {

struct Expr;
struct Statement;
using ExprPtr = std::unique_ptr<Expr>;
using Body = std::vector<Statement>;

// Arguments of a call, a filter or a test.
struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr list;  // *list: more positional ones; may be null
  ExprPtr dict;  // **dict: more named ones; may be null
};

enum class ExprKind {
  kLiteral,      // value
  kName,         // text
  kList,         // operands
  kTuple,        // operands
  kDict,         // operands: key, value, key, value ...
  kConcat,       // operands joined as text: a ~ b ~ c
  kBinary,       // text: + - * / // % **; operands: left, right
  kCompare,      // operands: first and those of each of `operators`
  kAnd,          // operands: left, right
  kOr,           // operands: left, right
  kNot,          // operands[0]
  kNegate,       // operands[0]
  kPlus,         // operands[0]
  kConditional,  // operands: condition, then, else (may be null)
  kMember,       // operands[0] . text
  kItem,         // operands: object, key
  kSlice,        // operands: object, begin, end, step (each but the first may be null)
  kCall,         // operands[0] ( arguments )
  kFilter,       // operands[0] | text ( arguments )
  kTest          // operands[0] is text arguments
};

struct Expr {
  ExprKind kind;
  int line;
  int depth = 1;  // of the tree below, itself included
  std::string text;
  Value value;
  std::vector<ExprPtr> operands;
  std::vector<std::string> operators;  // kCompare: == != < <= > >= in "not in"
  Arguments arguments;
};

enum class StatementKind {
  kText,      // text
  kOutput,    // expr
  kIf,        // branches
  kFor,       // targets, expr, condition, body, otherwise
  kSet,       // targets = expr; one target may have a `member`
  kSetBlock,  // targets[0] = text of body
  kMacro,     // macro
  kCall,      // expr: a call, which has macro as its argument `caller`
  kScope,     // body: {% generation %}
  kBreak,
  kContinue
};

struct Branch {
  ExprPtr condition;  // null: else
  Body body;
};

// What a macro's body has without parameters of these names, where it reads them: the body of the
// `call` block that calls it, and arguments beyond its parameters.
struct SpecialNames {
  bool caller = false;
  bool varargs = false;  // tuple
  bool kwargs = false;   // dict
};

// Sees the variables of where it is defined besides its parameters: those of the template, or of a
// pass of a loop or a call, which it does not outlive.
struct MacroNode {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Body body;
  SpecialNames reads = {};
};

struct Statement {
  StatementKind kind;
  int line;
  std::string text;
  std::vector<std::string> targets;
  std::string member;  // kSet of a namespace: `set targets[0].member = expr`
  ExprPtr expr;
  ExprPtr condition;  // kFor: `if` behind the sequence
  std::vector<Branch> branches;
  Body body;
  Body otherwise;  // kFor: else
  std::unique_ptr<MacroNode> macro;
};

}  // namespace inflight::chat_template
