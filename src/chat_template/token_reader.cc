// SPDX-License-Identifier: Apache-2.0
#include "chat_template/token_reader.h"

#include <fmt/format.h>

namespace inflight::chat_template {

namespace {

using Kind = Token::Kind;

}  // namespace

void TokenReader::Fail(std::string_view message) {
  if (failed()) return;
  status_ = InvalidArgument(fmt::format("line {}: {}", current().line, message));
  at_ = tokens_.size() - 1;
}

void TokenReader::Refuse(std::string_view what, std::string_view instead) {
  if (failed()) return;
  status_ =
      Unimplemented(fmt::format("line {}: {} is not supported; {}", current().line, what, instead));
  at_ = tokens_.size() - 1;
}

bool TokenReader::SkipName(std::string_view name) {
  if (!IsName(name)) return false;
  Advance();
  return true;
}

bool TokenReader::SkipOperator(std::string_view op) {
  if (!IsOperator(op)) return false;
  Advance();
  return true;
}

void TokenReader::Expect(std::string_view op) {
  if (!SkipOperator(op)) Fail(fmt::format("expected '{}', found {}", op, Found()));
}

std::string TokenReader::ExpectName(std::string_view what) {
  if (!Is(Kind::kName)) {
    Fail(fmt::format("expected {}, found {}", what, Found()));
    return {};
  }
  std::string name = current().text;
  Advance();
  return name;
}

std::string TokenReader::Found() const {
  switch (current().kind) {
    case Kind::kBlockEnd:
      return "'%}'";
    case Kind::kVariableEnd:
      return "'}}'";
    case Kind::kEnd:
    case Kind::kData:
    case Kind::kBlockBegin:
    case Kind::kVariableBegin:
      return "the end";
    case Kind::kString:
      return "a text";
    default:
      return fmt::format("'{}'", current().text);
  }
}

}  // namespace inflight::chat_template
