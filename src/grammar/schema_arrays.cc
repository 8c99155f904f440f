// SPDX-License-Identifier: Apache-2.0
// Arrays: prefixItems, items, minItems, maxItems.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/status_macros.h"
#include "grammar/schema_translator.h"

namespace inflight::grammar {

Result<NodeId> SchemaTranslator::ArrayNode(const Conjunction& all) {
  // Of each place the schemas that hold there: those of the prefix, and behind it those of `items`.
  std::vector<Conjunction> prefix;
  struct Items {
    size_t first;  // place
    const Schema* schema;
  };
  std::vector<Items> items;
  bool has_keywords = false;
  for (const Conjunct& one : all) {
    const Schema& schema = *one.schema;
    has_keywords = has_keywords || (schema.types_of_keywords() & kArrays) != 0;
    size_t first = 0;
    if (schema[Keyword::kPrefixItems]) {
      ASSIGN_OR_RETURN(const auto schemas, document_.AllOf(schema, Keyword::kPrefixItems));
      prefix.resize(std::max(prefix.size(), schemas.size()));
      for (size_t i = 0; i < schemas.size(); ++i) prefix[i].push_back({schemas[i]});
      first = schemas.size();
    }
    if (const auto& value = schema[Keyword::kItems]) {
      if (value->kind() == json::Value::Kind::kArray) {
        return SchemaError(schema, Keyword::kItems,
                           "an array of schemas is not supported (write prefixItems)");
      }
      ASSIGN_OR_RETURN(const Schema* rest, document_.At(*value, schema.pointer + "/items"));
      items.push_back({first, rest});
    }
  }
  if (!has_keywords) return json_.Array();
  ASSIGN_OR_RETURN(const auto min_said, Largest(all, Keyword::kMinItems));
  ASSIGN_OR_RETURN(const auto max_said, Smallest(all, Keyword::kMaxItems));
  const uint32_t min = min_said.value_or(0);
  const uint32_t max = max_said.value_or(kUnlimited);
  if (min > max) return grammar_.Never();
  if (max == 0) return json_.Enclosed('[', grammar_.Never(), ']', /*may_be_empty=*/true);

  std::vector<NodeId> nodes;  // of the places of prefixes
  for (size_t i = 0; i < prefix.size(); ++i) {
    for (const Items& rest : items) {
      if (rest.first <= i) prefix[i].push_back({rest.schema});
    }
    if (!budget_.Spend(items.size())) return OutOfSteps();
    ASSIGN_OR_RETURN(nodes.emplace_back(), NodeOf(prefix[i]));
  }
  Conjunction rest;
  for (const Items& one : items) rest.push_back({one.schema});
  ASSIGN_OR_RETURN(const NodeId item, NodeOf(rest));

  const NodeId comma = json_.Comma();
  const NodeId next_item = grammar_.Sequence({comma, item});
  const auto num_prefix = static_cast<uint32_t>(nodes.size());
  if (num_prefix == 0) {
    const uint32_t most = max == kUnlimited ? kUnlimited : max - 1;
    const NodeId more = grammar_.Repeat(next_item, std::max(min, 1U) - 1, most);
    return json_.Enclosed('[', grammar_.Sequence({item, more}), ']', min == 0);
  }
  // From the last place to the first, each a rule that calls the next one.
  NodeId more = grammar_.Empty();
  if (max > num_prefix) {
    const uint32_t most = max == kUnlimited ? kUnlimited : max - num_prefix;
    more = grammar_.Repeat(next_item, min > num_prefix ? min - num_prefix : 0, most);
  }
  for (uint32_t i = std::min(num_prefix, max); i-- > 1;) {
    const NodeId part = grammar_.Sequence({comma, nodes[i], more});
    const RuleId rule =
        grammar_.AddRule(fmt::format("of items from {} at {}", i, all[0].schema->pointer), part);
    more = grammar_.Call(rule);
    if (i >= min) more = grammar_.Optional(more);
  }
  return json_.Enclosed('[', grammar_.Sequence({nodes[0], more}), ']', min == 0);
}

}  // namespace inflight::grammar
