// SPDX-License-Identifier: Apache-2.0
// Guides of each kind -> grammars.
#pragma once

#include <string_view>

#include "grammar/argument_style.h"
#include "grammar/budget.h"
#include "grammar/grammar.h"
#include "inflight/status.h"
#include "json/json_reader.h"

namespace inflight::grammar {

// Each adds what its guide's text says. kInvalidArgument names the place that is wrong, or what is
// not supported; kResourceExhausted says which bound is passed.
Result<NodeId> TranslateRegex(std::string_view text, Grammar& grammar);
Result<NodeId> TranslateChoice(std::string_view text, Grammar& grammar);
Result<NodeId> TranslateGbnf(std::string_view text, Grammar& grammar);
Result<NodeId> TranslateTagged(std::string_view text, Grammar& grammar, Budget& budget);

// `schema` is a JSON schema, and the root that its $ref begin at; its values are written in the
// style.
Result<NodeId> TranslateSchema(const json::Value& schema, Grammar& grammar, Budget& budget,
                               const ArgumentStyle& style = {});

}  // namespace inflight::grammar
